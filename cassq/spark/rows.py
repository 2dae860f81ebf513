"""Messages as rows of Spark, by way of Arrow.

Owns the columns and their types, on the way out and on the way in. A schema that the user gave may name fewer
columns: the others are then not made, and bodies that nobody asked for are not read.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from cassq.errors import InvalidOptionError
from cassq.model.message import NO_HEADERS, Headers

if TYPE_CHECKING:
    from uuid import UUID

    from cassq.bulk.leased_run import LeasedRun
    from cassq.bulk.snapshot import Section
    from cassq.model.message import Batch
    from cassq.storage.port import DeadLetter

#: One row for each message. attempt, holder and leased_at tell how it was handed out last; phase, whether its
#: pipe still takes pushes (open) or not (sealed), null where only a dead letter is left; reason, why it died.
SCHEMA = (
    StructType()
    .add("queue", StringType())
    .add("pipe", StringType())
    .add("seq", LongType())
    .add("message_id", StringType())
    .add("body", BinaryType())
    .add("headers", MapType(StringType(), StringType()))
    .add("pushed_at", TimestampType())
    .add("state", StringType())
    .add("attempt", IntegerType())
    .add("holder", StringType())
    .add("leased_at", TimestampType())
    .add("phase", StringType())
    .add("pusher", StringType())
    .add("reason", StringType())
)

#: What is made into one Arrow batch at most, unless a single message has more.
_ROWS_MAX = 10_000
_BYTES_MAX = 8 * 1024 * 1024


def check_read_schema(schema: StructType) -> None:
    """Check that a schema the user gave has only columns that messages have, of their types.

    Raises: InvalidOptionError: it has others.
    """
    known = {field.name: field.dataType for field in SCHEMA.fields}
    for field in schema.fields:
        if field.name not in known:
            raise InvalidOptionError(f"a message has no column {field.name!r}; it has {', '.join(known)}")
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise InvalidOptionError(
                f"column {field.name!r} is {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}: read it so, and cast it afterwards"
            )


class RowBuilder:
    """Collects messages and makes Arrow batches of them.

    Args:
        schema: the columns that are wanted, as Arrow has them.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        self._rows = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether `take` should be called before more is added."""
        return self._rows >= _ROWS_MAX or self._bytes >= _BYTES_MAX

    def add_section(self, queue: str, pipe: "UUID", pusher: str, section: "Section") -> None:
        """Add messages of a pipe."""
        batch, run = section.batch, section.run
        self._add(
            batch.count,
            {
                "queue": queue,
                "pipe": str(pipe),
                "pushed_at": _micros(batch.pushed_at_ms or 0),
                "state": section.fate.value,
                "attempt": run.attempts if run else 0,
                "holder": run.holder if run else None,
                "leased_at": _micros(run.leased_at_ms) if run and run.leased_at_ms else None,
                "phase": section.phase.value,
                "pusher": pusher,
                "reason": None,
            },
            seq=range(batch.first, batch.last + 1),
            body=batch.bodies,
            headers=batch.headers or (NO_HEADERS,) * batch.count,
        )

    def add_leased(self, queue: str, run: "LeasedRun", holder: str, batch: "Batch") -> None:
        """Add messages of a stream's batch: what can change until it is read again is left out."""
        self._add(
            batch.count,
            {
                "queue": queue,
                "pipe": str(run.pipe),
                "pushed_at": _micros(batch.pushed_at_ms or 0),
                "state": "leased",
                "attempt": run.attempt,
                "holder": holder,
                "leased_at": None,
                "phase": None,
                "pusher": None,
                "reason": None,
            },
            seq=range(batch.first, batch.last + 1),
            body=batch.bodies,
            headers=batch.headers or (NO_HEADERS,) * batch.count,
        )

    def add_letter(self, queue: str, letter: "DeadLetter") -> None:
        """Add a dead letter."""
        self._add(
            1,
            {
                "queue": queue,
                "pipe": str(letter.message_id.pipe),
                "pushed_at": _micros(letter.pushed_at_ms),
                "state": "dead",
                "attempt": letter.attempts,
                "holder": None,
                "leased_at": None,
                "phase": None,
                "pusher": None,
                "reason": letter.reason,
            },
            seq=(letter.message_id.seq,),
            body=(letter.body,),
            headers=(letter.headers,),
        )

    def _add(self, count: int, shared: dict[str, Any], **own: Any) -> None:  # noqa: ANN401 - sequences
        self._rows += count
        for name, column in self._columns.items():
            if name in shared:
                column.extend([shared[name]] * count)
            elif name == "body":
                column.extend(own["body"])
                self._bytes += sum(map(len, own["body"]))
            elif name == "headers":
                column.extend(list(headers.items()) for headers in own["headers"])
            elif name == "message_id":
                column.extend(f"{shared['pipe']}:{seq}" for seq in own["seq"])
            else:
                column.extend(own[name])

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield what was collected as a batch, if there is anything, and begin anew."""
        if not self._rows:
            return
        arrays = [pa.array(self._columns[field.name], type=field.type) for field in self._schema]
        # Without columns (a count) Arrow would not know how many rows there are; Spark always asks for one.
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        for column in self._columns.values():
            column.clear()
        self._rows = self._bytes = 0


def check_write_schema(schema: StructType) -> None:
    """Check that a frame can be written: `body`, binary or string, and perhaps `headers`.

    Raises: InvalidOptionError: it has other columns, or of other types.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    body = types.pop("body", None)
    if body is None:
        raise InvalidOptionError(
            f"there is no column 'body', only {', '.join(map(repr, types)) or 'none'}: rename or make one, "
            "binary or string"
        )
    if body not in ("binary", "string"):
        raise InvalidOptionError(
            f"column 'body' is {body}: a body is binary, or string for UTF-8; cast it, or use to_json"
        )
    headers = types.pop("headers", "map<string,string>")
    if headers != "map<string,string>":
        raise InvalidOptionError(f"column 'headers' is {headers}: headers are map<string,string>")
    if types:
        name = min(types)
        raise InvalidOptionError(
            f"column {name!r} has no place in a message, which has a body and headers: drop it, or put it "
            "into one of them"
        )


def messages_of(batch: pa.RecordBatch) -> Iterator[tuple[bytes, Headers]]:
    """Yield (body, headers) of each row.

    Raises: InvalidOptionError: a body, or a header's value, is null.
    """
    bodies = batch.column("body")
    if bodies.null_count:
        raise InvalidOptionError("a body is null: filter such rows out, or give them an empty body")
    if not pa.types.is_binary(bodies.type):
        bodies = pc.cast(bodies, pa.binary())
    if "headers" not in batch.schema.names:
        for body in bodies.to_pylist():
            yield body, NO_HEADERS
        return
    for body, headers in zip(bodies.to_pylist(), batch.column("headers").to_pylist(), strict=True):
        yield body, dict(headers) if headers else NO_HEADERS


def _micros(ms: int) -> int:
    return 1000 * ms
