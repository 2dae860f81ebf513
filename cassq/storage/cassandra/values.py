"""Single values of Cassandra's rows.

Refuses, with `DecodeError`, every value that cassq never writes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cassq.errors import DecodeError

Row = tuple[Any, ...]
Values = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the driver returns naive times in UTC
_MILLISECOND = timedelta(milliseconds=1)


@contextmanager
def decoding(what: str, row: Row) -> Iterator[None]:
    """Turn every surprise in a stored row into a `DecodeError` that shows it."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise DecodeError(f"a row is not {what} of cassq's ({error}): {str(row)[:300]}") from error


def to_ms(time: datetime) -> int:
    """Return a timestamp column as milliseconds since 1970."""
    if not isinstance(time, datetime):
        raise TypeError(f"{time!r} is not a time")
    if time < _EPOCH:
        raise ValueError(f"{time} is before all times of cassq's")
    return (time - _EPOCH) // _MILLISECOND


def to_number(value: object) -> int:
    """Return a number."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a number")
    return value


def to_count(value: object) -> int:
    """Return a number of 0 or more."""
    if to_number(value) < 0:
        raise ValueError(f"{value} is below 0")
    return to_number(value)


def to_message_number(value: object) -> int:
    """Return a number of 1 or more."""
    if to_number(value) < 1:
        raise ValueError(f"{value} is below 1")
    return to_number(value)


def to_last(first: int, last: object) -> int:
    """Return the last number of what begins at `first`."""
    if to_number(last) < first:
        raise ValueError(f"it ends at {last}, before it begins")
    return to_number(last)


def to_first(last: int, first: object) -> int:
    """Return the first number of what is read up to `last`."""
    if to_message_number(first) > last:
        raise ValueError(f"it is read from {first}, behind its beginning at {last}")
    return to_number(first)


def to_text(value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def to_uuid(value: object) -> UUID:
    """Return a UUID."""
    if not isinstance(value, UUID):
        raise TypeError(f"{value!r} is not a uuid")
    return value
