"""Each step of several requests, stopped at any of them; another process heals what it left.

For every step and every number a fresh store: the step's process is stopped once that many requests were
carried out, or hears that the outcome of one is unknown. Then new processes come by, days later. Nothing is
lost, nothing comes twice, nothing is left behind, and the totals are exact.

On one file the requests are calls of the storage port; on the simulated cluster they are Cassandra's.
"""

import itertools
import sqlite3
import sys
import threading
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest

sys.path.append(str(Path(__file__).parents[1] / "simulation"))

from cassandra import OperationTimedOut
from cluster import Cluster, Odds
from scheduler import Process, World
from session import SimulatedSession

from cassq.bulk.leased_run import read_leased
from cassq.bulk.writers import ONCE
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import CassqError, OutcomeUnknownError, QueueNotFoundError, StorageUnavailableError
from cassq.model.ids import new_pipe_id
from cassq.model.journal import PipeEvent
from cassq.model.shelf import Shelf
from cassq.observing.inspection import MessageState
from cassq.storage.cassandra.statement import Call
from cassq.storage.cassandra.storage import CassandraStorage
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store
from cassq.topics.journal import NAME

BODIES = [f"{number}".encode() for number in range(7)]
DAY_S = 86_400.0
SETTINGS = {
    "retry_delay": timedelta(0),
    "pipe_messages_max": 3,
    "lease": timedelta(seconds=20),
    "push_age_max": timedelta(seconds=20),
    "push_grace": timedelta(seconds=20),
}
WRITER = f"{ONCE}{new_pipe_id()}"


class _Stopped(BaseException):
    """The process is gone."""


class _Clock:
    """Time that passes when somebody says so, or waits in the thread that plays."""

    def __init__(self):
        self.at = 1000.0
        self._player = threading.get_ident()

    def now(self):
        return self.at

    def latest(self):
        return self.at

    def hear(self, told_s, asked_at, margin_s):
        """Nobody pauses this machine, and nothing here is due later."""

    def until_shown(self, database_ms):
        return database_ms / 1000

    def wait(self, condition, seconds):
        if threading.get_ident() == self._player and seconds is not None:
            self.at += seconds
            condition.wait(0.001)
        else:
            condition.wait(0.05)


@dataclass
class _Fault:
    """What happens to a process at a request of its main thread.

    Attributes:
        kind: "stops", behind it; "unknown", of one that was carried out; "lost", of one that was not.
        left: so many requests are carried out before.
    """

    kind: str
    left: int
    is_over: bool = False
    is_dead: bool = False

    def __post_init__(self):
        self._player = threading.get_ident()

    def around(self, request, unknown):
        if threading.get_ident() != self._player:
            if self.is_dead:
                raise StorageUnavailableError("the process is gone")
            return request()
        if self.is_dead:
            raise _Stopped
        if self.is_over or self.left:
            self.left -= 1
            return request()
        self.is_over = True
        if self.kind == "lost":
            raise unknown
        request()
        if self.kind == "unknown":
            raise unknown
        self.is_dead = True
        raise _Stopped


class _FaultyPort:
    """A storage whose calls are the requests."""

    def __init__(self, inner, fault):
        self._inner = inner
        self._fault = fault

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        reads = name.startswith(("read", "load", "list", "glance"))
        error = (StorageUnavailableError if reads else OutcomeUnknownError)("no answer")
        return lambda *a, **k: self._fault.around(lambda: call(*a, **k), error)


class _Answered:
    def __init__(self, answer):
        self._answer = answer

    def result(self):
        return self._answer


class _FaultySession(SimulatedSession):
    """Answers at once, without a scheduler."""

    def __init__(self, cluster, clock, fault):
        super().__init__(cluster, Process("test"))
        self._clock = clock
        self._fault = fault
        self._one_at_a_time = threading.Lock()

    def _send_together(self, work):
        return self._send_all(work[0][0].call, [self._bind(*each) for each in work])

    def _send(self, call, query):
        return self._send_all(call, [query])

    def _send_all(self, call, work):
        if call is Call.LOCAL:
            return _Answered(self._carry_out(call, work))
        return _Answered(self._fault.around(lambda: self._carry_out(call, work), OperationTimedOut()))

    def _carry_out(self, call, work):
        with self._one_at_a_time:
            self._cluster.world.now = self._clock.now()
            return self._cluster.execute(call, work)


