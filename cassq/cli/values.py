"""How values are written on the command line: durations, sizes, headers, replication.

Owns the grammar; ranges are the library's to check.
"""

import json
import re
from datetime import timedelta

import click

from cassq.limits import KIB, MIB

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"(\d+)(B|KiB|MiB)?")
_SIZES = {None: 1, "B": 1, "KiB": KIB, "MiB": MIB}
_DATACENTER = re.compile(r"([A-Za-z0-9_.-]+):([1-9]\d*)")


def to_duration(text: str | timedelta) -> timedelta:
    """Read a number and its unit: 500ms, 30s, 2m, 1h."""
    if isinstance(text, timedelta):
        return text
    match = _DURATION.fullmatch(text)
    if not match:
        raise click.BadParameter(f"{text!r} is not a duration: write 500ms, 30s, 2m or 1h")
    try:
        return timedelta(seconds=float(match[1]) * _UNITS_S[match[2]])
    except OverflowError:
        raise click.BadParameter(f"{text!r} is too long") from None


def to_bytes(text: str) -> int:
    """Read a number of bytes: 4096, 64KiB, 1MiB."""
    match = _SIZE.fullmatch(str(text))
    if not match:
        raise click.BadParameter(f"{text!r} is not a number of bytes: write 4096, 64KiB or 1MiB")
    return int(match[1]) * _SIZES[match[2]]


def to_header(text: str) -> tuple[str, str]:
    """Read a header: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def to_replication(text: str) -> dict[str, str | int]:
    """Read how a keyspace is replicated: simple:1, dc1:3,dc2:3, or the JSON that CQL takes."""
    options = _from_json(text) if text.lstrip().startswith("{") else _from_factors(text)
    if options is None:
        raise click.BadParameter(
            f"{text!r} is not a replication: write simple:1, dc1:3,dc2:3 or "
            '{"class": "NetworkTopologyStrategy", "dc1": 3}'
        )
    return options


def _from_json(text: str) -> dict[str, str | int] | None:
    try:
        options = json.loads(text.replace("'", '"'))  # CQL's quotes are fine too
    except ValueError:
        return None
    is_plain = isinstance(options.get("class"), str) and all(
        isinstance(value, str | int) and not isinstance(value, bool) for value in options.values()
    )
    return options if is_plain else None


def _from_factors(text: str) -> dict[str, str | int] | None:
    parts = [_DATACENTER.fullmatch(part.strip()) for part in text.split(",")]
    factors = {match[1]: int(match[2]) for match in parts if match}
    if len(factors) != len(parts):
        return None
    if list(factors) == ["simple"]:
        return {"class": "SimpleStrategy", "replication_factor": factors["simple"]}
    return {"class": "NetworkTopologyStrategy", **factors}
