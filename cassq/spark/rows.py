"""Messages as rows of Spark, by way of Arrow: the way out.

Owns the columns of what is read, and their types. A schema that the user gave may name fewer columns: the
others are then not made, and bodies that nobody asked for are not read.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from cassq.errors import InvalidOptionError
from cassq.model.message import NO_HEADERS

if TYPE_CHECKING:
    from uuid import UUID

    from cassq.bulk.leased_run import LeasedRun
    from cassq.bulk.snapshot import Section
    from cassq.model.message import Batch
    from cassq.model.pipe import PipeEntry
    from cassq.storage.forms import DeadLetter

#: One row for each message. attempt, holder and leased_at tell how it was handed out last; phase, whether its
#: pipe still takes pushes (open) or not (sealed), null where only a dead letter is left; reason, why it died.
#: priority, type, key, due and ttl tell how it was pushed; a bulk write takes these columns as they are.
#: ended_at is when a dead letter died.
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
    .add("priority", IntegerType())
    .add("type", StringType())
    .add("key", StringType())
    .add("due", TimestampType())
    .add("ttl", DoubleType())
    .add("ended_at", TimestampType())
)

#: What is made into one Arrow batch at most, unless a single message has more.
_ROWS_MAX = 10_000
_BYTES_MAX = 8 * 1024 * 1024


def check_read_schema(schema: StructType) -> None:
    """Check that a schema the user gave has only columns that messages of queues have, of their types.

    Raises: InvalidOptionError: it has others.
    """
    check_schema(schema, SCHEMA)


def check_schema(schema: StructType, whole: StructType) -> None:
    """Check that a schema the user gave has only columns of `whole`, of their types.

    Raises: InvalidOptionError: it has others.
    """
    known = {field.name: field.dataType for field in whole.fields}
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

    def add_section(self, queue: str, entry: "PipeEntry", section: "Section") -> None:
        """Add messages of a pipe."""
        batch, run = section.batch, section.run
        self._add_batch(
            entry.pipe,
            batch,
            {
                "queue": queue,
                "state": section.fate.value,
                "attempt": run.attempts if run else 0,
                "holder": run.holder if run else None,
                "leased_at": micros(run.leased_at_ms) if run and run.leased_at_ms else None,
                "phase": section.phase.value,
                "pusher": entry.pusher,
                "priority": entry.priority,
                "type": entry.type or None,
            },
        )

    def add_leased(self, queue: str, run: "LeasedRun", holder: str, batch: "Batch") -> None:
        """Add messages of a stream's batch: what can change until it is read again is left out."""
        self._add_batch(
            run.pipe,
            batch,
            {
                "queue": queue,
                "state": "leased",
                "attempt": run.attempt,
                "holder": holder,
                "leased_at": None,
                "phase": None,
                "pusher": None,
                "priority": run.priority,
                "type": run.type or None,
            },
        )

    def add_letter(self, queue: str, letter: "DeadLetter") -> None:
        """Add a dead letter."""
        self._add(
            1,
            {
                "queue": queue,
                "pipe": str(letter.message_id.pipe),
                "message_id": str(letter.message_id),
                "pushed_at": micros(letter.pushed_at_ms),
                "state": "dead",
                "attempt": letter.attempts,
                "holder": None,
                "leased_at": None,
                "phase": None,
                "pusher": None,
                "reason": letter.reason,
                "priority": letter.priority,
                "type": letter.type or None,
                "key": letter.key or None,
                "due": None,
                "ttl": None,
                "ended_at": micros(letter.died_at_ms or 0),
            },
            {"seq": (letter.message_id.seq,), "body": (letter.body,), "headers": (letter.headers,)},
        )

    def _add_batch(self, pipe: "UUID", batch: "Batch", shared: dict[str, Any]) -> None:
        seqs = range(batch.first, batch.last + 1)
        shared |= {
            "pipe": str(pipe),
            "reason": None,
            "ended_at": None,
            "ttl": batch.ttl_ms / 1000 if batch.ttl_ms else None,
        }
        own: dict[str, Iterable[Any]] = {
            "seq": seqs,
            "body": batch.bodies,
            "headers": batch.headers or (NO_HEADERS,) * batch.count,
        }
        if batch.origins:  # it was moved here, and people know it by its first id
            own["message_id"] = (str(origin.message_id) for origin in batch.origins)
            own["pushed_at"] = (micros(origin.pushed_at_ms) for origin in batch.origins)
        else:
            own["message_id"] = (f"{pipe}:{seq}" for seq in seqs)
            shared["pushed_at"] = micros(batch.pushed_at_ms or 0)
        if batch.keys:
            own["key"] = batch.keys
        else:
            shared["key"] = None
        if batch.dues:
            own["due"] = (micros(due_ms) if (due_ms := batch.due_ms(seq)) else None for seq in seqs)
        else:
            shared["due"] = None
        self._add(batch.count, shared, own)

    def _add(self, count: int, shared: dict[str, Any], own: dict[str, Iterable[Any]]) -> None:
        """Add rows: what they share, and what each has of its own; what nobody asked for is not made."""
        self._rows += count
        for name, column in self._columns.items():
            if name in shared:
                column.extend([shared[name]] * count)
            elif name == "headers":
                column.extend(list(headers.items()) for headers in own["headers"])
            else:
                column.extend(own[name])
        if "body" in self._columns:
            self._bytes += sum(map(len, own["body"]))

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


def micros(ms: int) -> int:
    """Return milliseconds as the microseconds that Arrow counts."""
    return 1000 * ms