class _Stage:
    """One store, and the processes that come and go."""

    def __init__(self, kind, path):
        self.clock = _Clock()
        self._path = path if kind == "file" else None
        odds = Odds(slow_replica=0.5, missed=1.0)
        self._cluster = Cluster(World(1), odds=odds, skews_ms=(0, 0, 0), timeout_s=1)
        self.told = None

    def open(self, fault=None):
        """Return the store of a new process."""
        fault = fault or _Fault("none", sys.maxsize)
        coordinator = LocalCoordinator(None, self.clock)
        if self._path:
            inner = SqliteStorage(str(self._path), is_synced=False, clock=self.clock)
            storage, close = _FaultyPort(inner, fault), inner.close
        else:
            storage = CassandraStorage(_FaultySession(self._cluster, self.clock, fault))
            close = storage.close

        def close_all():
            coordinator.close()
            close()

        return Store("test", Adapters(storage, coordinator, close_all), clock=self.clock)

    def leftovers(self):
        """Return what can still be read of pipes that nobody lists."""
        if not self._path:
            return self._cluster.leftovers()
        with closing(sqlite3.connect(self._path)) as db:
            tables = ("waiting", "heads", "runs", "marks")
            return [row for table in tables for row in db.execute(f"SELECT * FROM {table}")]

    def heal(self):
        """Let days pass and other processes come by; return what they pop."""
        bodies = []
        for _ in range(4):
            self.clock.at += DAY_S
            with self.open() as store:
                with suppress(QueueNotFoundError):
                    bodies += drain(store.find_queue("q"))
                store.reap()
        return bodies


def drain(queue):
    """Take and commit everything, in this thread alone; return the bodies."""
    reader = queue.run_reader("drain", lease=timedelta(minutes=1))
    runs = reader.take(None)
    batches = [batch for run in runs for batch in read_leased(queue._context.storage, run)]
    reader.commit(runs)
    reader.close()
    return [body for batch in batches for body in batch.bodies]


def fill(queue, writer="loader"):
    pipes = queue.staging.open(writer, 1, "0")
    for body in BODIES:
        pipes.add(body)
    return pipes.close()


# Each step: what stands before it, itself, and what must be true of what is popped afterwards.


class Write:
    """A batch of a numbered writer, which another process repeats."""

    writer = "loader"

    def before(self, stage, queue):
        pass

    def step(self, stage, store):
        queue = store.find_queue("q")
        assert queue.staging.publish(self.writer, 1, fill(queue, self.writer))
        return True

    def after(self, stage):
        with stage.open() as store:
            queue = store.find_queue("q")
            queue.staging.publish(self.writer, 1, fill(queue, self.writer))

    def judge(self, stage, bodies, is_done):
        assert sorted(bodies) == BODIES


class WriteOnce(Write):
    """A batch of a writer that has no other, which nobody repeats."""

    writer = WRITER

    def after(self, stage):
        pass

    def judge(self, stage, bodies, is_done):
        assert sorted(bodies) == BODIES or (not is_done and bodies == [])


class Discard(Write):
    """A batch that failed."""

    def before(self, stage, queue):
        self.pipes = fill(queue, self.writer)

    def step(self, stage, store):
        store.find_queue("q").staging.discard(self.writer, 1, self.pipes)
        return True

    def after(self, stage):
        pass

    def judge(self, stage, bodies, is_done):
        assert bodies == []


class DiscardOnce(Discard):
    writer = WRITER


class Tidy(Discard):
    """One batch that was decided and not published, one that was never decided, and both are old."""

    def before(self, stage, queue):
        queue.staging._decide(self.writer, 1, fill(queue, self.writer))
        fill(queue, "other")
        stage.clock.at += 3 * DAY_S

    def step(self, stage, store):
        store.reap()
        return True

    def judge(self, stage, bodies, is_done):
        assert sorted(bodies) == BODIES


class Retire(Tidy):
    """Pipes of which all has ended."""

    def before(self, stage, queue):
        queue.push_many(BODIES)
        self.popped = drain(queue)

    def judge(self, stage, bodies, is_done):
        assert sorted(self.popped + bodies) == BODIES


class RetireJournaled(Retire):
    """The same in a queue that keeps a journal: each pipe has one event."""

    settings: ClassVar = {"journal": "outline"}

    def before(self, stage, queue):
        self.ids = queue.push_many(BODIES)
        self.popped = drain(queue)

    def judge(self, stage, bodies, is_done):
        super().judge(stage, bodies, is_done)
        with stage.open() as store:
            assert {store.history(each).status.state for each in self.ids} == {MessageState.COMMITTED}
            reader, told = store.find_topic(NAME).reader(), Counter()
            while found := reader.read_many(1000):
                told.update(PipeEvent.from_body(each.body).pipe for each in found)
        assert told == dict.fromkeys({each.pipe for each in self.ids}, 1)


