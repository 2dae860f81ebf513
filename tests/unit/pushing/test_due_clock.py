"""The database's clock as a pusher reads it: at the latest."""

from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.errors import InvalidOptionError, StorageUnavailableError
from cassq.model.label import Label
from cassq.model.schedule import DRIFT, LEAD_MAX_S, SOON, class_of
from cassq.model.settings import QueueSettings
from cassq.pushing.due_clock import READ_S, DueClock
from cassq.storage.sqlite.storage import SqliteStorage

ASKED = Label(due_class=SOON)


class Slow:
    """A storage whose answers take a while, counts how often the lists are read, and may fail."""

    def __init__(self, storage, clock):
        self._storage = storage
        self._clock = clock
        self.takes_s = 0.0
        self.reads = 0
        self.does_fail = False

    def __getattr__(self, name):
        return getattr(self._storage, name)

    def list_pipes(self, *values, **named):
        self.reads += 1
        if self.does_fail:
            raise StorageUnavailableError("planted")
        answer = self._storage.list_pipes(*values, **named)
        self._clock.seconds += self.takes_s
        return answer


class Scene:
    def __init__(self):
        self.clock = HandClock()
        self.storage = Slow(SqliteStorage(None, is_synced=False, clock=self.clock), self.clock)
        self.due_clock = DueClock(context_of(self.storage, QueueSettings(), self.clock))

    def date(self, **delay):
        return self.due_clock.dated(ASKED, timedelta(**delay), 5.0)

    @property
    def now_ms(self):
        return self.storage._storage.list_pipes("q").now_ms


@pytest.fixture
def scene():
    return Scene()


def test_a_delay_counts_from_the_latest_that_the_clock_may_show(scene):
    scene.storage.takes_s = 0.4
    label = scene.date(seconds=2)
    assert scene.now_ms + 2000 <= label.due_ms <= scene.now_ms + 2010
    assert label.due_class == SOON


def test_the_clock_is_read_again_only_after_a_while_and_runs_on_meanwhile(scene):
    for _ in range(3):
        label = scene.date(seconds=30)
        assert scene.now_ms + 30_000 <= label.due_ms <= scene.now_ms + 30_001 + 1000 * DRIFT * READ_S + 1
        scene.clock.seconds += READ_S / 3
    assert scene.storage.reads == 1
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


def test_five_years_are_the_most(scene):
    assert scene.date(seconds=LEAD_MAX_S).due_class == class_of(LEAD_MAX_S)
    with pytest.raises(InvalidOptionError, match="1830"):
        scene.date(seconds=LEAD_MAX_S + 60)


def test_a_due_time_in_the_past_is_soon(scene):
    assert scene.due_clock.dated(ASKED._replace(due_ms=5), None, 5.0) == ASKED._replace(due_ms=5)
