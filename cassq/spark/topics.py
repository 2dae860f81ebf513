"""Topics as a source of Spark: a batch read of a stretch of offsets, and a stream that follows.

Offsets are the source's own: what a batch names never changes, so a stream keeps nothing, leases nothing, and
may plan a batch any number of times. What must not break: a batch that is planned again has the same rows, or
an error tells what is gone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from cassq.errors import InvalidOptionError, TopicNotFoundError
from cassq.model.ids import shorten
from cassq.spark.options import TopicOptions
from cassq.spark.rows import check_schema, micros
from cassq.spark.sessions import open_store

if TYPE_CHECKING:
    import cassq

#: One row for each message.
TOPIC_SCHEMA = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("key", StringType())
    .add("type", StringType())
    .add("body", BinaryType())
    .add("headers", MapType(StringType(), StringType()))
    .add("published_at", TimestampType())
)

#: So many messages are made into one Arrow batch, and are read at a time.
_ROWS = 10_000

#: The offset of a stream: the topic's incarnation, and what each partition reads next, by its number as text.
Offset = dict[str, str | int]
_TOPIC = "topic"


@dataclass
class StretchPartition(InputPartition):
    """A stretch of offsets of one partition: first to last."""

    partition: int
    first: int
    last: int


@dataclass
class TopicSnapshot(DataSourceReader):
    """Reads a stretch of each partition; made by the planner, pickled to the executors."""

    options: TopicOptions
    schema: StructType

    def partitions(self) -> list[InputPartition]:
        """Return the stretches from the first to the last offset that are wanted."""
        topic = _topic(self.options)
        starts, ends = _places(topic, self.options.start), _places(topic, self.options.end, "latest")
        return _stretches(starts, ends, self.options.partition_messages) or [StretchPartition(0, 1, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one stretch; runs in an executor."""
        return _read(self.options, self.schema, partition)


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a topic."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._stops_at: dict[int, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Return where a query begins that has read nothing."""
        topic = _topic(self._options)
        return _to_offset(topic, _places(topic, self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """Return the limit that the options give."""
        return ReadMaxRows(self._options.messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Read nothing that is published from now on."""
        self._stops_at = _places(_topic(self._options), "latest")

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's
        """Return where the next batch ends: each partition has a share of the limit by what is before it."""
        topic = _topic(self._options)
        starts = _from_offset(topic, start)
        ends = self._stops_at or _places(topic, "latest")
        behind = {each: max(0, ends[each] - starts[each]) for each in ends}
        total = sum(behind.values())
        if isinstance(limit, ReadMaxRows) and total > limit.max_rows:
            # Rounded up, so that each partition with something before it goes on.
            shares = {each: -(-lag * limit.max_rows // total) for each, lag in behind.items()}
            ends = {each: starts[each] + shares[each] for each in ends}
        return _to_offset(topic, {each: max(starts[each], end) for each, end in ends.items()})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the stretches between two offsets; the same ones each time."""
        topic = _topic(self._options)
        starts, ends = _from_offset(topic, start), _from_offset(topic, end)
        return _stretches(starts, ends, self._options.partition_messages)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one stretch; runs in an executor."""
        return _read(self._options, self._schema, partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: the checkpoint has all there is to keep."""


def make_snapshot(options: TopicOptions, schema: StructType) -> TopicSnapshot:
    """Return a reader of stretches.

    Raises: InvalidOptionError, TopicNotFoundError: before any task runs.
    """
    check_schema(schema, TOPIC_SCHEMA)
    _topic(options)
    return TopicSnapshot(options, schema)


def make_stream(options: TopicOptions, schema: StructType) -> TopicStream:
    """Return a streaming reader.

    Raises: InvalidOptionError, TopicNotFoundError: before any task runs.
    """
    check_schema(schema, TOPIC_SCHEMA)
    _topic(options)
    return TopicStream(options, schema)


def _topic(options: TopicOptions) -> "cassq.Topic":
    return open_store(options.url).find_topic(options.topic)


def _places(topic: "cassq.Topic", given: str, default: str = "earliest") -> dict[int, int]:
    """Return the offset of each partition that an option says.

    Args:
        default: of partitions that JSON does not name.

    Raises: InvalidOptionError: it says none.
    """
    if given in {"earliest", "latest"}:
        stats = topic.stats()
        return {each.partition: each.oldest if given == "earliest" else each.latest for each in stats}
    if given.startswith("{"):
        return _parse_places(topic, given, default)
    try:
        when = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidOptionError(
            f"{shorten(given)} is no place in a topic: give earliest, latest, a time in ISO 8601 with its "
            'zone, or JSON as {"0": 17}'
        ) from None
    return {each: topic.offset_at(each, when) for each in range(topic.partitions)}


def _parse_places(topic: "cassq.Topic", given: str, default: str) -> dict[int, int]:
    try:
        found = {int(partition): offset for partition, offset in json.loads(given).items()}
    except ValueError as error:
        raise InvalidOptionError(f'{shorten(given)} is no JSON as {{"0": 17}}: {error}') from None
    named = dict.fromkeys(range(topic.partitions), 0)
    if not found.keys() <= named.keys() or not all(
        type(each) is int and each >= 1 for each in found.values()
    ):
        raise InvalidOptionError(
            f"{shorten(given)} names partitions or offsets that topic {topic.name!r} has not: partitions "
            f"are 0 to {topic.partitions - 1}, offsets whole numbers from 1 on"
        )
    return _places(topic, default) | found


def _stretches(starts: Mapping[int, int], ends: Mapping[int, int], most: int) -> list[InputPartition]:
    """Return stretches of so many messages at most, from the starts to before the ends."""
    return [
        StretchPartition(partition, first, min(first + most, ends[partition]) - 1)
        for partition in sorted(ends)
        for first in range(starts.get(partition, 1), ends[partition], most)
    ]


def _read(options: TopicOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, StretchPartition):
        raise TypeError(f"{partition!r} is not a partition of this reader's")
    columns = to_arrow_schema(schema, timezone="UTC")
    if partition.first > partition.last:
        return
    topic = _topic(options)
    on_gone: Literal["oldest", "error"] = "oldest" if options.skips_gone else "error"
    start = {partition.partition: partition.first}
    with topic.reader(start, partitions=[partition.partition], on_gone=on_gone) as reader:
        while reader.positions[partition.partition] <= partition.last:
            found = [each for each in reader.read_many(_ROWS) if each.offset <= partition.last]
            if not found:
                return  # what is left of it was skipped
            yield _to_rows(topic.name, found, columns)


def _to_rows(topic: str, messages: Sequence["cassq.TopicMessage"], columns: pa.Schema) -> pa.RecordBatch:
    values = {
        "topic": lambda _: topic,
        "partition": lambda each: each.partition,
        "offset": lambda each: each.offset,
        "key": lambda each: each.key,
        "type": lambda each: each.type,
        "body": lambda each: each.body,
        "headers": lambda each: list(each.headers.items()),
        "published_at": lambda each: micros(each.published_at_ms),
    }
    arrays = [pa.array(list(map(values[column.name], messages)), type=column.type) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _to_offset(topic: "cassq.Topic", places: Mapping[int, int]) -> Offset:
    return {_TOPIC: str(topic.incarnation), **{str(each): place for each, place in sorted(places.items())}}


def _from_offset(topic: "cassq.Topic", offset: Offset) -> dict[int, int]:
    if offset[_TOPIC] != str(topic.incarnation):
        raise TopicNotFoundError(
            f"topic {topic.name!r} was deleted and made anew since the checkpoint was written: start the "
            "query with a new checkpoint"
        )
    return {int(each): int(place) for each, place in offset.items() if each != _TOPIC}
