"""What the drivers of a stream do in a simulated history: plan a batch, work on it, die, and come again.

Owns the engine around the library's own `QueueStream`, in the order in which Spark works: it plans the batch
that is not done again, and from then on has the next batch leased, writes it down, plans it, reads it, has
the sink keep it, and notes that it is done. A driver that fails or dies is followed by another of the same
name, sometimes before it is gone.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from actors import Stage
from checkpoint import STREAM, Checkpoint, Row
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType
from scheduler import Process, Task

from cassq.bulk.leased_run import LeasedRun, read_leased
from cassq.bulk.run_reader import RunReader
from cassq.errors import CassqError, PipeLostError
from cassq.pipes.held_run import HeldRun
from cassq.queue import Queue
from cassq.spark.options import StreamOptions, Target
from cassq.spark.streaming import Offset, QueueStream
from cassq.storage.port import Storage
from cassq.verification.ledger import Kind

#: A look at a driver, by whoever starts the next one.
LOOK_S = 0.05

#: One that stands still is followed while it is there, so likely at each look.
FOLLOWED = 0.3


class ReaderStage(Stage, Protocol):
    """The history, as drivers see it."""

    checkpoint: Checkpoint
    reader_lease_s: float

    def start_driver(self, work: Callable[[Process], None]) -> tuple[Process, Task]: ...

    def say(self, words: Any, who: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """A message in a driver's hands, as `Hands` knows deliveries."""

    body: bytes
    attempt: int
    seq: int
    run: HeldRun


def supervise(stage: ReaderStage) -> None:
    """Start one driver after the other."""
    dice = stage.world.dice
    while not stage.is_over:
        process, task = stage.start_driver(partial(drive, stage))
        while not (task.is_done or process.is_dead or stage.is_over):
            stage.world.sleep(LOOK_S)
            if process.is_frozen and dice.random() < FOLLOWED:
                break
        stage.world.sleep(dice.choice((0.0, 0.0, 0.1, 0.5, 1.5)))


def drive(stage: ReaderStage, process: Process) -> None:
    """Run the stream in one process, until it fails or the history is over."""
    store, queue = stage.open(process)
    driver = _Driver(stage, process, queue, store.storage)
    try:
        driver.run()
    except PipeLostError:
        stage.checkpoint.is_skipping = True
        stage.say("cannot plan its batch again", process.name)
    except CassqError as error:
        stage.say(f"fails: {error}", process.name)
    with suppress(CassqError):
        driver.stream.stop()
    store.close()


class _Stream(QueueStream):
    """The library's own stream, on the queue of the history."""

    def __init__(self, queue: Queue, options: StreamOptions) -> None:
        super().__init__(options, StructType([]))
        self._queue = queue
        self._asked: set[UUID] = set()

    def _open(self) -> RunReader:
        if self._reader is None:
            reader = self._queue.run_reader(self._options.reader, lease=self._options.lease)
            hold = reader.hold

            def hold_and_tell(runs: list[LeasedRun]) -> list[LeasedRun]:
                self._asked.update(run.lease_id for run in runs)
                return hold(runs)

            reader.hold = hold_and_tell  # type: ignore[method-assign]
            self._reader = reader
        return self._reader

    def held(self, run: LeasedRun) -> HeldRun | None:
        """Return the lease of a run, as the stream has it."""
        return self._open()._leases.held_of(run)

    def left_s(self, run: LeasedRun) -> float:
        """Return for how long a run that was planned is leased, as far as the stream knows."""
        held = self.held(run)
        if held:
            return held.left_s
        # One that was lost again meanwhile is known to be; one that nobody asked for is taken for leased.
        return float("-inf") if run.lease_id in self._asked else self._options.lease.total_seconds()


class _Driver:
    """One process of the stream, as an engine runs it."""

    def __init__(self, stage: ReaderStage, process: Process, queue: Queue, storage: Storage) -> None:
        self._stage = stage
        self._dice = stage.world.dice
        self._name = process.name
        self._storage = storage
        self._checkpoint = stage.checkpoint
        lease = timedelta(seconds=stage.reader_lease_s)
        target, is_skipping = Target("simulated:", "q"), self._checkpoint.is_skipping
        options = StreamOptions(target, "orders", 100, lease, is_skipping=is_skipping)
        self.stream = _Stream(queue, options)

    def run(self) -> None:
        """Finish the batch that was written down last, then go on, until another driver did."""
        batch = self._checkpoint.last
        self._rest()
        if batch and batch not in self._checkpoint.done:
            self._work_on(batch)
        while not self._stage.is_over:
            start = self._offset(batch)
            end = self.stream.latestOffset(start, ReadMaxRows(self._dice.choice((1, 3, 100))))
            if end == start:
                self._stage.world.sleep(self._dice.choice((0.02, 0.1, 0.3)))
                continue
            batch += 1
            self._rest()
            if not self._checkpoint.write(batch, json.dumps(end)):
                self._stage.say(f"finds that another wrote batch {batch} down", self._name)
                return
            self._stage.say(f"writes batch {batch} down", self._name)
            self._rest()
            if self._dice.random() < 0.5:
                self.stream.commit(start)
            self._work_on(batch)

    def _rest(self) -> None:
        """Let others come in between."""
        self._stage.world.sleep(self._dice.choice((0.0, 0.0, 0.01, 0.1)))

    def _offset(self, batch: int) -> Offset:
        written = self._checkpoint.read(batch)
        return json.loads(written) if written else self.stream.initialOffset()

    def _work_on(self, batch: int) -> None:
        """Plan and read a batch, have the sink keep it, and note that it is done."""
        parts = self.stream.partitions(self._offset(batch - 1), self._offset(batch))
        runs = [run for part in parts for run in part.runs]
        ends_at = [self._stage.world.now + self.stream.left_s(run) for run in runs]
        rows: list[Row] = []
        for run, until in zip(runs, ends_at, strict=True):
            found = list(self._read(run))
            self._note(batch, run, until, found)
            rows += found
        self._stage.world.sleep(self._dice.choice((0.0, 0.0, 0.1, 0.5)))
        if self._checkpoint.keep(batch, rows):
            self._stage.say(f"the sink keeps batch {batch}", self._name)
            for row in rows:
                self._stage.note(STREAM, Kind.COMMITTING, [row.words], attempt=row.attempt)
        self._rest()
        self._checkpoint.done.add(batch)
        self._stage.say(f"notes that batch {batch} is done", self._name)

    def _read(self, run: LeasedRun) -> Iterator[Row]:
        for batch in read_leased(self._storage, run):
            for place, body in enumerate(batch.bodies):
                yield Row((run.pipe, batch.first + place), body, run.attempt)

    def _note(self, batch: int, run: LeasedRun, until: float, rows: list[Row]) -> None:
        """Note what a batch has: a delivery, or, when it is worked on again, a lease that begins anew."""
        for row in rows:
            kind = Kind.DELIVERED if self._checkpoint.is_new(batch, row) else Kind.EXTENDED
            words = f"{self._name}, batch {batch}"
            self._stage.note(STREAM, kind, [row.words], attempt=row.attempt, until=until, words=words)
        held = self.stream.held(run)
        if held:
            readings = [Reading(row.body, row.attempt, row.place[1], held) for row in rows]
            self._stage.hands.give(STREAM, readings)
            self._stage.hands.group(readings)
