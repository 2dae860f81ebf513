"""A write that reached one replica only, and what reads of it may and may not decide.

A node that is lost takes with it what no quorum has. Cassandra's read repair writes back the columns that a
read named: so a read that names some only leaves a row on the others that has its number, and no bodies.
"""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from cluster import EPOCH_MS, Cluster, Odds
from cql import parse
from execution import to_mutation
from replicas import MARKER, Row
from scheduler import World
from session import DirectSession
from support.contexts import context_of

from cassq.errors import DecodeError
from cassq.limits import WINDOW_OUT
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Seal, Transaction
from cassq.pipes import window_steps
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.outside_view import find_pushed
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.runtime.clock import SystemClock
from cassq.storage.cassandra.rows import batch_values
from cassq.storage.cassandra.statements import APPEND
from cassq.storage.cassandra.storage import CassandraStorage
from cassq.storage.forms import BatchQuery

SETTINGS = QueueSettings(lease=timedelta(seconds=2), clock_skew_max=timedelta(milliseconds=10))
WHOLE = frozenset({"count", "bodies", "headers", "pushed_at", "ttl_ms"})
OUTLINE = frozenset({"count", "pushed_at"})


class HandClock(SystemClock):
    """Stands until somebody moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


@dataclass
class Scene:
    """A pipe on three replicas, of which a test chooses those that answer."""

    clock: HandClock
    cluster: Cluster
    storage: CassandraStorage
    entry: PipeEntry

    def ask(self, *replicas: int) -> None:
        """Let these answer, and no others."""
        for place, replica in enumerate(self.cluster.replicas):
            replica.is_up = place in replicas

    def write(self, replica: int, batch: Batch, *, columns: frozenset[str] = WHOLE) -> None:
        """Write a batch to one replica, as a push that times out; only some columns, as read repair may."""
        mutation = to_mutation([(parse(APPEND.cql), batch_values(self.entry.pipe, batch))], EPOCH_MS, 0)
        for key, row in mutation.rows.items():
            cells = {name: cell for name, cell in row.cells.items() if name == MARKER or name in columns}
            mutation.rows[key] = Row(cells)
        self.cluster.replicas[replica].apply(mutation)

    def columns(self, replica: int, first: int) -> set[str] | None:
        """Return which columns a replica has of a batch."""
        partition = self.cluster.replicas[replica].partition("waiting", (self.entry.pipe,))
        row = partition.rows.get((first,))
        return None if row is None else {name for name in row.cells if name}

    def own(self, holder: str, *, is_outline: bool = False) -> OwnedPipe:
        state = self.storage.load_pipe(self.entry.pipe)
        context = context_of(self.storage, SETTINGS, self.clock)
        return OwnedPipe(context, self.entry, state, Taker(holder, is_outline=is_outline))

    @property
    def head(self) -> Head:
        return self.storage.load_pipe(self.entry.pipe).head

    def seal(self, last: int, *, is_free: bool = False):
        return self.storage.transact(self.entry.pipe, Transaction(Seal(last, is_free=is_free)))


@pytest.fixture
def scene():
    clock = HandClock()
    cluster = Cluster(World(1), odds=Odds(slow_replica=0.0), skews_ms=(0, 0, 0), timeout_s=1)
    cluster.is_faulty = False
    storage = CassandraStorage(DirectSession(cluster, clock.now))
    entry = PipeEntry(new_pipe_id(), "a pusher")
    storage.create_pipe("q", entry, Head(op=new_token()))
    return Scene(clock, cluster, storage, entry)


PRECIOUS = Batch(1, (b"precious",), ({"colour": "blue"},), 1, ttl_ms=60_000)


def pass_time(scene: Scene, seconds: float) -> None:
    scene.clock.seconds += seconds


def take_by_outline(scene):
    """Take as a run reader does."""
    assert scene.own("a reader", is_outline=True).take(10).runs


def find_by_outline(scene):
    """Look how much was pushed, as a purge does."""
    assert find_pushed(scene.storage, scene.entry.pipe, scene.head) == 1


def look_for_more(scene):
    """Look whether anything is left, as a drain does."""
    assert not scene.own("a reaper").reader.is_drained(1, 0)


def take_a_window_over(scene):
    """End the window of a popper that died."""
    pass_time(scene, 1.2)
    assert window_steps.take_over(scene.own("the next popper"))


def begin_a_window(scene):
    popper = scene.own("a popper that dies")
    popper.reader.read(1, 0, 10)
    assert window_steps.begin(popper)
    assert scene.head.cursor == WINDOW_OUT


@pytest.mark.parametrize("decide", [take_by_outline, find_by_outline, look_for_more, take_a_window_over])
def test_what_a_batch_decides_by_being_there_is_whole_on_a_quorum(scene, decide):
    if decide is take_a_window_over:
        begin_a_window(scene)
    scene.write(0, PRECIOUS)

    scene.ask(0, 1)
    decide(scene)

    assert scene.columns(1, 1) == WHOLE


def test_a_push_that_a_take_over_makes_stored_outlives_a_node(scene):
    begin_a_window(scene)
    scene.write(0, PRECIOUS)
    scene.ask(0, 1)
    take_a_window_over(scene)
    scene.ask(0, 1, 2)
    assert not scene.seal(0).is_applied
    assert scene.seal(1).is_applied  # the pusher tells its caller: stored

    scene.ask(1, 2)  # one node is lost
    pass_time(scene, 3.2)
    (taken,) = scene.own("the one after").take(10).runs

    assert [(body, headers) for _, body, headers, *_ in taken.messages] == [(b"precious", {"colour": "blue"})]


def test_a_batch_without_bodies_is_not_there_yet(scene):
    scene.write(0, Batch(1, (b"before",), None, 1))
    scene.write(1, Batch(2, (b"precious",), None, 1), columns=OUTLINE)

    for is_outline in (False, True):
        for is_newest_first in (False, True):
            query = BatchQuery(
                limit=1 + is_newest_first, is_outline=is_outline, is_newest_first=is_newest_first
            )
            assert [batch.last for batch in scene.storage.read_batches(scene.entry.pipe, query)] == [1]
    assert find_pushed(scene.storage, scene.entry.pipe, scene.head) == 1
    owned = scene.own("a popper")
    assert [seq for taken in owned.take(10).runs for seq, *_ in taken.messages] == [1]
    assert owned.reader.is_drained(owned.head.read_from, owned.head.cursor)


def test_a_window_is_cut_behind_the_newest_batch_that_is_there(scene):
    begin_a_window(scene)
    scene.write(0, Batch(1, (b"handed out",), None, 1))
    scene.write(1, Batch(2, (b"precious",), None, 1), columns=OUTLINE)

    take_a_window_over(scene)

    assert scene.head.cursor == 1


def test_a_batch_without_bodies_before_a_decided_end_is_damage(scene):
    scene.write(1, PRECIOUS, columns=OUTLINE)
    assert scene.seal(1, is_free=True).is_applied

    with pytest.raises(DecodeError, match="the batch with message 1 is gone"):
        scene.own("a popper").take(10)
