"""The clearing of a deleted queue, and a new one of its name that is created meanwhile."""

from dataclasses import replace

from support.clocks import HandClock
from support.contexts import context_of

from cassq.bulk.occurrences import Occurrences
from cassq.bulk.schedules import Schedules
from cassq.catalog.queue_catalog import QueueCatalog
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.queue_record import QueueState
from cassq.model.shelf import MOVING, Shelf
from cassq.storage.sqlite.storage import SqliteStorage


class Meanwhile:
    """A storage in which something happens just before the list of live pipes is read."""

    def __init__(self, storage, happen):
        self._storage = storage
        self._happen = [happen]

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def list_pipes(self, queue, *, shelf=Shelf.READY):
        if shelf is Shelf.READY and self._happen:
            self._happen.pop()()
        return self._storage.list_pipes(queue, shelf=shelf)


def test_no_pipe_of_a_new_queue_is_cleared_with_the_one_that_was_deleted():
    storage = SqliteStorage(None, is_synced=False, clock=HandClock())
    catalog = QueueCatalog(storage)
    first = catalog.ensure("q", {})
    deleted = replace(first, state=QueueState.DELETED, op=new_token())
    assert storage.change_queue(first, deleted)
    entry = PipeEntry(new_pipe_id(), "a pusher")

    def create_and_push():
        assert catalog.ensure("q", {}).incarnation != first.incarnation
        storage.create_pipe("q", entry, Head(op=new_token()))
        storage.append(entry.pipe, Batch(1, (b"new",), None, 1))

    assert QueueCatalog(Meanwhile(storage, create_and_push)).clear(deleted) == 0

    assert [each.pipe for each in storage.list_pipes("q").entries] == [entry.pipe]
    assert storage.load_pipe(entry.pipe) is not None
    storage.close()


class Afterwards(Meanwhile):
    """One in which it happens as soon as all lists were read."""

    def list_pipes(self, queue, since=None, *, shelf=Shelf.READY, until=None):
        listing = self._storage.list_pipes(queue, since, shelf=shelf, until=until)
        if shelf is MOVING[-1] and self._happen:
            self._happen.pop()()
        return listing


def test_the_slots_of_a_deleted_queue_go_with_it():
    storage = SqliteStorage(None, is_synced=False)
    made = QueueCatalog(storage).ensure("q", {})
    stands = replace(made, settings=replace(made.settings, others={"uses_keys": 1}), op=new_token())
    assert storage.change_queue(made, stands)
    assert storage.change_slot(made.incarnation, 3, None, new_token())
    deleted = replace(stands, state=QueueState.DELETED, op=new_token())
    assert storage.change_queue(stands, deleted)

    QueueCatalog(storage).clear(deleted)

    assert storage.read_slot(made.incarnation, 3) is None
    storage.close()


def test_nothing_is_pushed_of_a_schedule_once_the_lists_of_a_deleted_queue_are_read():
    clock = HandClock()
    storage = SqliteStorage(None, is_synced=False, clock=clock)
    coordinator = LocalCoordinator(None, clock)
    settings = QueueCatalog(storage).ensure("q", {}).settings
    context = context_of(storage, settings, clock, coordinator=coordinator)
    Schedules(context, lambda: None).set("tick", "* * * * * *", b"tick")
    stands = storage.read_queues("q")[0]
    deleted = replace(stands, state=QueueState.DELETED, op=new_token())
    assert storage.change_queue(stands, deleted)
    keeper = Occurrences(context, "a keeper that has not heard of it")
    now_ms = storage.list_pipes("q").now_ms
    near, _ = keeper.near(now_ms)

    QueueCatalog(Afterwards(storage, lambda: [keeper.push(each, now_ms) for each in near])).clear(deleted)

    assert len(near) == 1
    assert [entry for shelf in MOVING for entry in storage.list_pipes("q", shelf=shelf).entries] == []
    storage.close()
    coordinator.close()
