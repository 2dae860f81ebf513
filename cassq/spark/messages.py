"""Rows of Spark as messages, by way of Arrow: the way in.

Owns which columns a frame may have that is written, and of which types; null is none. Refuses to know which
values may be: the library judges those, as of any push.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)

from cassq.errors import InvalidOptionError
from cassq.model.ids import shorten
from cassq.model.message import NO_HEADERS, Headers
from cassq.model.options import PushOptions


class _Column(NamedTuple):
    """A column of a frame that is written.

    Attributes:
        types: those that it may have.
        words: what to do where it has another one.
    """

    types: tuple[type[DataType], ...]
    words: str


#: The columns of a frame that is written to a queue.
PUSHED = {
    "body": _Column(
        (BinaryType, StringType), "a body is binary, or string for UTF-8; cast it, or use to_json"
    ),
    "headers": _Column((MapType,), "headers are map<string,string>"),
    "priority": _Column((IntegralType,), "a priority is a whole number, null for 0; cast it"),
    "type": _Column((StringType,), "a type is a string, null for none; cast it"),
    "key": _Column((StringType,), "a key is a string, null for none; cast it"),
    "due": _Column(
        (TimestampType,),
        "a due time is a timestamp, null for at once; cast it, in the time zone that it is of",
    ),
    "ttl": _Column(
        (NumericType, DayTimeIntervalType),
        "a time-to-live is a number of seconds, or a day-time interval, null for as long as the queue says; "
        "cast it",
    ),
}

#: The columns of a frame that is written to a topic.
PUBLISHED = {name: PUSHED[name] for name in ("body", "headers", "type", "key")} | {
    "partition": _Column((IntegralType,), "a partition is a whole number, null for that of the key; cast it")
}

_NO_OPTIONS: PushOptions = {}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a frame, as the driver checked them; pickled to the executors.

    An executor whose cassq is older has no such class, or does not know one of the columns. It fails: what it
    wrote would be without its key, or its due time.
    """

    names: tuple[str, ...]

    def check(self, known: Collection[str] = PUSHED) -> None:
        """Check that this cassq knows them.

        Raises: InvalidOptionError.
        """
        if unknown := [name for name in self.names if name not in known]:
            raise InvalidOptionError(
                f"column {unknown[0]!r} is not known to the cassq of this executor, which is older than the "
                "driver's: install the driver's version there"
            )


def check_write_schema(schema: StructType, known: Mapping[str, _Column] = PUSHED) -> Columns:
    """Check that a frame can be written: `body`, binary or string, and perhaps `headers` and what steers it.

    Args:
        known: the columns that it may have.

    Returns: what it has.

    Raises: InvalidOptionError: it has other columns, or of other types.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if "body" not in types:
        raise InvalidOptionError(
            f"there is no column 'body', only {', '.join(map(repr, types)) or 'none'}: rename or make one, "
            "binary or string"
        )
    for name, found in types.items():
        column = known.get(name)
        if column is None:
            *most, last = known
            raise InvalidOptionError(
                f"column {name!r} has no place in a message, which has {', '.join(most)} and {last}: drop "
                "it, or put it into one of them"
            )
        if not isinstance(found, column.types):
            raise InvalidOptionError(f"column {name!r} is {found.simpleString()}: {column.words}")
    headers = types.get("headers", MapType(StringType(), StringType())).simpleString()
    if headers != "map<string,string>":
        raise InvalidOptionError(f"column 'headers' is {headers}: {PUSHED['headers'].words}")
    return Columns(tuple(types))


def messages_of(batch: pa.RecordBatch) -> Iterator[tuple[bytes, Headers, PushOptions]]:
    """Yield body, headers and what steers the message, of each row; null is none.

    Raises: InvalidOptionError: a body, or a header's value, is null, or a value is beyond what Python knows.
    """
    bodies = batch.column("body")
    if bodies.null_count:
        raise InvalidOptionError("a body is null: filter such rows out, or give them an empty body")
    if not pa.types.is_binary(bodies.type):
        bodies = pc.cast(bodies, pa.binary())
    headers = batch.column("headers").to_pylist() if "headers" in batch.schema.names else repeat(None)
    steering = [name for name in batch.schema.names if name not in ("body", "headers")]
    options = _options_of(batch, steering) if steering else repeat(_NO_OPTIONS)
    for body, own, given in zip(bodies.to_pylist(), headers, options, strict=False):
        yield body, dict(own) if own else NO_HEADERS, given


def _options_of(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[PushOptions]:
    read = {"due": _read_dues, "ttl": _read_ttls}
    columns = [read.get(name, pa.Array.to_pylist)(batch.column(name)) for name in names]
    for values in zip(*columns, strict=True):
        found = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        yield cast("PushOptions", found)


def _read_dues(column: pa.Array) -> Iterator[datetime | None]:
    for micros in pc.cast(column, pa.int64()).to_pylist():
        try:
            yield None if micros is None else _EPOCH + timedelta(microseconds=micros)
        except OverflowError:
            raise InvalidOptionError(
                f"due is {micros} microseconds after 1970, which is no time of the years 1 to 9999: give "
                "null where a message is due at once"
            ) from None


def _read_ttls(column: pa.Array) -> Iterator[timedelta | None]:
    for value in column.to_pylist():
        try:
            is_read = value is None or isinstance(value, timedelta)
            yield value if is_read else timedelta(seconds=float(value))
        except (OverflowError, ValueError):
            raise InvalidOptionError(
                f"ttl={shorten(value)} is no number of seconds that can be: give null where a message waits "
                "as long as the queue says"
            ) from None
