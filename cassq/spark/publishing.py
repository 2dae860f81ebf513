"""Topics as a sink of Spark: tasks gather messages, the driver publishes them.

Batch and stream differ in who numbers the batches, as for queues. A batch that has a number is in each
partition of the topic at once or not at all, and once, however often Spark writes it. What must not break:
the row alone tells which partition it goes to, so a batch that is computed anew has the same rows there.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from cassq.errors import InvalidOptionError
from cassq.model.message import Headers, check_body, check_headers
from cassq.model.topic import KEY_HEADER, TYPE_HEADER, partition_of
from cassq.spark.messages import PUBLISHED, check_write_schema, messages_of
from cassq.spark.options import TopicWriteOptions
from cassq.spark.sessions import open_store
from cassq.spark.writing import batch_of_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    import cassq
    from cassq.topics.publisher import NumberedOptions

#: Messages by the partition of the topic that they go to.
Lots = dict[int, list[tuple[bytes, Headers]]]


@dataclass
class Gathered(WriterCommitMessage):
    """What one task has, and who numbers it."""

    lots: Lots
    writer: str = ""


@dataclass
class TopicBatchWriter(DataSourceArrowWriter):
    """Publishes a frame; made by the planner, pickled to the executors and to the commit."""

    options: TopicWriteOptions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Gathered:
        """Gather one task's rows; runs in an executor."""
        return Gathered(_gather(_topic(self.options), iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have; without a number it is not known how far a driver came that died."""
        numbered: NumberedOptions = {"writer": self.options.writer, "number": self.options.batch}
        _publish(_topic(self.options), messages, numbered if self.options.writer else {})


@dataclass
class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Publishes the batches of a stream; made anew for each of them, and once more for its commit."""

    options: TopicWriteOptions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Gathered:
        """Gather one task's rows of one batch; runs in an executor."""
        writer, _ = batch_of_task()
        return Gathered(_gather(_topic(self.options), iterator), writer)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Publish one batch, but for the partitions in which it is already."""
        for writer in {message.writer for message in messages if isinstance(message, Gathered)}:
            _publish(_topic(self.options), messages, {"writer": writer, "number": batchId})

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: what was not committed is nowhere."""


def make_batch_publisher(
    options: TopicWriteOptions, schema: "StructType", *, is_overwriting: bool
) -> TopicBatchWriter:
    """Return a writer of one batch.

    Raises: InvalidOptionError, TopicNotFoundError: before any task runs.
    """
    _check(options, schema, is_overwriting=is_overwriting)
    return TopicBatchWriter(options)


def make_stream_publisher(
    options: TopicWriteOptions, schema: "StructType", *, is_overwriting: bool
) -> TopicStreamWriter:
    """Return a writer of a stream's batches.

    Raises: InvalidOptionError, TopicNotFoundError: before any task runs.
    """
    if options.batch is not None:
        raise InvalidOptionError("a stream numbers its batches itself: leave 'writer' and 'batch' out")
    _check(options, schema, is_overwriting=is_overwriting)
    return TopicStreamWriter(options)


def _check(options: TopicWriteOptions, schema: "StructType", *, is_overwriting: bool) -> None:
    if is_overwriting:
        raise InvalidOptionError(
            "a topic is never overwritten: write with mode('append'), and clear it before"
        )
    check_write_schema(schema, PUBLISHED)
    _topic(options)


def _gather(topic: "cassq.Topic", iterator: Iterator[pa.RecordBatch]) -> Lots:
    """Return the rows as messages that the topic takes.

    Raises: InvalidOptionError, BodyTooLargeError: a row breaks a rule; nothing of the batch is published.
    """
    lots: Lots = defaultdict(list)
    body_bytes_max = topic.settings.body_bytes_max
    for body, own, given in chain.from_iterable(map(messages_of, iterator)):
        steering = cast("Mapping[str, Any]", given)
        named = {name: steering[name] for name in (KEY_HEADER, TYPE_HEADER) if name in steering}
        headers = check_headers({**own, **named} if named else own)
        partition = steering.get("partition")
        if partition is None:
            key = headers.get(KEY_HEADER)
            partition = partition_of(key, topic.partitions) if key else crc32(body) % topic.partitions
        elif not 0 <= partition < topic.partitions:
            raise InvalidOptionError(
                f"column 'partition' is {partition}: topic {topic.name!r} has partitions 0 to "
                f"{topic.partitions - 1}, and null stands for that of the key"
            )
        lots[partition].append((check_body(body, body_bytes_max), headers))
    return dict(lots)


def _publish(
    topic: "cassq.Topic", messages: list[WriterCommitMessage | None], numbered: "NumberedOptions"
) -> None:
    gathered = [message.lots for message in messages if isinstance(message, Gathered)]
    for partition in sorted(set(chain.from_iterable(gathered))):
        rows = chain.from_iterable(lots.get(partition, ()) for lots in gathered)
        topic.publish_many(rows, partition=partition, **numbered)


def _topic(options: TopicWriteOptions) -> "cassq.Topic":
    return open_store(options.url).find_topic(options.topic)
