"""What a change of a queue's record is told where the database falls silent."""

from dataclasses import replace

import pytest

from cassq.catalog.cached_record import CachedRecord
from cassq.errors import OutcomeUnknownError, StorageUnavailableError
from cassq.model.ids import new_token
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.settings import QueueSettings
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage


class Silent:
    """A storage that applies one change, loses the reply, and serves nobody from then on."""

    def __init__(self, storage, *, is_silent=False):
        self._storage = storage
        self._is_silent = is_silent

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def change_queue(self, seen, wanted):
        assert self._storage.change_queue(seen, wanted)
        self._is_silent = True
        raise OutcomeUnknownError("no answer")

    def read_queues(self, name):
        if self._is_silent:
            raise StorageUnavailableError("no node answers")
        return self._storage.read_queues(name)


@pytest.fixture
def storage():
    made = SqliteStorage(None, is_synced=False)
    yield made
    made.close()


@pytest.fixture
def record(storage):
    made = QueueRecord("q", new_token(), QueueSettings(), op=new_token())
    assert storage.change_queue(None, made)
    return made


def pause(seen):
    return replace(seen, state=QueueState.PAUSED)


def test_a_change_that_was_sent_is_not_told_as_refused_where_nobody_answers_after_that(storage, record):
    cached = CachedRecord(Silent(storage), record, SystemClock())

    with pytest.raises(OutcomeUnknownError, match="may have been changed: no node answers"):
        cached.change(pause)

    assert storage.glance_queue("q").state is QueueState.PAUSED


def test_a_change_that_was_not_sent_is_told_as_refused(storage, record):
    cached = CachedRecord(Silent(storage, is_silent=True), record, SystemClock())

    with pytest.raises(StorageUnavailableError):
        cached.change(pause)

    assert storage.glance_queue("q") == record
