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
import os
import signal
import sys
import threading
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

from cassq.bulk.leased_run import LeasedRun, read_leased, tag
from cassq.bulk.run_reader import RunReader
from cassq.errors import PipeLostError
from cassq.spark.options import StreamOptions
from cassq.spark.rows import RowBuilder, check_read_schema
from cassq.spark.sessions import open_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("cassq.spark")

Offset = dict[str, Any]


#: Small runs go into one partition until it has so many messages.
PARTITION_MESSAGES = 10_000


class RunsPartition(InputPartition):
    """Some leased runs."""

    def __init__(self, runs: Sequence[LeasedRun]) -> None:
        super().__init__(runs)
        self.runs = runs


class QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Consumes a queue. Opens nothing before Spark asks for an offset: others make one only to read."""

    def __init__(self, options: StreamOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._reader: RunReader | None = None
        self._parent = 0
        self._is_stopping_at_present = False
        self._has_adopted = False
        self._committed: Offset | None = None

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
        self.commit(start)
        runs: list[LeasedRun] = []
        if not self._has_adopted:
            runs = reader.adopt(_runs(start))
            self._has_adopted = True
        if isinstance(limit, ReadAllAvailable):
            reader.stop_at_present()  # or it would never end where pushers keep up
        wanted = limit.max_rows - sum(run.count for run in runs) if isinstance(limit, ReadMaxRows) else None
        if wanted is None or wanted > 0:
            runs += reader.take(wanted)
        while not runs and self._is_waiting_for_the_present(reader):
            reader.wait()  # what is left is in other hands, or claimed by a process that was killed
            runs = reader.take(wanted)
        if not runs:
            return start
        return {"batch": start["batch"] + 1, "runs": [run.to_json() for run in runs]}

    def _is_waiting_for_the_present(self, reader: RunReader) -> bool:
        is_ours = os.getppid() == self._parent  # or the driver was killed, and nobody wants an answer
        return self._is_stopping_at_present and is_ours and reader.may_take() and not reader.is_at_stop()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return partitions of the runs of a batch, after making sure that they are still leased.

        Raises: PipeLostError: others have some of it, because the lease ended while no stream ran.
        """
        if start == end:
            return []
        runs = _runs(end)
        lost = self._open().hold(runs)
        if lost:
            self._tell_lost(lost)
        groups: list[list[LeasedRun]] = []
        room = 0
        for run in runs:
            if run not in lost:
                if run.count > room:
                    groups.append([])
                    room = PARTITION_MESSAGES
                groups[-1].append(run)
                room -= run.count
        return [RunsPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some runs; runs in an executor."""
        if not isinstance(partition, RunsPartition):
            raise TypeError(f"{partition!r} is not a partition of this reader's")
        target, holder = self._options.target, tag(self._options.reader)
        storage = open_store(target.url).storage
        rows = RowBuilder(to_arrow_schema(self._schema, timezone="UTC"))
        for run in partition.runs:
            for batch in read_leased(storage, run):
                rows.add_leased(target.queue, run, holder, batch)
                if rows.is_full:
                    yield from rows.take()
        yield from rows.take()

    def commit(self, end: Offset) -> None:
        """Commit a batch that is done; Spark says so more than once."""
        if end != self._committed:
            self._open().commit(_runs(end))
            self._committed = end

    def stop(self) -> None:
        """Give the claims up; what is leased stays so, for the next start of this stream."""
        if self._reader:
            self._reader.close()

    def _open(self) -> RunReader:
        if self._reader is None:
            target = self._options.target
            queue = open_store(target.url).find_queue(target.queue)
            self._reader = queue.run_reader(self._options.reader, lease=self._options.lease)
            self._parent = os.getppid()
            if threading.current_thread() is threading.main_thread():
                # Spark ends its planner by this signal: then `stop` is called, and the next start need not
                # wait until the session of a dead process is over.
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
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
                "in the sink already is then there twice), and give the stream a longer 'lease'"
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
