"""The streaming read: what a micro-batch has is leased, written down, and committed by the next batch.

The planner is one long-lived process for each query; it holds the leases. An offset names the runs of its own
batch, so a batch that is planned again after a restart reads the same messages:

    Spark                                    the planner
    | latestOffset(start = batch 6) -------->| batch 6 is done: commit its runs; lease those of batch 7
    | writes batch 7 into the offset log     |
    | partitions(6, 7), tasks read           | (keeps 7 alive)
    | sink, commit log                       |
    | latestOffset(start = batch 7) -------->| batch 7 is done …

Spark never says that a query's last batch is done; the `start` of the next plan does, also after a restart.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from cassq.errors import PipeLostError
from cassq.run_reader import LeasedRun, RunReader, read_leased, tag
from cassq.spark.options import StreamOptions
from cassq.spark.rows import RowBuilder, check_read_schema
from cassq.spark.sessions import open_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("cassq.spark")

Offset = dict[str, Any]


class RunPartition(InputPartition):
    """One leased run."""

    def __init__(self, run: LeasedRun) -> None:
        super().__init__(run)
        self.run = run


class QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Consumes a queue. Opens nothing before Spark asks for an offset: others make one only to read."""

    def __init__(self, options: StreamOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._reader: RunReader | None = None
        self._is_stopping_at_present = False
        self._has_adopted = False

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Return the offset of a query that has read nothing."""
        return {"batch": 0, "runs": []}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """Return the limit that the options give."""
        return ReadMaxRows(self._options.messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """Take nothing that is pushed from now on."""
        self._open().stop_at_present()
        self._is_stopping_at_present = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's
        """Commit the batch that ended, and lease what comes next; `start` itself when there is nothing."""
        reader = self._open()
        before = _runs(start)
        reader.commit(before)
        runs: list[LeasedRun] = []
        if not self._has_adopted:
            runs = reader.adopt(before)
            self._has_adopted = True
        wanted = None if isinstance(limit, ReadAllAvailable) else self._options.messages_per_trigger
        if wanted is not None:
            wanted -= sum(run.count for run in runs)
        if wanted is None or wanted > 0:
            runs += reader.take(wanted)
        while not runs and self._is_stopping_at_present and not reader.is_at_stop():
            reader.wait()  # what is left is in other hands, or claimed by a process that was killed
            runs = reader.take(wanted)
        if not runs:
            return start
        return {"batch": start["batch"] + 1, "runs": [run.to_json() for run in runs]}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return a partition for each run of a batch, after making sure that it is still leased.

        Raises: PipeLostError: others have some of it, because the lease ended while no stream ran.
        """
        if start == end:
            return []
        runs = _runs(end)
        lost = self._open().hold(runs)
        if lost:
            self._tell_lost(lost)
        return [RunPartition(run) for run in runs if run not in lost]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one run; runs in an executor."""
        if not isinstance(partition, RunPartition):
            raise TypeError(f"{partition!r} is not a partition of this reader's")
        target, run = self._options.target, partition.run
        rows = RowBuilder(to_arrow_schema(self._schema, timezone="UTC"))
        for batch in read_leased(open_store(target.url).storage, run):
            rows.add_leased(target.queue, run, tag(self._options.reader), batch)
            if rows.is_full:
                yield from rows.take()
        yield from rows.take()

    def commit(self, end: Offset) -> None:
        """Commit a batch that Spark says is done."""
        self._open().commit(_runs(end))

    def stop(self) -> None:
        """Give the claims up; what is leased stays so, for the next start of this stream."""
        if self._reader:
            self._reader.close()

    def _open(self) -> RunReader:
        if self._reader is None:
            target = self._options.target
            queue = open_store(target.url).find_queue(target.queue)
            self._reader = queue.run_reader(self._options.reader, lease=self._options.lease)
        return self._reader

    def _tell_lost(self, lost: Sequence[LeasedRun]) -> None:
        count = sum(run.count for run in lost)
        words = (
            f"{count} messages of the batch that is planned again were taken by others, because the lease of "
            f"reader {self._options.reader!r} ended while no stream ran"
        )
        if not self._options.is_skipping:
            raise PipeLostError(
                f"{words}: start with option 'skip_lost' set to true to leave them out (what of the batch is "
                "in the sink already is then there twice), and give the stream a longer 'lease_s'"
            )
        _log.warning("%s: they are left out", words)


def make_stream(options: StreamOptions, schema: "StructType") -> QueueStream:
    """Return a streaming reader.

    Raises: InvalidOptionError, QueueNotFoundError: before any task runs.
    """
    check_read_schema(schema)
    open_store(options.target.url).find_queue(options.target.queue)
    return QueueStream(options, schema)


def _runs(offset: Offset) -> list[LeasedRun]:
    return [LeasedRun.from_json(found) for found in offset["runs"]]
