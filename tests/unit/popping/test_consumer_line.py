"""Who waits, and that the demand is theirs alone."""

import threading

import pytest

from cassq.popping.consumer_line import Consumer, ConsumerLine
from cassq.popping.timing import LOOK_TIMEOUT_S


class Called(threading.Condition):
    """Counts the calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def notify(self, n=1):
        self.calls += n


def consumer(count=1, *, deadline=100.0, asker=None):
    return Consumer(Called(), asker, count, asked_at=0.0, deadline=deadline, look=0)


@pytest.fixture
def line():
    return ConsumerLine()


def test_the_demand_is_what_those_in_line_want(line):
    first, second, third = consumer(1), consumer(10), consumer(100)
    for each in (first, second, third):
        line.join(each)
    assert (len(line), line.demand, line.first) == (3, 111, first)
    assert line.take_first() is first
    assert line.demand == 110
    line.stand_first(first)
    line.leave(second)
    line.leave(second)
    assert (len(line), line.demand, line.first) == (2, 101, first)
    line.leave(first)
    line.leave(third)
    assert (len(line), line.demand, line.first) == (0, 0, None)


def test_those_without_time_are_called_and_all_once_it_is_over(line):
    hurried, patient = consumer(deadline=1.0), consumer()
    line.join(hurried)
    line.join(patient)
    line.call(1.0, is_over=False)
    assert (hurried.changed.calls, patient.changed.calls) == (1, 0)
    line.call(1.0, is_over=True)
    assert (hurried.changed.calls, patient.changed.calls) == (2, 1)


def test_the_consumers_of_one_popper_are_called_alone(line):
    mine, other = object(), object()
    called, spared = consumer(asker=mine), consumer(asker=other)
    line.join(called)
    line.join(spared)
    line.call_those_of(mine)
    assert (called.changed.calls, spared.changed.calls) == (1, 0)


def test_a_look_that_was_left_to_others_gets_its_time_from_the_deadline_on():
    waiting = consumer(deadline=100.0)
    assert waiting.look_until == 100.0
    waiting.spare()
    assert waiting.look_until == 100.0 + LOOK_TIMEOUT_S
    assert consumer(deadline=0.0).look_until == LOOK_TIMEOUT_S
