"""How values are written on the command line: durations, sizes, headers, places in a topic, replication.

Owns the grammar, but for durations, whose grammar is the library's; ranges are the library's to check.
"""

import json
import re
from datetime import datetime, timedelta
from typing import cast

import click

from cassq.errors import InvalidOptionError
from cassq.limits import KIB, MIB
from cassq.model import arguments
from cassq.model.ids import shorten
from cassq.topics.topic_reader import Start

#: Commands that do something again and again rest at least so long.
PAUSE_MIN = timedelta(milliseconds=100)

_SIZE = re.compile(r"([0-9]{1,2000})(B|KiB|MiB|GiB)?")
_SIZES = {None: 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": KIB * MIB}
_OFFSET = re.compile(r"[0-9]{1,19}")
_POSITION = re.compile(r"([0-9]{1,9}):([0-9]{1,19})")
_DATACENTER = re.compile(r"([A-Za-z0-9_.-]+):([1-9][0-9]{0,8})")


def to_duration(text: str | timedelta) -> timedelta:
    """Read 500ms, 30s, 2m, 1h, 1d or a number of seconds."""
    try:
        return arguments.to_duration(text)
    except InvalidOptionError as error:
        raise click.BadParameter(str(error)) from None


def to_time(text: str | datetime) -> datetime:
    """Read a time in ISO 8601, with its zone."""
    try:
        time = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    except ValueError:
        time = datetime.min  # noqa: DTZ901 - it has no zone
    if time.tzinfo is None:
        raise click.BadParameter(
            f"{shorten(text)} is not a time with its zone: write 2027-01-01T08:00Z or 2027-01-01T09:00+01:00"
        )
    return time


def to_start(text: str | Start | int) -> Start | int:
    """Read where to begin in a topic: earliest, latest, a time, an offset, or PARTITION:OFFSET[,…]."""
    if not isinstance(text, str):
        return text
    if text in {"earliest", "latest"}:
        return cast(Start, text)
    if _OFFSET.fullmatch(text):
        return int(text)
    matches = [_POSITION.fullmatch(part) for part in text.split(",")]
    positions = {int(match[1]): int(match[2]) for match in matches if match}
    if len(positions) == len(matches):
        return positions
    try:
        return to_time(text)
    except click.BadParameter:
        raise click.BadParameter(
            f"{shorten(text)} is no place in a topic: write earliest, latest, a time with its zone, as "
            "2027-01-01T08:00Z, or PARTITION:OFFSET, as `cassq topic publish` prints it; several as 0:17,1:4"
        ) from None


def to_pause(text: str | timedelta) -> timedelta:
    """Read the duration between two rounds: 100 ms or more, or a round would follow the other at once."""
    pause = to_duration(text)
    if pause < PAUSE_MIN:
        raise click.BadParameter(
            f"{shorten(text)} is out of range: {PAUSE_MIN / timedelta(seconds=1):g}s or more"
        )
    return pause


def to_bytes(text: str) -> int:
    """Read a number of bytes: 4096, 64KiB, 1MiB, 2GiB."""
    match = _SIZE.fullmatch(str(text))
    if not match:
        raise click.BadParameter(f"{shorten(text)} is not a number of bytes: write 4096, 64KiB or 1MiB")
    return int(match[1]) * _SIZES[match[2]]


def to_version(text: str) -> tuple[int, ...]:
    """Read the numbers of a server's version: 5.0.9, 3.9.3-abc."""
    return tuple(int(part) for part in text.partition("-")[0].split(".") if part.isdigit())


def to_header(text: str) -> tuple[str, str]:
    """Read a header: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{shorten(text)} is not NAME=VALUE")
    return name, value


def to_replication(text: str) -> dict[str, str | int]:
    """Read how a keyspace is replicated: simple:1, dc1:3,dc2:3, or the JSON that CQL takes."""
    options = _from_json(text) if text.lstrip().startswith("{") else _from_factors(text)
    if options is None:
        raise click.BadParameter(
            f"{shorten(text)} is not a replication: write simple:1, dc1:3,dc2:3 or "
            '{"class": "NetworkTopologyStrategy", "dc1": 3}'
        )
    return options


def _from_json(text: str) -> dict[str, str | int] | None:
    try:
        options = json.loads(text.replace("'", '"'))  # CQL's quotes are fine too
    except (ValueError, RecursionError):
        return None
    is_plain = isinstance(options.get("class"), str) and all(
        isinstance(value, str | int) and not isinstance(value, bool) for value in options.values()
    )
    return options if is_plain else None


def _from_factors(text: str) -> dict[str, str | int] | None:
    parts = [_DATACENTER.fullmatch(part.strip()) for part in text.split(",")]
    factors = {match[1]: int(match[2]) for match in parts if match}
    if len(factors) != len(parts) or "class" in factors:
        return None
    if list(factors) == ["simple"]:
        return {"class": "SimpleStrategy", "replication_factor": factors["simple"]}
    return {"class": "NetworkTopologyStrategy", **factors}
