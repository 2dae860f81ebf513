"""What poppers of one process tell each other of pipes, and what each keeps to itself."""

from uuid import uuid1

import pytest

from cassq.popping.pipe_backoff import BELIEVED_S, GONE_MAX, PATIENCE_S, Hearsay, PipeBackoff


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
def poppers(clock):
    """The memories of two poppers of one process."""
    hearsay = Hearsay(clock)
    return PipeBackoff(clock, hearsay), PipeBackoff(clock, hearsay)


PIPE = uuid1()


def test_what_one_found_drained_the_other_leaves_alone_until_something_is_due(clock, poppers):
    one, other = poppers
    one.note_drained(PIPE, clock.at, 3.0)
    assert one.is_left_alone(PIPE)
    assert other.is_left_alone(PIPE)
    assert other.next_end(5.0) == 3.0
    clock.at += 3.0
    assert not one.is_left_alone(PIPE)
    assert not other.is_left_alone(PIPE)
    assert other.next_end(5.0) == 5.0


def test_who_is_woken_looks_again_unless_another_looked_just_now(clock, poppers):
    one, other = poppers
    one.note_drained(PIPE, clock.at, 3.0)
    clock.at += BELIEVED_S / 2
    for each in poppers:
        each.retry(is_woken=True)
    assert not one.is_left_alone(PIPE), "it was the one who looked"
    assert other.is_left_alone(PIPE)
    clock.at += BELIEVED_S / 2
    assert not other.is_left_alone(PIPE)


def test_what_came_back_may_be_looked_at_by_all(clock, poppers):
    one, other = poppers
    one.note_drained(PIPE, clock.at, 3.0)
    other.note_returned(PIPE)
    assert not one.is_left_alone(PIPE)
    assert not other.is_left_alone(PIPE)


def test_a_read_from_before_something_came_back_tells_nothing(clock, poppers):
    one, other = poppers
    read_at = clock.at
    clock.at += 0.1
    other.note_returned(PIPE)
    one.note_drained(PIPE, read_at, 3.0)
    assert not other.is_left_alone(PIPE)


def test_a_pipe_that_another_found_drained_holds_back_no_younger_one(clock, poppers):
    one, other = poppers
    assert other.may_have_older(PIPE)
    one.note_drained(PIPE, clock.at, 3.0)
    assert other.is_left_alone(PIPE)
    assert not other.may_have_older(PIPE)


def test_a_rest_is_ones_own(clock, poppers):
    one, other = poppers
    one.note_rest(PIPE, 3.0)
    assert one.is_left_alone(PIPE)
    assert not other.is_left_alone(PIPE)


def test_what_is_gone_is_gone_for_all_also_where_it_is_listed_still(clock, poppers):
    one, other = poppers
    one.note_gone(PIPE)
    one.keep_only(())
    assert other.is_gone(PIPE)


def test_pipes_that_are_gone_are_forgotten_in_the_end(clock):
    hearsay = Hearsay(clock)
    pipes = [uuid1() for _ in range(GONE_MAX + 1)]
    for pipe in pipes:
        hearsay.note_gone(pipe)
    assert [hearsay.is_gone(pipe) for pipe in (pipes[0], pipes[1], pipes[-1])] == [False, True, True]


def test_a_pipe_that_others_held_once_is_waited_for_while_it_is_ones_own(clock, poppers):
    one, _ = poppers
    one.note_busy(PIPE)
    one.note_claimed(PIPE)
    clock.at += PATIENCE_S
    assert one.may_have_older(PIPE)


def test_how_long_others_hold_a_pipe_counts_anew_each_time(clock, poppers):
    one, _ = poppers
    one.note_busy(PIPE)
    one.note_claimed(PIPE)
    clock.at += PATIENCE_S
    one.note_busy(PIPE)
    assert one.may_have_older(PIPE)
    clock.at += PATIENCE_S
    assert not one.may_have_older(PIPE), "it is another popper's by now"
