"""The clearing of a deleted queue, and a new one of its name that is created meanwhile."""

from dataclasses import replace

from support.clocks import HandClock

from cassq.catalog.queue_catalog import QueueCatalog
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.queue_record import QueueState
from cassq.model.shelf import Shelf
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
