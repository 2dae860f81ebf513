"""Many poppers in one process: how many take at a time, and how seldom many queues at rest are looked at."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from cassq.clock import SystemClock
from cassq.crowd import (
    LOOKS_PER_S,
    PASSES_PER_S,
    RETRIES_PER_S,
    TAKERS_MAX,
    TURN_MAX_S,
    TURN_TICK_S,
    Crowd,
    Turns,
)


def crowd_of(queues):
    crowd = Crowd()
    for _ in range(queues):
        crowd.enter()
    return crowd


@pytest.mark.parametrize("per_s", [LOOKS_PER_S, RETRIES_PER_S, PASSES_PER_S])
def test_all_queues_together_are_looked_at_so_often(per_s):
    crowd = crowd_of(1000)
    pauses = [crowd.spread(0.01, per_s, f"queue-{number}") for number in range(1000)]
    assert sum(1 / pause for pause in pauses) == pytest.approx(per_s, rel=0.1)
    assert len(set(pauses)) > 990, "those that began together would go on together"


def test_a_few_queues_are_looked_at_as_often_as_each_wants():
    assert {crowd_of(3).spread(2.0, LOOKS_PER_S, f"queue-{number}") for number in range(3)} == {2.0}


def test_who_leaves_counts_no_more():
    crowd = crowd_of(1000)
    for _ in range(999):
        crowd.leave()
    assert crowd.spread(1.0, LOOKS_PER_S, "queue") == 1.0


def test_as_many_take_at_a_time_as_may_and_no_more():
    turns, guard = Turns(SystemClock()), threading.Lock()
    full, at_work, most = threading.Barrier(TAKERS_MAX), 0, 0

    def take(_):
        nonlocal at_work, most
        with turns.turn(lambda: True):
            with guard:
                at_work += 1
                most = max(most, at_work)
            full.wait(30)  # nobody goes before as many are in as may be
            with guard:
                at_work -= 1

    with ThreadPoolExecutor(3 * TAKERS_MAX) as pool:
        list(pool.map(take, range(3 * TAKERS_MAX)))
    assert most == TAKERS_MAX


class Clock:
    """Whoever waits has waited."""

    def __init__(self):
        self.at = 0.0

    def now(self):
        return self.at

    def wait(self, _condition, seconds):
        self.at += seconds


@pytest.fixture
def taken():
    """Turns of which all are taken, by poppers that hang."""
    clock = Clock()
    turns = Turns(clock)
    with ExitStack() as taking:
        for _ in range(TAKERS_MAX):
            taking.enter_context(turns.turn(lambda: True))
        yield turns, clock


def test_who_waits_looks_after_what_it_has_and_goes_without_a_turn_in_the_end(taken):
    turns, clock = taken
    looked_at = []
    with turns.turn(lambda: looked_at.append(clock.at) or True):
        assert TURN_MAX_S <= clock.at < TURN_MAX_S + 2 * TURN_TICK_S
    assert len(looked_at) >= TURN_MAX_S / TURN_TICK_S - 2


def test_who_has_nothing_to_wait_for_does_not(taken):
    turns, clock = taken
    with turns.turn(lambda: False):
        assert clock.at == pytest.approx(TURN_TICK_S)
