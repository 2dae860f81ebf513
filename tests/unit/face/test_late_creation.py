"""A queue whose creation lands when nobody waits for it any more."""

from functools import partial

import pytest

import cassq
from cassq.catalog.queue_catalog import QueueCatalog
from cassq.errors import OutcomeUnknownError


class Late:
    """A storage that changes records later, and tells nobody."""

    def __init__(self, storage):
        self._storage = storage
        self.changes = []

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def change_queue(self, seen, wanted):
        self.changes.append(partial(self._storage.change_queue, seen, wanted))
        raise OutcomeUnknownError("no answer")


def test_a_creation_that_lands_late_does_not_undo_a_later_deletion(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    with cassq.connect(url) as slow, cassq.connect(url) as other:
        # Given a queue that was deleted, and another process that creates it anew and hears no answer
        other.queue("q")
        other.delete_queue("q")
        slow._catalog = QueueCatalog(late := Late(slow.storage))
        with pytest.raises(OutcomeUnknownError):
            slow.queue("q")
        # When others create it, and delete it once more
        other.queue("q").push(b"body")
        other.delete_queue("q")
        # Then what lands after that is refused
        assert [change() for change in late.changes] == [False] * len(late.changes)
        assert other.queues() == []
