"""How many messages a popper has in hand, by how fast its consumers work."""

import pytest

from cassq.limits import TAKE_MESSAGES_MAX
from cassq.popping.prefetch_size import AHEAD_S, FORGET_S, PrefetchSize


def work(appetite, consumer, count, seconds, at=10.0):
    """Be a consumer that takes so many messages and comes back after so long."""
    appetite.note_given(consumer, count, at)
    appetite.note_call(consumer, at + seconds)


def test_nothing_is_taken_ahead_before_anybody_came_back():
    appetite = PrefetchSize(0.0)
    appetite.note_call(1, 10.0)
    appetite.note_given(1, 5, 10.0)
    assert appetite.ahead(1, 10.0) == 0


def test_as_much_is_in_hand_as_is_worked_off_in_a_moment():
    appetite = PrefetchSize(0.0)
    work(appetite, 1, 10, 10 * AHEAD_S / 4.2)
    assert appetite.ahead(1, 11.0) == 4


def test_every_consumer_counts_whether_it_waits_or_works():
    appetite = PrefetchSize(0.0)
    work(appetite, 1, 1, AHEAD_S / 4.2)
    appetite.note_given(2, 1, 10.0)
    appetite.note_given(3, 1, 10.0)
    assert appetite.ahead(0, 10.0) == 8
    assert appetite.ahead(1, 10.0) == 12


def test_who_works_for_longer_than_before_is_slow_though_it_did_not_come_back_to_tell():
    appetite = PrefetchSize(0.0)
    work(appetite, 1, 1, AHEAD_S / 50.2)
    appetite.note_given(1, 2, 10.0)
    assert appetite.ahead(0, 10.0 + AHEAD_S / 50.2) == 50
    assert appetite.ahead(0, 10.0 + 2 * AHEAD_S / 2.2) == 2
    assert appetite.ahead(0, 10.0 + 4 * AHEAD_S) == 0
    assert appetite.ahead(1, 10.0 + 4 * AHEAD_S) == 100
    # Of several the one counts that is at work for the shortest time
    appetite.note_given(2, 1, 10.0 + 4 * AHEAD_S)
    assert appetite.ahead(0, 10.0 + 4 * AHEAD_S) == 100


def test_a_consumer_that_stays_away_counts_no_more():
    appetite = PrefetchSize(0.0)
    work(appetite, 1, 1, AHEAD_S / 4.2)
    appetite.note_given(2, 1, 10.0)
    appetite.note_given(3, 1, 30.0)
    assert appetite.ahead(0, 30.0) == 8
    assert appetite.ahead(0, 11.0 + FORGET_S) == 0
    assert appetite.ahead(1, 11.0 + FORGET_S) == 8


def test_a_pause_tells_nothing_of_the_speed():
    appetite = PrefetchSize(0.0)
    work(appetite, 1, 1, AHEAD_S / 4.2)
    work(appetite, 1, 1, FORGET_S)
    assert appetite.ahead(1, 110.0) == 4


def test_the_latest_counts_for_a_part():
    appetite = PrefetchSize(0.0)
    work(appetite, 1, 1, AHEAD_S / 10)
    work(appetite, 1, 1, AHEAD_S)
    # 0.1 + 0.3 · (1 - 0.1) of a moment for each message
    assert appetite.ahead(1, 11.0) == int(1 / 0.37)


@pytest.mark.parametrize("seconds", [0.0, 1e-9])
def test_however_fast_they_are_there_is_a_bound(seconds):
    appetite = PrefetchSize(0.0)
    work(appetite, 1, 1, seconds)
    assert appetite.ahead(1, 11.0) == TAKE_MESSAGES_MAX
