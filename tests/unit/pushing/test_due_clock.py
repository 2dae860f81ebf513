"""The database's clock as a pusher reads it: at the latest."""

from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.errors import InvalidOptionError, QueueNotFoundError, StorageUnavailableError
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.label import Label
from cassq.model.queue_record import QueueRecord
from cassq.model.schedule import LEAD_MAX_S, SOON, class_of
from cassq.model.settings import QueueSettings
from cassq.pushing.due_clock import READ_S, READS_AT_FIRST, DueClock
from cassq.runtime.database_clock import DRIFT
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.storage.witnessed import witnessed

ASKED = Label(due_class=SOON)


class Slow:
    """A storage whose answers take a while, counts how often the record is read, and may fail."""

    def __init__(self, storage, clock):
        self._storage = storage
        self._clock = clock
        self.takes_s = [0.0]
        self.reads = 0
        self.does_fail = False

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def glance_queue(self, name):
        self.reads += 1
        if self.does_fail:
            raise StorageUnavailableError("planted")
        answer = self._storage.glance_queue(name)
        self._clock.seconds += self.takes_s.pop(0) if len(self.takes_s) > 1 else self.takes_s[0]
        return answer


class Scene:
    def __init__(self):
        self.clock = HandClock()
        self.storage = Slow(SqliteStorage(None, is_synced=False, clock=self.clock), self.clock)
        heard = witnessed(self.storage, self.clock, 0.5)
        heard.change_queue(None, QueueRecord("q", new_pipe_id(), QueueSettings(), new_token()))
        self.due_clock = DueClock(context_of(heard, QueueSettings(), self.clock))

    def date(self, **delay):
        return self.due_clock.dated(ASKED, timedelta(**delay), 5.0)

    @property
    def now_ms(self):
        return self.storage._storage.list_pipes("q").now_ms


@pytest.fixture
def scene():
    return Scene()


def test_a_delay_counts_from_the_latest_that_the_clock_may_show(scene):
    scene.storage.takes_s = [0.4]
    label = scene.date(seconds=2)
    assert scene.now_ms + 2000 <= label.due_ms <= scene.now_ms + 2010
    assert label.due_class == SOON


def test_before_the_first_push_the_clock_is_read_until_an_answer_is_quick(scene):
    scene.storage.takes_s = [0.4, 0.003, 0.0]
    assert scene.date(seconds=2).due_ms <= scene.now_ms + 2000 + 2
    assert scene.storage.reads == 2


def test_where_no_answer_is_quick_it_is_read_no_longer_and_later_once(scene):
    scene.storage.takes_s = [0.05]
    scene.date(seconds=2)
    assert scene.storage.reads == READS_AT_FIRST
    scene.clock.seconds += READ_S
    scene.date(seconds=2)
    assert scene.storage.reads == READS_AT_FIRST + 1


def test_a_slow_answer_makes_nothing_later_while_a_quick_one_is_known(scene):
    scene.date(seconds=2)
    scene.clock.seconds += READ_S + 1
    scene.storage.takes_s = [0.8]
    drift_ms = 1000 * DRIFT * (READ_S + 2)
    assert scene.now_ms + 2000 <= scene.date(seconds=2).due_ms <= scene.now_ms + 2000 + drift_ms + 2


def test_due_times_of_one_delay_never_go_back_though_the_clock_is_known_better(scene):
    scene.storage.takes_s = [0.4]
    dues = [scene.date(seconds=2).due_ms]
    scene.clock.seconds += READ_S + 1
    scene.storage.takes_s = [0.3, 0.0]
    dues.append(scene.date(seconds=2).due_ms)
    scene.due_clock._storage.glance_queue("q")  # as anybody does who looks at the record
    for _ in range(5):
        dues.append(scene.date(seconds=2).due_ms)
        scene.clock.seconds += 0.1
    assert dues == sorted(dues)
    assert dues[2] == dues[1]
    assert dues[-1] <= scene.now_ms + 2000 + 2


def test_a_clock_that_was_set_back_is_followed(scene):
    scene.date(seconds=2)
    scene.storage._storage._file._store_clock._offset_ms -= 60_000
    scene.clock.seconds += READ_S + 1
    assert scene.now_ms + 2000 <= scene.date(seconds=2).due_ms <= scene.now_ms + 2010


def test_the_clock_is_read_again_only_after_a_while_and_runs_on_meanwhile(scene):
    for _ in range(3):
        label = scene.date(seconds=30)
        assert scene.now_ms + 30_000 <= label.due_ms <= scene.now_ms + 30_001 + 1000 * DRIFT * READ_S + 1
        scene.clock.seconds += READ_S / 3
    assert scene.storage.reads == 1  # it was quick
    scene.clock.seconds += READ_S
    scene.date(seconds=1)
    assert scene.storage.reads == 2


def test_a_pause_that_a_witness_tells_counts(scene):
    scene.date(seconds=1)
    scene.clock.missed += 5.0
    assert scene.due_clock.latest_ms() >= scene.now_ms + 5000


def test_an_outage_is_no_error_while_a_reading_is_at_hand(scene):
    scene.storage.does_fail = True
    with pytest.raises(StorageUnavailableError):
        scene.date(seconds=1)
    scene.storage.does_fail = False
    scene.date(seconds=1)
    scene.storage.does_fail = True
    scene.clock.seconds += 60
    assert scene.date(seconds=1).due_ms >= scene.now_ms + 1000


@pytest.mark.parametrize("was_read", [False, True])
def test_a_queue_that_is_gone_has_none(scene, was_read):
    if was_read:
        scene.date(seconds=1)
        scene.clock.seconds += READ_S + 1
    scene.storage._storage.glance_queue = lambda _: None
    with pytest.raises(QueueNotFoundError, match="'q' is gone"):
        scene.date(seconds=1)


def test_five_years_are_the_most(scene):
    assert scene.date(seconds=LEAD_MAX_S).due_class == class_of(LEAD_MAX_S)
    with pytest.raises(InvalidOptionError, match="1830"):
        scene.date(seconds=LEAD_MAX_S + 60)


def test_a_due_time_in_the_past_is_soon(scene):
    assert scene.due_clock.dated(ASKED._replace(due_ms=5), None, 5.0) == ASKED._replace(due_ms=5)