class Hold(Tidy):
    """Leases that a reader wrote down before it died."""

    def before(self, stage, queue):
        queue.push_many(BODIES)
        self.written = queue.run_reader("r", lease=timedelta(hours=12)).take(None)

    def step(self, stage, store):
        reader = store.find_queue("q").run_reader("r", lease=timedelta(hours=12))
        assert reader.hold(self.written) == []
        reader.commit(self.written)
        return True

    def after(self, stage):
        with stage.open() as store:
            reader = store.find_queue("q").run_reader("r", lease=timedelta(hours=12))
            reader.hold(self.written)
            reader.commit(self.written)

    def judge(self, stage, bodies, is_done):
        assert bodies == []


class Adopt(Hold):
    """Leases that a reader did not write down before it died."""

    def step(self, stage, store):
        reader = store.find_queue("q").run_reader("r", lease=timedelta(hours=12))
        adopted = reader.adopt([])
        reader.commit(adopted)
        return True

    def after(self, stage):
        with stage.open() as store:
            reader = store.find_queue("q").run_reader("r", lease=timedelta(hours=12))
            reader.commit(reader.adopt([]))


class Bury(Tidy):
    """Messages whose attempts are used up."""

    is_mortal = True

    def before(self, stage, queue):
        queue.push_many(BODIES)
        reader = queue.run_reader("r", lease=timedelta(seconds=1))
        assert reader.take(None)
        reader.close()
        stage.clock.at += 100

    def step(self, stage, store):
        store.find_queue("q").run_reader("r2", lease=timedelta(seconds=1)).take(None)
        return True

    def judge(self, stage, bodies, is_done):
        with stage.open() as store:
            assert sorted(letter.body for letter in store.find_queue("q").dead) == BODIES
        assert bodies == []


class PutBack(Bury):
    """Dead letters that are pushed again: what was stopped in between may be in both places."""

    def before(self, stage, queue):
        super().before(stage, queue)
        reader = queue.run_reader("r2", lease=timedelta(seconds=1))
        while len(list(queue.dead)) < len(BODIES):
            reader.take(None)
            stage.clock.at += 1  # it looks again no sooner

    def step(self, stage, store):
        store.find_queue("q").dead.put_back()
        return True

    def judge(self, stage, bodies, is_done):
        with stage.open() as store:
            left = [letter.body for letter in store.find_queue("q").dead]
        assert set(bodies + left) == set(BODIES)
        if is_done:
            assert (sorted(bodies), left) == (BODIES, [])


class DeleteQueue(Tidy):
    """A queue with messages, staged pipes and a decided batch."""

    def before(self, stage, queue):
        queue.push_many(BODIES)
        fill(queue, "other")
        queue.staging._decide(self.writer, 1, fill(queue, self.writer))

    def step(self, stage, store):
        store.delete_queue("q")
        return True

    def after(self, stage):
        with stage.open() as store, suppress(QueueNotFoundError):
            store.delete_queue("q")

    def judge(self, stage, bodies, is_done):
        assert bodies == []
        with stage.open() as store:
            assert drain(store.queue("q")) == []


STEPS = [Write, WriteOnce, Discard, DiscardOnce, Tidy, Retire, RetireJournaled, Hold, Adopt, Bury, PutBack]
STEPS += [DeleteQueue]
ON_CLUSTER = [Write, WriteOnce, DiscardOnce, Tidy, Retire, RetireJournaled, DeleteQueue]


def play(kind, path, scene, fault):
    """Play one scene; return whether its step came to its end before the fault."""
    stage = _Stage(kind, path)
    settings = SETTINGS | ({"max_attempts": 1} if getattr(scene, "is_mortal", False) else {})
    settings |= getattr(scene, "settings", {})
    with stage.open() as store:
        scene.before(stage, store.queue("q", **settings))
    process = stage.open(fault)
    is_done = False
    try:
        is_done = scene.step(stage, process)
    except (CassqError, _Stopped):
        pass
    finally:
        was_hit = fault.is_over
        fault.is_dead = True  # nothing more is written by it
        with suppress(CassqError, _Stopped):
            process.close()
    scene.after(stage)
    bodies = stage.heal()
    scene.judge(stage, bodies, is_done)
    with stage.open() as store:
        for shelf in Shelf:
            assert store.storage.list_pipes("q", shelf=shelf).entries == ()
        with suppress(QueueNotFoundError):
            stats = store.find_queue("q").stats()
            assert stats.pushed == stats.committed + stats.dead + stats.purged
            assert (stats.waiting, stats.pending) == (0, 0)
    assert stage.leftovers() == []
    return not was_hit


@pytest.mark.parametrize("kind", ["stops", "unknown", "lost"])
@pytest.mark.parametrize(
    ("store_kind", "make"),
    [("file", step) for step in STEPS] + [("cluster", step) for step in ON_CLUSTER],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_step_that_is_stopped_anywhere_is_healed(store_kind, make, kind, tmp_path):
    for number in itertools.count():
        if play(store_kind, tmp_path / f"{number}.db", make(), _Fault(kind, number)):
            return
