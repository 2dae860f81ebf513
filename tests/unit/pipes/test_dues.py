"""How far an owner takes of messages that are due at different times."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.owned_scene import SKEW_S, Scene, numbers

from cassq.model.ids import new_token
from cassq.model.message import Batch
from cassq.model.pipe import End, Mark
from cassq.model.schedule import SOON
from cassq.model.shelf import Shelf
from cassq.model.transaction import Cancel, Seal, Transaction
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return

PILE = SOON + 1
AHEAD_MS = 2000


class DueScene(Scene):
    """A pipe of messages that are due, listed as it would be."""

    due_class = PILE

    def due(self, *leads_s):
        """Push a batch, of a message for each lead from now."""
        now_ms = self.storage.list_pipes("q").now_ms
        dues = tuple(now_ms + round(1000 * lead_s) for lead_s in leads_s)
        bodies = tuple(b"%d" % (self.pushed + place) for place in range(1, len(dues) + 1))
        self.storage.append(self.pipe, Batch(self.pushed + 1, bodies, None, len(dues), dues=dues))
        self.pushed += len(dues)

    def own(self):
        entry = replace(self.entry, due_class=self.due_class, shelf=Shelf.DUE)
        return OwnedPipe(self.context, entry, self.storage.load_pipe(self.pipe), Taker("a popper"))

    def ahead(self, owned=None):
        self.owned = owned or self.own()
        self.owned.horizon.ahead_ms = AHEAD_MS
        return self.owned


@pytest.fixture
def scene():
    return DueScene()


def test_a_sorted_pipe_is_taken_up_to_the_first_that_is_not_near(scene):
    scene.due(0, 0.5, 1.9, 2.1, 5)
    scene.due(6, 7)
    scene.ahead()
    assert scene.take(100) == [1, 2, 3]
    assert not scene.owned.may_have_more
    assert scene.take(100) == []
    assert scene.owned.next_due() == pytest.approx(0.1)
    scene.clock.seconds += 0.11
    assert scene.take(100) == [4]
    scene.clock.seconds += 10
    assert scene.take(100) == [5, 6, 7]


def test_what_has_come_near_since_the_take_may_be_taken_now_whatever_is_out(scene):
    scene.due(0, 2.001)
    scene.ahead()
    assert scene.take(100) == [1]
    assert scene.owned.next_due() == pytest.approx(0.001, abs=0.001)

    scene.clock.seconds += 0.01

    assert scene.owned.next_due() == 0
    assert scene.take(100) == [2]
    assert scene.owned.next_due() > 5  # a lease


def test_whoever_holds_nothing_takes_what_is_due_and_nothing_else(scene):
    scene.due(-1, 0.001, 0.5)
    assert scene.take(100) == [1]
    scene.clock.seconds += 0.1
    assert scene.take(100) == [2]
    assert scene.owned.horizon.next_ms == pytest.approx(400, abs=1)


def test_what_is_due_soon_is_taken_whole_by_who_holds_it(scene):
    scene.due_class = SOON
    scene.due(3, 14, 0.1)
    scene.ahead()
    assert scene.take(100) == [1, 2, 3]


def test_and_in_its_order_by_who_does_not(scene):
    scene.due_class = SOON
    scene.due(-0.1, 3, 0)
    scene.owned = scene.own()
    assert scene.take(100) == [1]
    scene.clock.seconds += 3.1
    assert scene.take(100) == [2, 3]


def test_so_many_are_wanted_and_no_more(scene):
    scene.due(0, 0, 0, 9)
    scene.ahead()
    assert scene.take(2) == [1, 2]
    assert scene.owned.may_have_more
    assert scene.take(2) == [3]


def test_of_what_came_back_no_more_is_taken_than_is_near(scene):
    # Given a run over several batches that went back before most of it was due
    for begin in range(0, 40, 10):
        scene.due(*range(begin, begin + 10))
    scene.due_class = SOON
    scene.ahead()
    scene.take_back(1, 40, Return(is_counted=False))
    # When somebody takes it who holds nothing
    scene.due_class = PILE
    scene.owned = scene.own()
    scene.clock.seconds += 14.5
    assert scene.take(100) == list(range(1, 16))
    # Then the rest comes in its time, and its rows tell where to read it
    scene.clock.seconds += 7
    scene.owned = scene.own()
    assert scene.take(100) == list(range(16, 23))
    runs = scene.storage.load_pipe(scene.pipe).runs
    assert [(run.first, run.read_from) for run in runs] == [(1, 1), (16, 11), (23, 21)]


def test_nothing_is_damage_because_it_is_not_due(scene):
    scene.due(50)
    assert scene.storage.transact(scene.pipe, Transaction(Seal(1))).is_applied
    scene.ahead()
    assert scene.take(100) == []
    assert scene.owned.next_due() == pytest.approx(48)


def test_what_was_cancelled_before_one_that_is_not_near_is_stepped_over(scene):
    scene.due(0, 1, 50)
    cancel = Transaction(Cancel(new_token(), 2), marks=(Mark(2, 2, End.PURGED),))
    assert scene.storage.transact(scene.pipe, cancel).is_applied
    scene.ahead()
    assert scene.take(100) == [1]
    scene.take(100)
    assert scene.owned.head.cursor == 2
    assert scene.owned.horizon.next_ms > 0


def test_a_window_never_begins_where_messages_have_due_times(scene):
    scene.due(0, 0)
    scene.ahead()
    result = scene.owned.take(100, is_flowing=True)
    assert result.window is None
    assert len(result.runs) == 1


def test_messages_of_one_batch_expire_each_in_its_time(scene):
    scene.alter(ttl=timedelta(seconds=2))
    scene.due(0, 1, 10, 11)
    scene.ahead()
    scene.owned.heed_settings()
    scene.clock.seconds += 5.2 + SKEW_S
    result = scene.owned.take(100)
    assert [(taken.run.first, taken.run.last) for taken in result.dead] == [(1, 2)]
    assert numbers(result) == []
    scene.clock.seconds += 3.5
    assert scene.take(100) == [3, 4]


def test_what_came_back_expires_each_in_its_time(scene):
    scene.due_class = SOON
    scene.due(0, 1, 10, 11)
    scene.ahead()
    scene.take_back(1, 4, Return(is_counted=False))
    scene.alter(ttl=timedelta(seconds=2))
    scene.ahead()
    scene.clock.seconds += 5.2 + SKEW_S
    result = scene.owned.take(100)
    assert [(taken.run.first, taken.run.last) for taken in result.dead] == [(1, 2)]
    assert numbers(result) + scene.take(100) == [3, 4]
