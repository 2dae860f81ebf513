"""What is known of a queue's record, and what a change is told, where the database falls silent."""

import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from support.clocks import HandClock
from support.slow_ports import Delay, Slow

from cassq.catalog.cached_record import REFRESH_S, CachedRecord
from cassq.errors import OutcomeUnknownError, QueueNotFoundError, StorageUnavailableError
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


@pytest.mark.parametrize("seconds", [0.5, 1.5, 30.0])
def test_a_pause_is_noticed_a_second_after_an_answer_that_took_long(storage, record, seconds):
    # Given a look whose answer did not know of the pause yet
    clock = HandClock()
    slow = Slow(storage, lambda passed: setattr(clock, "seconds", clock.seconds + passed))
    cached = CachedRecord(slow, record, clock)
    paused = replace(record, state=QueueState.PAUSED, op=new_token())
    meanwhile = partial(storage.change_queue, record, paused)
    slow.delay(0, Delay(back_s=seconds, meanwhile=meanwhile))
    clock.seconds += REFRESH_S
    assert cached.may_take()
    assert slow.calls == ["glance_queue"]
    # When a second has passed
    clock.seconds += REFRESH_S
    # Then it is seen
    assert not cached.may_take()


class Away:
    """A storage whose first glances at a record, so many as a test says, are not answered."""

    def __init__(self, storage, failures):
        self._storage = storage
        self._failures = failures

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def glance_queue(self, name):
        if self._failures:
            self._failures -= 1
            raise StorageUnavailableError("no node answers")
        return self._storage.glance_queue(name)


def test_a_look_that_failed_is_made_again_when_the_next_one_is_due(storage, record):
    # Given a record at which nobody could look once, and which was paused since
    clock = HandClock()
    cached = CachedRecord(Away(storage, failures=1), record, clock)
    clock.seconds += REFRESH_S
    assert cached.may_take()
    assert storage.change_queue(record, replace(record, state=QueueState.PAUSED, op=new_token()))
    # When the next look is due
    clock.seconds += REFRESH_S
    # Then it is seen
    assert not cached.may_take()


def is_open(cached):
    try:
        cached.check_open()
    except QueueNotFoundError:
        return False
    return True


def test_who_would_acknowledge_hears_that_nobody_could_look_and_looks_again_at_once(storage, record):
    # Given a record at which nobody could look once, and whose queue was deleted a second ago
    clock = HandClock()
    cached = CachedRecord(Away(storage, failures=1), record, clock)
    assert storage.change_queue(record, delete(replace(record, op=new_token())))
    clock.seconds += REFRESH_S
    # When a pusher asks
    with pytest.raises(StorageUnavailableError):
        cached.check_open()
    # Then what was known counts no more
    assert not is_open(cached)


def test_who_only_takes_goes_on_while_nobody_can_look_and_looks_once_a_second(storage, record):
    clock = HandClock()
    away = Slow(Away(storage, failures=1000), lambda _: None)
    cached = CachedRecord(away, record, clock)
    for _ in range(40):
        clock.seconds += REFRESH_S / 4
        assert cached.may_take()
    assert 10 <= len(away.calls) + 1 <= 11


def delete(seen):
    return replace(seen, state=QueueState.DELETED)


@pytest.mark.parametrize(("change", "ask"), [(pause, CachedRecord.may_take), (delete, is_open)])
def test_a_change_is_heard_of_though_another_thread_looks_at_that_moment(storage, record, change, ask):
    clock = HandClock()
    asking = SimpleNamespace(glance_queue=storage.glance_queue, read_queues=storage.read_queues)
    cached = CachedRecord(asking, record, clock)
    assert cached.may_take()
    assert storage.change_queue(record, change(replace(record, op=new_token())))
    clock.seconds += 60
    heard = []

    def glance(name):  # of the thread that looks first; meanwhile another one asks
        asking.glance_queue = storage.glance_queue
        other = threading.Thread(target=lambda: heard.append(ask(cached)))
        other.start()
        other.join()
        return storage.glance_queue(name)

    asking.glance_queue = glance
    is_open(cached)

    assert heard == [False]
