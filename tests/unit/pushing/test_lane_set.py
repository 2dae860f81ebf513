"""The lanes of one thread, as they come and end."""

import pytest

from cassq.pushing.lane import PAUSE_MAX_S
from cassq.pushing.lane_set import LaneSet


class Lane:
    """Counts how often it is tended, and knows whether it waits."""

    def __init__(self, priority):
        self.next_s = 10.0 + priority
        self.tended = 0
        self.does_wait = True
        self.is_closed = False

    def tend(self):
        self.tended += 1
        return self.next_s

    def stop_waiting(self):
        self.does_wait = False

    def close(self):
        self.is_closed = True


@pytest.fixture
def lanes():
    return LaneSet(Lane)


def test_each_priority_has_a_lane_of_its_own(lanes):
    made = {priority: lanes.of(priority) for priority in (0, 9, 4)}
    assert len(set(made.values())) == 3
    assert all(lanes.of(priority) is lane for priority, lane in made.items())
    assert lanes.tend() == 10.0
    lanes.close()
    assert all(lane.is_closed for lane in made.values())


def test_a_lane_that_is_made_too_late_does_not_wait_either(lanes):
    early = lanes.of(1)
    assert early.does_wait
    lanes.stop_waiting()
    assert not any(lane.does_wait for lane in (lanes.of(0), early, lanes.of(2)))


def test_who_is_at_work_has_the_idle_ones_tended_now_and_then(lanes):
    busy = lanes.of(0)
    lanes.tend_idle(1.0)
    assert busy.tended == 0  # there is no other
    idle = lanes.of(9)
    for now in (1.0, 1.0 + PAUSE_MAX_S / 2, 1.0 + PAUSE_MAX_S):
        lanes.tend_idle(now)
    assert idle.tended == 2
