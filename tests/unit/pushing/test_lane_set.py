"""The lanes of one thread, as they come and end."""

import pytest

from cassq.model.label import UNLABELLED, Label
from cassq.pushing.lane import PAUSE_MAX_S
from cassq.pushing.lane_set import CLOSE_S, TEND_S, LaneSet
from cassq.runtime.clock import SystemClock
from cassq.runtime.deadline import seconds_left


class Lane:
    """Counts how often it is tended, and knows whether it waits."""

    def __init__(self, label):
        self.next_s = 10.0 + label.priority
        self.tended = 0
        self.does_wait = True
        self.is_closed = False
        self.left_s = []

    def tend(self):
        self.tended += 1
        self.left_s.append(seconds_left(SystemClock(), float("inf")))
        return self.next_s

    def stop_waiting(self):
        self.does_wait = False

    def close(self):
        self.left_s.append(seconds_left(SystemClock(), float("inf")))
        self.is_closed = True


@pytest.fixture
def lanes():
    return LaneSet(Lane, SystemClock())


def test_each_priority_and_each_type_has_a_lane_of_its_own(lanes):
    labels = (Label(), Label(priority=9), Label(priority=4), Label(type="a"), Label(priority=4, type="a"))
    made = {label: lanes.of(label) for label in labels}
    assert len(set(made.values())) == 5
    assert all(lanes.of(label) is lane for label, lane in made.items())
    assert lanes.tend() == 10.0
    lanes.close()
    assert all(lane.is_closed for lane in made.values())


def test_all_of_them_share_the_time_for_what_cannot_be_sealed(lanes):
    clock = SystemClock()
    for number in range(3):
        lanes.of(Label(priority=number))
    begun = clock.now()
    lanes.tend()
    lanes.close()
    ended = clock.now()
    tended, closed = ([lane.left_s[place] for lane in lanes._lanes.values()] for place in (0, 1))
    assert all(TEND_S - (ended - begun) <= left <= TEND_S for left in tended)
    assert all(CLOSE_S - (ended - begun) <= left <= CLOSE_S for left in closed)
    assert tended == sorted(tended, reverse=True)


def test_a_lane_that_is_made_too_late_does_not_wait_either(lanes):
    early = lanes.of(Label(priority=1))
    assert early.does_wait
    lanes.stop_waiting()
    assert not any(lane.does_wait for lane in (lanes.of(UNLABELLED), early, lanes.of(Label(priority=2))))


def test_who_is_at_work_has_the_idle_ones_tended_now_and_then(lanes):
    busy = lanes.of(UNLABELLED)
    lanes.tend_idle(1.0)
    assert busy.tended == 0  # there is no other
    idle = lanes.of(Label(priority=9))
    for now in (1.0, 1.0 + PAUSE_MAX_S / 2, 1.0 + PAUSE_MAX_S):
        lanes.tend_idle(now)
    assert idle.tended == 2
