"""The data source itself: says what it is called and who reads and writes.

Planners make it anew for every query, executors get what it returns as a pickle: so it keeps nothing. What
one `load()` gives is planned once, at its first action: its frames go on to read the pipes listed then.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from cassq.spark.options import (
    is_of_topic,
    read_options,
    stream_options,
    topic_options,
    topic_write_options,
    write_options,
)
from cassq.spark.rows import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from cassq.spark.publishing import TopicBatchWriter, TopicStreamWriter
    from cassq.spark.reading import SnapshotReader
    from cassq.spark.streaming import QueueStream
    from cassq.spark.topics import TopicSnapshot, TopicStream
    from cassq.spark.writing import BatchWriter, StreamWriter


class CassqDataSource(DataSource):
    """`format("cassq")`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "cassq"

    def schema(self) -> "StructType":
        """Return the columns of a message."""
        if is_of_topic(self.options):
            from cassq.spark.topics import TOPIC_SCHEMA  # noqa: PLC0415

            return TOPIC_SCHEMA
        return SCHEMA

    def reader(self, schema: "StructType") -> "SnapshotReader | TopicSnapshot":
        """Return a reader of a snapshot, or of a topic."""
        if is_of_topic(self.options):
            from cassq.spark.topics import make_snapshot  # noqa: PLC0415

            return make_snapshot(topic_options(self.options, is_stream=False), schema)
        from cassq.spark.reading import make_reader  # noqa: PLC0415 - executors need only what they use

        return make_reader(read_options(self.options), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "BatchWriter | TopicBatchWriter":  # noqa: FBT001 - Spark's
        """Return a writer of one batch."""
        if is_of_topic(self.options):
            from cassq.spark.publishing import make_batch_publisher  # noqa: PLC0415

            return make_batch_publisher(topic_write_options(self.options), schema, is_overwriting=overwrite)
        from cassq.spark.writing import make_batch_writer  # noqa: PLC0415

        return make_batch_writer(write_options(self.options), schema, is_overwriting=overwrite)

    def streamReader(self, schema: "StructType") -> "QueueStream | TopicStream":  # noqa: N802 - Spark's
        """Return a reader that consumes a queue, or follows a topic."""
        if is_of_topic(self.options):
            from cassq.spark.topics import make_stream as follow  # noqa: PLC0415

            return follow(topic_options(self.options, is_stream=True), schema)
        from cassq.spark.streaming import make_stream  # noqa: PLC0415

        return make_stream(stream_options(self.options), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "StreamWriter | TopicStreamWriter":  # noqa: N802, FBT001 - Spark's
        """Return a writer of a stream's batches."""
        if is_of_topic(self.options):
            from cassq.spark.publishing import make_stream_publisher  # noqa: PLC0415

            return make_stream_publisher(topic_write_options(self.options), schema, is_overwriting=overwrite)
        from cassq.spark.writing import make_stream_writer  # noqa: PLC0415

        return make_stream_writer(write_options(self.options), schema, is_overwriting=overwrite)
