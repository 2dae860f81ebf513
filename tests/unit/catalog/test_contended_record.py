"""Changes of a queue's record whose outcome nobody tells, while others change it too."""

from dataclasses import replace

import pytest

import cassq
from cassq.catalog.cached_record import CachedRecord
from cassq.errors import OutcomeUnknownError
from cassq.model.ids import new_token
from cassq.model.queue_record import Written
from cassq.runtime.clock import SystemClock


class Unanswered:
    """A storage whose first change is not answered; something happens instead of it, or after it."""

    def __init__(self, storage, happens, *, is_applied):
        self._storage = storage
        self._happens = happens
        self._is_applied = is_applied

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def change_queue(self, seen, wanted):
        happens, self._happens = self._happens, None
        if happens is None:
            return self._storage.change_queue(seen, wanted)
        if self._is_applied:
            assert self._storage.change_queue(seen, wanted)
        happens()
        raise OutcomeUnknownError("no answer")


@pytest.fixture
def storage():
    with cassq.connect("memory:") as store:
        store.queue("q")
        yield store.storage


def read(storage):
    (record,) = storage.read_queues("q")
    return record


def counted(record):
    """Add one to what a writer has written."""
    before = record.writers.get("a writer", Written(0, None))
    return replace(record, writers={"a writer": Written(before.batch + 1, None)})


def test_a_change_that_another_one_refused_is_made_all_the_same(storage):
    def change_beside():
        seen = read(storage)
        assert storage.change_queue(seen, replace(seen, op=new_token(), publications=7))

    unanswered = Unanswered(storage, change_beside, is_applied=False)
    record = CachedRecord(unanswered, read(storage), SystemClock())

    record.change(counted)

    assert read(storage).writers == {"a writer": Written(1, None)}
    assert read(storage).publications == 7


def test_a_change_that_was_applied_is_not_made_twice(storage):
    unanswered = Unanswered(storage, lambda: None, is_applied=True)
    record = CachedRecord(unanswered, read(storage), SystemClock())

    record.change(counted)

    assert read(storage).writers == {"a writer": Written(1, None)}
