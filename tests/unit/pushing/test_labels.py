"""What callers ask for a message, made ready: the record tells of it first, and delays are dated."""

from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.catalog.first_uses import FirstUses
from cassq.errors import ClosedError, InvalidOptionError
from cassq.model.ids import new_token
from cassq.model.label import UNLABELLED
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.model.uses import uses_due, uses_priority
from cassq.pushing.due_clock import DueClock
from cassq.pushing.labels import Labels
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.storage.witnessed import witnessed

TIMEOUT = 5.0


class Scene:
    def __init__(self):
        clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=clock)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), QueueSettings(), new_token()))
        self.context = context_of(witnessed(self.storage, clock, 1.0), QueueSettings(), clock)
        self.is_closed = False
        uses = FirstUses(self.context.record, clock, lambda: False)
        self.labels = Labels(self.context, uses, DueClock(self.context), self.check_usable)

    def check_usable(self):
        if self.is_closed:
            raise ClosedError("closed")

    @property
    def stored(self):
        return self.storage.read_queues("q")[0].settings


@pytest.fixture
def scene():
    scene = Scene()
    yield scene
    scene.storage.close()


def test_the_record_tells_of_a_priority_before_there_is_a_message_with_one(scene):
    assert not scene.labels.is_ready({"priority": 3})
    assert scene.labels.of_push({"priority": 3}, TIMEOUT).priority == 3
    assert uses_priority(scene.stored)
    assert scene.labels.is_ready({"priority": 3})


def test_a_delay_is_a_due_time(scene):
    label = scene.labels.of_push({"delay": timedelta(seconds=9)}, TIMEOUT)
    assert label.due_class
    assert label.due_ms - scene.context.clock.database_at_most_ms() == pytest.approx(9000, abs=1)
    assert uses_due(scene.stored)


def test_a_push_without_a_delay_has_no_due_time(scene):
    assert scene.labels.of_push({"delay": timedelta(0)}, TIMEOUT) == UNLABELLED
    assert not uses_due(scene.stored)


@pytest.mark.parametrize("delay_s", [0, 9])
def test_a_move_may_be_for_at_once_or_for_later(scene, delay_s):
    label = scene.labels.of_move({"delay": timedelta(seconds=delay_s), "due": None}, TIMEOUT)
    now_ms = scene.context.clock.database_at_most_ms()
    assert label.due_ms == pytest.approx(now_ms + 9000 if delay_s else 0, abs=1)
    assert uses_due(scene.stored)


def test_a_move_to_another_priority_leaves_the_due_time(scene):
    label = scene.labels.of_move({"priority": 7}, TIMEOUT)
    assert (label.priority, label.due_ms) == (7, 0)


def test_a_move_for_neither_is_refused(scene):
    with pytest.raises(InvalidOptionError, match="give a delay or a due time"):
        scene.labels.of_move({"delay": None, "due": None}, TIMEOUT)
    assert not uses_due(scene.stored)


@pytest.mark.parametrize("kind", ["of_push", "of_move"])
def test_nothing_is_made_ready_once_the_queue_is_closed(scene, kind):
    scene.is_closed = True
    with pytest.raises(ClosedError):
        getattr(scene.labels, kind)({"priority": 1}, TIMEOUT)
    assert not uses_priority(scene.stored)
