"""A node misses a deletion, and comes back when nobody remembers it: what was deleted is listed again.

Entries of both lists, of what was published, consumed, discarded or never decided. Whatever passes by must
take no message away, bring none back, and leave nothing behind.
"""

import time
from dataclasses import replace

import pytest
from cluster import Cluster, Odds
from scheduler import World
from session import DirectSession

from cassq.bulk.writers import ONCE
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import OutcomeUnknownError, PipeLostError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.pipe import Head, PipeEntry
from cassq.model.shelf import Shelf
from cassq.model.transaction import Seal, Transaction
from cassq.runtime.clock import SystemClock
from cassq.storage.cassandra import lists, rows
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.storage import CassandraStorage
from cassq.store import Adapters, Store

BODIES = [f"{number}".encode() for number in range(5)]
WRITERS = ["loader", f"{ONCE}{new_pipe_id()}"]


@pytest.fixture
def cluster():
    odds = Odds(missed=1.0, slow_replica=0.0)
    return Cluster(World(1), odds=odds, skews_ms=(0, 0, 0), timeout_s=1)


@pytest.fixture
def session(cluster):
    began = time.monotonic()
    return DirectSession(cluster, lambda: time.monotonic() - began)


@pytest.fixture
def storage(session):
    return CassandraStorage(session)


@pytest.fixture
def store(storage):
    clock = SystemClock()
    coordinator = LocalCoordinator(None, clock)
    with Store("a cluster", Adapters(storage, coordinator, coordinator.close), clock=clock) as opened:
        yield opened


@pytest.fixture
def queue(store):
    return store.queue("q")


@pytest.fixture
def forget(cluster, storage):
    """Let one node miss all deletions in the lists, until they are forgotten; ask until it answers."""

    def begin():
        cluster.replicas[2].is_up = False

    def end():
        for replica in cluster.replicas:
            for table in ("pipes", "staged"):
                replica.compact(table)
        cluster.replicas[2].is_up = True
        found = set()
        for _ in range(30):  # each asks two of three nodes
            for shelf in Shelf:
                found |= {entry.pipe for entry in storage.list_pipes("q", shelf=shelf).entries}
        return found

    return begin, end


def fill(queue, writer="loader", batch=1, task="0"):
    pipes = queue.staging.open(writer, batch, task)
    for body in BODIES:
        pipes.add(body)
    return pipes.close()


@pytest.fixture(autouse=True)
def _patient_looks(monkeypatch):
    """Let a pop wait for the end of its look, however slow the machine is."""
    monkeypatch.setattr("cassq.popping.consumer_line.LOOK_TIMEOUT_S", 120.0)


def drain(queue):
    bodies = []
    with queue.popper() as popper:
        while deliveries := popper.pop_many(100, timeout=0.2):
            popper.commit_many(deliveries)
            bodies += [delivery.body for delivery in deliveries]
    return bodies


def is_nothing_left(store, queue):
    for _ in range(3):
        store.reap()
    return not any(store.storage.list_pipes("q", shelf=each).entries for each in Shelf)


def published(queue, forget, writer="loader"):
    """Return pipes that are published, and staged again."""
    begin, end = forget
    pipes = fill(queue, writer)
    begin()
    assert queue.staging.publish(writer, 1, pipes)
    assert set(pipes) <= end()
    return pipes


