"""Bulk writes: each task fills staged pipes, the driver publishes them all at once.

Batch and stream differ in who numbers the batches: a batch write is a writer of one batch, or has the name
and number that the options give it; a stream's batches are numbered by Spark, and its writer is the query,
whose id lives in the checkpoint: so a batch that Spark repeats after a crash is not published again.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import cassq
from cassq.bulk.writers import ONCE
from cassq.errors import CassqError, InvalidOptionError
from cassq.model.ids import new_pipe_id
from cassq.spark.messages import Columns, check_write_schema, messages_of
from cassq.spark.options import Target, WriteOptions
from cassq.spark.sessions import open_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass
class Staged(WriterCommitMessage):
    """What one task wrote: its pipes, and for whom."""

    writer: str
    pipes: Sequence[UUID]


#: What an older driver tells of the columns.
_NONE_TOLD = Columns(())


@dataclass
class BatchWriter(DataSourceArrowWriter):
    """Writes a frame; made by the planner, pickled to the executors and to the commit."""

    target: Target
    writer: str
    batch: int
    columns: Columns = _NONE_TOLD

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Write one task's rows; runs in an executor."""
        self.columns.check()
        return _fill(self.target, self.writer, self.batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks wrote, all at once."""
        _queue(self.target).staging.publish(self.writer, self.batch, _pipes(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what the tasks wrote."""
        _queue(self.target).staging.discard(self.writer, self.batch, _pipes(messages))


@dataclass
class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream; made anew for each of them, and once more for its commit."""

    target: Target
    columns: Columns = _NONE_TOLD

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Write one task's rows of one batch; runs in an executor."""
        self.columns.check()
        return _fill(self.target, *batch_of_task(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Publish one batch, unless it was published before."""
        for writer in {message.writer for message in messages if isinstance(message, Staged)}:
            _queue(self.target).staging.publish(writer, batchId, _pipes(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Delete what the tasks wrote."""
        for writer in {message.writer for message in messages if isinstance(message, Staged)}:
            _queue(self.target).staging.discard(writer, batchId, _pipes(messages))


def make_batch_writer(options: WriteOptions, schema: "StructType", *, is_overwriting: bool) -> BatchWriter:
    """Return a writer of one batch.

    Raises: InvalidOptionError, QueueNotFoundError: before any task runs.
    """
    columns = _check(options, schema, is_overwriting=is_overwriting)
    writer = options.writer or f"{ONCE}{new_pipe_id()}"
    return BatchWriter(options.target, writer, options.batch or 0, columns)


def make_stream_writer(options: WriteOptions, schema: "StructType", *, is_overwriting: bool) -> StreamWriter:
    """Return a writer of a stream's batches.

    Raises: InvalidOptionError, QueueNotFoundError: before any task runs.
    """
    if options.batch is not None:
        raise InvalidOptionError("a stream numbers its batches itself: leave 'writer' and 'batch' out")
    columns = _check(options, schema, is_overwriting=is_overwriting)
    return StreamWriter(options.target, columns)


def _check(options: WriteOptions, schema: "StructType", *, is_overwriting: bool) -> Columns:
    if is_overwriting:
        raise InvalidOptionError(
            "a queue is never overwritten: write with mode('append'), and purge it before"
        )
    columns = check_write_schema(schema)
    _queue(options.target)
    return columns


def _fill(target: Target, writer: str, batch: int, iterator: Iterator[pa.RecordBatch]) -> Staged:
    context = _task()
    task = f"{context.partitionId()}.{context.attemptNumber()}"
    staged = _queue(target).staging.open(writer, batch, task)
    try:
        for rows in iterator:
            for body, headers, options in messages_of(rows):
                staged.add(body, headers, **options)
        return Staged(writer, staged.close())
    except BaseException:
        with suppress(CassqError):  # what stays is deleted when the batch is written again, or by the reaper
            staged.discard()
        raise


def batch_of_task() -> tuple[str, int]:
    """Return the writer that the query of this task is, and the number of the batch.

    Raises: InvalidOptionError: Spark tells neither.
    """
    context = _task()
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise InvalidOptionError("this Spark does not tell a task its query: cassq streams need 4.3 or newer")
    return f"query-{query}", int(batch)


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise InvalidOptionError("only a task of Spark may write rows")
    return context


def _queue(target: Target) -> cassq.Queue:
    return open_store(target.url).find_queue(target.queue)


def _pipes(messages: list[WriterCommitMessage | None]) -> list[UUID]:
    return [pipe for message in messages if isinstance(message, Staged) for pipe in message.pipes]
