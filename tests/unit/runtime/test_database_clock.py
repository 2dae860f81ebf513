"""Between which times the database's clock is: never outside of what one answer told, whichever is kept."""

import random

import pytest
from support.clocks import HandClock

from cassq.runtime.database_clock import DRIFT, Reading, sharper


class Database:
    """A clock that drifts, that nodes may show differently, and that somebody may set."""

    def __init__(self, clock: HandClock, drift: float = 0.0) -> None:
        self.clock = clock
        self.drift = drift
        self.set_ms = 1_900_000_000_000.0

    @property
    def shown_ms(self) -> float:
        return self.set_ms + 1000 * self.clock.seconds * (1 + self.drift)

    def answer(self, there_s: float = 0.0, back_s: float = 0.0, skew_ms: float = 0.0) -> None:
        asked_at = self.clock.latest()
        self.clock.seconds += there_s
        told_ms = int(self.shown_ms + skew_ms)
        self.clock.seconds += back_s
        self.clock.hear(told_ms / 1000, asked_at, 0.5)

    @property
    def left_open_ms(self) -> float:
        reading = self.clock._reading
        return reading.at_most_ms(self.clock.latest()) - reading.at_least_ms(self.clock.now())


@pytest.fixture
def clock():
    return HandClock()


def test_a_clock_that_heard_nothing_tells_nothing(clock):
    assert clock.database_at_most_ms() == 0
    assert clock.until_shown(5) == float("inf")


@pytest.mark.parametrize("drift", [-0.99 * DRIFT, 0.0, 0.99 * DRIFT])
def test_it_is_never_outside_the_bounds(clock, drift):
    dice, database = random.Random(3), Database(clock, drift)
    for _ in range(500):
        database.answer(*(dice.choice((0.0, 0.001, 0.05, 0.8)) * dice.random() for _ in range(2)))
        for _ in range(3):
            clock.seconds += dice.choice((0.0, 0.1, 20.0)) * dice.random()
            assert database.shown_ms <= clock.database_at_most_ms()
            shown_ms = int(database.shown_ms)
            assert clock._reading.at_least_ms(clock.now()) <= database.shown_ms
            assert clock.until_shown(shown_ms + 1) >= clock.now()


def test_what_a_slow_answer_leaves_open_counts_only_until_a_quick_one(clock):
    database = Database(clock)
    database.answer(0.2, 0.3)
    assert database.left_open_ms > 500
    database.answer(0.001, 0.001)
    assert database.left_open_ms < 4
    database.answer(0.2, 0.3)
    assert database.left_open_ms < 5


def test_an_old_reading_gives_way_when_its_drift_leaves_more_open(clock):
    database = Database(clock)
    database.answer()
    clock.seconds += 60
    database.answer(0.01, 0.01)
    assert database.left_open_ms < 22


@pytest.mark.parametrize("step_ms", [-4000, -30, 30, 4000])
def test_a_clock_that_was_set_is_believed_at_once(clock, step_ms):
    database = Database(clock)
    database.answer(0.001, 0.001)
    database.set_ms += step_ms
    database.answer(0.005, 0.005)
    assert clock._reading.at_least_ms(clock.now()) <= database.shown_ms <= clock.database_at_most_ms()


def test_a_step_that_goes_unseen_is_smaller_than_what_the_answer_left_open(clock):
    database = Database(clock)
    database.answer(0.001, 0.001)
    database.set_ms += 30
    database.answer(0.05, 0.05)
    assert database.shown_ms - 100 <= clock.database_at_most_ms()


def test_both_bounds_are_of_one_answer_though_nodes_differ(clock):
    database = Database(clock)
    for skew_ms in (0, 3, -3, 2, -1):
        database.answer(0.004, 0.004, skew_ms)
        assert database.left_open_ms >= 8


def test_a_pause_that_a_witness_tells_moves_the_upper_bound_alone(clock):
    database = Database(clock)
    database.answer(0.001, 0.001)
    at_least_ms = clock._reading.at_least_ms(clock.now())
    clock.missed += 5.0
    database.set_ms += 5000
    assert clock._reading.at_least_ms(clock.now()) == at_least_ms
    assert database.shown_ms <= clock.database_at_most_ms()


def test_of_two_that_leave_as_much_open_the_later_one_is_kept():
    known, heard = Reading(1000, 1.0, 1.002), Reading(1000, 1.0, 1.002)
    assert sharper(known, heard, 1.002, 1.002) is heard