class TestAStagedEntryThatComesBack:
    def test_outlives_the_pipe_of_a_batch_that_is_repeated(self, store, queue, forget):
        published(queue, forget)
        assert not queue.staging.publish("loader", 1, fill(queue, task="1"))
        assert drain(queue) == BODIES
        assert is_nothing_left(store, queue)

    def test_does_not_take_its_pipe_along_when_it_is_old(self, store, queue, forget, monkeypatch):
        published(queue, forget)
        monkeypatch.setattr("cassq.bulk.staging.KEPT_S", -1.0)
        assert queue.staging.tidy().removed == 0
        assert drain(queue) == BODIES
        assert is_nothing_left(store, queue)

    def test_does_not_take_its_pipe_along_when_it_is_discarded(self, store, queue, forget):
        writer = f"{ONCE}{new_pipe_id()}"
        pipes = published(queue, forget, writer)
        queue.staging.discard(writer, 1, pipes)
        assert queue.staging.tidy().removed == 0
        assert drain(queue) == BODIES
        assert is_nothing_left(store, queue)

    @pytest.mark.parametrize("writer", WRITERS, ids=["numbered", "once"])
    def test_does_not_say_that_its_pipe_was_not_published(self, store, queue, forget, writer):
        pipes = published(queue, forget, writer)
        assert queue.staging.publish(writer, 1, pipes)
        assert drain(queue) == BODIES
        assert is_nothing_left(store, queue)

    @pytest.mark.parametrize("writer", WRITERS, ids=["numbered", "once"])
    def test_brings_nothing_back_that_was_consumed(self, store, queue, forget, writer, monkeypatch):
        pipes = published(queue, forget, writer)
        assert drain(queue) == BODIES
        store.reap()
        monkeypatch.setattr("cassq.bulk.staged_list.TRUSTED_S", -1.0)
        with pytest.raises(OutcomeUnknownError, match="published and consumed"):
            queue.staging.publish(writer, 1, pipes)
        assert drain(queue) == []
        monkeypatch.setattr("cassq.bulk.staging.KEPT_S", -1.0)
        assert is_nothing_left(store, queue)
        assert (queue.stats().pushed, queue.stats().committed) == (5, 5)

    def test_brings_nothing_back_that_was_discarded(self, store, queue, forget, monkeypatch):
        begin, end = forget
        pipes = fill(queue)
        begin()
        queue.staging.discard("loader", 1, pipes)
        assert set(pipes) <= end()
        monkeypatch.setattr("cassq.bulk.staged_list.TRUSTED_S", -1.0)
        with pytest.raises(PipeLostError, match="published nothing"):
            queue.staging.publish("loader", 1, pipes)
        monkeypatch.setattr("cassq.bulk.staging.KEPT_S", -1.0)
        assert is_nothing_left(store, queue)

    def test_does_not_outlive_its_queue(self, store, queue, forget):
        published(queue, forget)
        store.delete_queue("q")
        again = store.queue("q")
        assert drain(again) == []
        assert is_nothing_left(store, again)


class TestALivingEntryThatComesBack:
    def test_brings_nothing_back_and_is_counted_once(self, store, queue, forget):
        begin, end = forget
        queue.push_many(BODIES)
        assert drain(queue) == BODIES
        queue.close()
        begin()
        store.reap()
        assert end()
        again = store.queue("q")
        assert drain(again) == []
        assert is_nothing_left(store, again)
        assert (again.stats().pushed, again.stats().committed) == (5, 5)


class TestAnOlderCassqBeside:
    """One that lists in `pipes` what is staged, under a shard of its own."""

    @pytest.fixture
    def older(self, storage, session):
        """A pipe that it staged."""
        entry = PipeEntry(new_pipe_id(), "loader/1/0")
        head = rows.head_values(Head(new_token()))
        session.execute_in_turn(
            [
                [(cql.INSERT_HEAD, (entry.pipe, *head))],
                [(cql.INSERT_ENTRY, ("q", lists.STAGED_SHARD, *rows.entry_values(entry)))],
            ]
        )
        storage.transact(entry.pipe, Transaction(Seal(0)))
        return entry

    def listed(self, session):
        found = session.execute(cql.READ_ENTRIES[cql.WHOLE], ("q", lists.STAGED_SHARD))
        return [rows.to_entry(row[:-1], Shelf.STAGED) for row in found]

    def test_what_it_staged_is_published(self, storage, session, queue, older):
        assert queue.staging.publish("loader", 1, [older.pipe])
        assert {entry.pipe for entry in storage.list_pipes("q").entries} == {older.pipe}
        assert self.listed(session) == []

    def test_what_it_staged_is_discarded(self, storage, session, queue, older):
        queue.staging.discard("loader", 1, [older.pipe])
        assert storage.load_pipe(older.pipe) is None
        assert self.listed(session) == []

    def test_it_finds_what_is_staged(self, storage, session, queue):
        pipes = fill(queue)
        assert {entry.pipe for entry in self.listed(session)} == set(pipes)

    def test_what_it_published_is_not_deleted(self, store, storage, session, queue):
        """It takes the copies off its list, and knows nothing of the entries."""
        pipes = fill(queue)
        record, _ = queue.staging._decide("loader", 1, pipes)
        for entry in self.listed(session):
            if entry.pipe in pipes:
                row = ("q", cql.SHARD, *rows.entry_values(entry))
                session.execute_in_turn(
                    [[(cql.INSERT_ENTRY, row)], [(cql.DELETE_ENTRY, ("q", lists.STAGED_SHARD, entry.pipe))]]
                )
        finished = {"loader": replace(record.writers["loader"], manifest=None)}
        queue.record.change(lambda seen: replace(seen, writers=finished))
        assert not queue.staging.publish("loader", 1, fill(queue, task="1"))
        assert drain(queue) == BODIES
        assert is_nothing_left(store, queue)
