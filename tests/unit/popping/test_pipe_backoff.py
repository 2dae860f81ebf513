"""What a popper remembers of pipes that it does not hold."""

from uuid import uuid1

import pytest

from cassq.errors import CorruptError
from cassq.popping.pipe_backoff import GONE_MAX, GonePipes, PipeBackoff
from cassq.popping.timing import BUSY_S, PATIENCE_S


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.at = 100.0

    def now(self):
        return self.at


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def backoff(clock):
    return PipeBackoff(clock)


PIPE = uuid1()


def test_what_is_drained_is_left_alone_until_something_is_due(clock, backoff):
    backoff.note_drained(PIPE, clock.at, 3.0)
    assert backoff.is_left_alone(PIPE)
    assert backoff.next_end(5.0) == 3.0
    clock.at += 3.0
    assert not backoff.is_left_alone(PIPE)
    assert backoff.next_end(5.0) == 5.0


def test_a_wake_up_makes_it_look_again_where_it_has_not_read_since(clock, backoff):
    backoff.note_drained(PIPE, clock.at, 3.0)
    clock.at += 0.1
    backoff.retry(is_woken=True)
    assert not backoff.is_left_alone(PIPE)
    backoff.note_drained(PIPE, clock.at, 3.0)
    assert backoff.is_left_alone(PIPE)


def test_what_came_back_may_be_looked_at(clock, backoff):
    backoff.note_drained(PIPE, clock.at, 3.0)
    backoff.note_returned(PIPE)
    assert not backoff.is_left_alone(PIPE)


def test_a_read_from_before_something_came_back_tells_nothing(clock, backoff):
    sent_at = clock.at
    clock.at += 0.1
    backoff.note_returned(PIPE)
    backoff.note_drained(PIPE, sent_at, 3.0)
    assert not backoff.is_left_alone(PIPE)


def test_a_pipe_is_forgotten_once_it_is_not_listed(clock, backoff):
    backoff.note_rest(PIPE, 3.0)
    other = uuid1()
    backoff.note_drained(other, clock.at, 3.0)
    backoff.keep_only({other})
    assert not backoff.is_left_alone(PIPE)
    assert backoff.is_left_alone(other)
    backoff.keep_only(())
    assert not backoff.is_left_alone(other)


def test_pipes_that_are_gone_are_forgotten_in_the_end():
    gone = GonePipes()
    pipes = [uuid1() for _ in range(GONE_MAX + 1)]
    for pipe in pipes:
        gone.note(pipe)
    assert [pipe in gone for pipe in (pipes[0], pipes[1], pipes[-1])] == [False, True, True]


def test_a_pipe_that_others_held_once_is_waited_for_while_it_is_ones_own(clock, backoff):
    backoff.note_busy(PIPE)
    backoff.note_claimed(PIPE)
    clock.at += PATIENCE_S
    assert backoff.may_have_older(PIPE)


def test_how_long_others_hold_a_pipe_counts_anew_each_time(clock, backoff):
    backoff.note_busy(PIPE)
    backoff.note_claimed(PIPE)
    clock.at += PATIENCE_S
    backoff.note_busy(PIPE)
    assert backoff.may_have_older(PIPE)
    clock.at += PATIENCE_S
    assert not backoff.may_have_older(PIPE), "it is another popper's by now"


def test_a_wake_up_ends_every_rest(clock, backoff):
    backoff.note_rest(PIPE, 3.0)
    assert backoff.is_left_alone(PIPE)
    assert backoff.next_end(5.0) == 3.0
    backoff.retry(is_woken=False)
    assert backoff.is_left_alone(PIPE)
    backoff.retry(is_woken=True)
    assert not backoff.is_left_alone(PIPE)


def test_a_pipe_that_others_hold_is_tried_again_soon_or_at_once(clock, backoff):
    backoff.note_busy(PIPE)
    assert backoff.is_left_alone(PIPE)
    clock.at += BUSY_S
    assert not backoff.is_left_alone(PIPE)
    backoff.note_busy(PIPE)
    backoff.retry(is_woken=False)
    assert not backoff.is_left_alone(PIPE)


def test_why_a_pipe_cannot_be_read_is_told_until_it_can_be(clock, backoff):
    damage, other = CorruptError("damage"), uuid1()
    backoff.note_spoilt(PIPE, damage, 3.0)
    assert backoff.trouble is damage
    assert backoff.is_left_alone(PIPE)
    backoff.note_claimed(other)
    assert backoff.trouble is damage
    backoff.note_claimed(PIPE)
    assert backoff.trouble is None


def test_an_exhausted_pipe_holds_back_no_younger_one(backoff):
    assert backoff.may_have_older(PIPE)
    backoff.note_exhausted(PIPE)
    assert not backoff.may_have_older(PIPE)
    backoff.keep_only({PIPE})
    assert not backoff.may_have_older(PIPE)


def test_nothing_is_kept_of_pipes_that_are_not_listed_any_more(clock, backoff):
    # Given much to remember of one pipe after the other
    for _ in range(9):
        pipe = uuid1()
        backoff.note_busy(pipe)
        backoff.note_rest(pipe, 3.0)
        backoff.note_returned(pipe)
        backoff.note_drained(pipe, clock.at, 3.0)
        backoff.note_exhausted(pipe)
        backoff.note_spoilt(pipe, CorruptError("planted"), 3.0)
        # When none of them is there any more
        backoff.keep_only({PIPE})
        assert backoff.trouble is None
    kept = {name: kept for name, kept in vars(backoff).items() if isinstance(kept, dict | set) and kept}
    assert kept == {}
    assert backoff.next_end(5.0) == 5.0
