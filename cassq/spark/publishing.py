"""Topics as a sink of Spark: tasks gather messages, the driver publishes them.

Batch and stream differ in who numbers the batches, as for queues. A batch that has a number is in each
partition of the topic at once or not at all, and once, however often Spark writes it. What must not break:
the row alone tells which partition it goes to, so a batch that is computed anew has the same rows there.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from cassq.errors import CassqError, InvalidOptionError
from cassq.model.message import Headers, check_body, check_headers
from cassq.model.topic import KEY_HEADER, TYPE_HEADER, partition_of
from cassq.spark.messages import PUBLISHED, Columns, check_write_schema, messages_of
from cassq.spark.options import TopicWriteOptions
from cassq.spark.sessions import open_store
from cassq.spark.writing import batch_of_task
from cassq.topics.spreading import is_too_much

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    import cassq
    from cassq.topics.publisher import NumberedOptions

#: So long the publishing of one partition may take; what has a number goes on after an outage.
PUBLISH_TIMEOUT = timedelta(minutes=10)

#: A batch has so many parts in one partition at most; each is a writer that the partition remembers.
PARTS_MAX = 64

Message = tuple[bytes, Headers]

#: Messages by the partition of the topic that they go to.
Lots = dict[int, list[Message]]


@dataclass
class Gathered(WriterCommitMessage):
    """What one task has, and who numbers it."""

    lots: Lots
    writer: str = ""


@dataclass
class TopicBatchWriter(DataSourceArrowWriter):
    """Publishes a frame; made by the planner, pickled to the executors and to the commit."""

    options: TopicWriteOptions
    columns: Columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Gathered:
        """Gather one task's rows; runs in an executor."""
        return Gathered(_gather(self.options, self.columns, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have; without a number it is not known how far a driver came that died."""
        _publish(_topic(self.options), _lots(messages), self.options.writer or "", self.options.batch)


@dataclass
class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Publishes the batches of a stream; made anew for each of them, and once more for its commit."""

    options: TopicWriteOptions
    columns: Columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Gathered:
        """Gather one task's rows of one batch; runs in an executor."""
        writer, _ = batch_of_task()
        return Gathered(_gather(self.options, self.columns, iterator), writer)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Publish one batch, but for the partitions in which it is already."""
        if writers := {message.writer for message in messages if isinstance(message, Gathered)}:
            (writer,) = writers
            _publish(_topic(self.options), _lots(messages), writer, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: what was not committed is nowhere."""


def make_batch_publisher(
    options: TopicWriteOptions, schema: "StructType", *, is_overwriting: bool
) -> TopicBatchWriter:
    """Return a writer of one batch.

    Raises: InvalidOptionError, TopicNotFoundError: before any task runs.
    """
    return TopicBatchWriter(options, _check(options, schema, is_overwriting=is_overwriting))


def make_stream_publisher(
    options: TopicWriteOptions, schema: "StructType", *, is_overwriting: bool
) -> TopicStreamWriter:
    """Return a writer of a stream's batches.

    Raises: InvalidOptionError, TopicNotFoundError: before any task runs.
    """
    if options.batch is not None:
        raise InvalidOptionError("a stream numbers its batches itself: leave 'writer' and 'batch' out")
    return TopicStreamWriter(options, _check(options, schema, is_overwriting=is_overwriting))


def _check(options: TopicWriteOptions, schema: "StructType", *, is_overwriting: bool) -> Columns:
    if is_overwriting:
        raise InvalidOptionError(
            "a topic is never overwritten: write with mode('append'), and clear it before"
        )
    columns = check_write_schema(schema, PUBLISHED)
    _topic(options)
    return columns


def _gather(options: TopicWriteOptions, columns: Columns, iterator: Iterator[pa.RecordBatch]) -> Lots:
    """Return the rows as messages that the topic takes.

    Raises: InvalidOptionError, BodyTooLargeError: a row breaks a rule; nothing of the batch is published.
    """
    columns.check(PUBLISHED)
    topic = _topic(options)
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


def _lots(messages: Sequence[WriterCommitMessage | None]) -> list[Lots]:
    return [message.lots for message in messages if isinstance(message, Gathered)]


def _publish(topic: "cassq.Topic", lots: Sequence[Lots], writer: str = "", number: int | None = None) -> None:
    """Publish what the tasks have, partition by partition.

    Raises:
        InvalidOptionError: it is too much of one key; nothing is published.
        CassqError: a note of the error tells how many messages are published.
    """
    work: list[tuple[int, list[Message], NumberedOptions]] = []
    for partition in sorted(set(chain.from_iterable(lots))):
        rows = list(chain.from_iterable(each.get(partition, ()) for each in lots))
        if number is None:
            work.append((partition, rows, {}))
            continue
        for place, part in enumerate(_parts(rows)):
            name = f"{writer}.{place}" if place else writer
            work.append((partition, part, {"writer": name, "number": number}))
    published = 0
    for partition, part, numbered in work:
        try:
            topic.publish_many(part, partition=partition, timeout=PUBLISH_TIMEOUT, **numbered)
        except CassqError as error:
            total = sum(len(rows) for _, rows, _ in work)
            error.add_note(f"before that {published} of the {total} messages of this write were published")
            raise
        published += len(part)


def _parts(rows: Sequence[Message]) -> Sequence[list[Message]]:
    """Return the messages of a partition in parts of which each may have one number.

    A key is in one part. The messages alone tell which, so that a batch that is computed anew has the same.
    """
    parts = [list(rows)]
    while any(map(is_too_much, parts)):
        if len(parts) == PARTS_MAX:
            raise InvalidOptionError(
                f"{len(rows)} messages of one batch go to one partition of the topic, and too many of them "
                "have one key: nothing is published; have the source read less for each batch"
            )
        parts = [[] for _ in range(2 * len(parts))]
        for body, headers in rows:
            key = headers.get(KEY_HEADER)
            parts[crc32(key.encode() if key else body) % len(parts)].append((body, headers))
    return parts


def _topic(options: TopicWriteOptions) -> "cassq.Topic":
    return open_store(options.url).find_topic(options.topic)
