"""The batch read: a snapshot of queues, spread over partitions.

The driver reads the lists of pipes and nothing else; each task reads the pipes of its stretch. Nothing is
claimed or changed.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from cassq.bulk.snapshot import Fate, read_letters, read_sections
from cassq.errors import QueueNotFoundError
from cassq.model.pipe import PipeEntry
from cassq.model.shelf import Shelf
from cassq.pipes.shelves import list_pipes_of
from cassq.spark.options import ALL_QUEUES, ReadOptions
from cassq.spark.rows import RowBuilder, check_read_schema
from cassq.spark.sessions import open_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    import cassq

_IN_PIPES = frozenset(Fate) - {Fate.DEAD}

#: The lists of pipes whose messages are shown: of what was moved the pipes that it is in.
_SHOWN = Shelf.READY, Shelf.SCHEDULED, Shelf.DUE, Shelf.KEYED


@dataclass
class PipesPartition(InputPartition):
    """A stretch of pipes of one queue."""

    queue: str
    pipes: Sequence[PipeEntry]


@dataclass
class LettersPartition(InputPartition):
    """The dead letters of one queue."""

    queue: str


@dataclass
class _Wanted:
    """What filters leave to be read; None is no filter."""

    queues: set[str] | None = None
    pipes: set[str] | None = None
    states: set[str] | None = None

    def narrow(self, column: str, values: set[str]) -> bool:
        """Keep only rows whose column has one of the values; False for a column that tells nothing."""
        name = {"queue": "queues", "pipe": "pipes", "state": "states"}.get(column)
        if name is None:
            return False
        before = getattr(self, name)
        setattr(self, name, values if before is None else before & values)
        return True


@dataclass
class SnapshotReader(DataSourceReader):
    """Reads queues; made by the planner, pickled to the executors."""

    options: ReadOptions
    schema: "StructType"
    wanted: _Wanted = field(default_factory=_Wanted)

    def partitions(self) -> list[InputPartition]:
        """List the pipes and cut the list; one partition more for the dead letters of each queue."""
        store = open_store(self.options.target.url)
        planned: list[InputPartition] = []
        for queue in self._queues(store):
            width = max(1, self.options.partition_messages // queue.settings.pipe_messages_max)
            listed = [
                entry
                for entry in list_pipes_of(store.storage, queue.name, queue.settings, _SHOWN)
                if self.wanted.pipes is None or str(entry.pipe) in self.wanted.pipes
            ]
            if self._fates & _IN_PIPES:
                planned += [
                    PipesPartition(queue.name, listed[begin : begin + width])
                    for begin in range(0, len(listed), width)
                ]
            if Fate.DEAD in self._fates:
                planned.append(LettersPartition(queue.name))
        # An empty list would be read as one partition of everything.
        return planned or [PipesPartition("", ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; runs in an executor."""
        storage = open_store(self.options.target.url).storage
        rows = RowBuilder(to_arrow_schema(self.schema, timezone="UTC"))
        if isinstance(partition, LettersPartition):
            for letter in read_letters(storage, partition.queue):
                if self.wanted.pipes is None or str(letter.message_id.pipe) in self.wanted.pipes:
                    rows.add_letter(partition.queue, letter)
                    if rows.is_full:
                        yield from rows.take()
        elif isinstance(partition, PipesPartition):
            is_outline = not {"body", "headers"} & set(self.schema.fieldNames())
            for entry in partition.pipes:
                for section in read_sections(storage, entry.pipe, fates=self._fates, is_outline=is_outline):
                    rows.add_section(partition.queue, entry, section)
                    if rows.is_full:
                        yield from rows.take()
        yield from rows.take()

    @property
    def _fates(self) -> frozenset[Fate]:
        states = self.wanted.states
        return frozenset(fate for fate in Fate if states is None or fate.value in states)

    def _queues(self, store: "cassq.Store") -> Iterator["cassq.Queue"]:
        name = self.options.target.queue
        if name != ALL_QUEUES:
            if self.wanted.queues is None or name in self.wanted.queues:
                yield store.find_queue(name)
            return
        for each in store.queues():
            if self.wanted.queues is None or each in self.wanted.queues:
                with suppress(QueueNotFoundError):  # deleted a moment ago
                    yield store.find_queue(each)


class FilteringReader(SnapshotReader):
    """The same, and takes filters over; Spark refuses such a reader unless its setting says so."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's
        """Take over `=` and `IN` on queue, pipe and state; yield the others."""
        for each in filters:
            match each:
                case EqualTo(attribute=(column,), value=str(value)):
                    is_taken = self.wanted.narrow(column, {value})
                case In(attribute=(column,), value=values) if all(isinstance(one, str) for one in values):
                    is_taken = self.wanted.narrow(column, set(values))
                case _:
                    is_taken = False
            if not is_taken:
                yield each


def make_reader(options: ReadOptions, schema: "StructType") -> SnapshotReader:
    """Return a reader; the options say whether it takes filters over.

    Raises: InvalidOptionError, QueueNotFoundError: before any task runs.
    """
    check_read_schema(schema)
    if options.target.queue != ALL_QUEUES:
        open_store(options.target.url).find_queue(options.target.queue)
    return (FilteringReader if options.is_pushing else SnapshotReader)(options, schema)
