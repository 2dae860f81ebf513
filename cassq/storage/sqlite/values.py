"""Single values of the embedded store's rows.

Refuses, with `DecodeError`, every value that cassq did not write.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cassq.errors import DecodeError
from cassq.limits import SEQ_MAX

#: The last millisecond that people have a date for.
_TIME_MAX_MS = 253_402_300_799_999

_NOT_OURS = (
    *(ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError),
    *(AssertionError, RecursionError),  # of UUID, where it gets something else than bytes; of nested JSON
)


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turn every surprise in a stored row into a `DecodeError` that names the row."""
    try:
        yield
    except _NOT_OURS as error:
        words = str(error) or type(error).__name__
        raise DecodeError(f"{what} holds a row that cassq did not write: {words[:300]}") from error


def number(value: object, low: int = 0, high: int = SEQ_MAX) -> int:
    """Return a number within bounds."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{value!r} is not a number from {low} to {high}")
    return value


def time_ms(value: object) -> int:
    """Return a time, in milliseconds since 1970."""
    return number(value, 0, _TIME_MAX_MS)


def text(value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def blob(value: object) -> bytes:
    """Return bytes."""
    if not isinstance(value, bytes):
        raise TypeError(f"{value!r} is not bytes")
    return value


def json_list(stored: object) -> list[Any]:
    """Return a list that is stored as JSON."""
    found = json.loads(text(stored))
    if not isinstance(found, list):
        raise TypeError(f"{found!r} is not a list")
    return found


def json_headers(found: object) -> dict[str, str]:
    """Return headers that were read from JSON."""
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise TypeError(f"{found!r} are not headers")
    return found
