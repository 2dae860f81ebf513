"""Which pipe is next, and what a round passes over."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from cassq.model.ids import just_before, new_pipe_id, time_key
from cassq.model.pipe import PipeEntry
from cassq.pipes.pipe_order import PipeRound, as_far_as, in_order, one_after_the_other


def entry(pusher="a pusher", *, priority=0, lane=0):
    return PipeEntry(new_pipe_id(), pusher, priority=priority, lane=lane)


def test_older_pipes_come_first_and_before_them_those_of_a_higher_priority():
    first, second = entry(), entry()
    urgent = entry(priority=1)
    for ageing in (timedelta(0), timedelta(minutes=1)):
        assert in_order([second, urgent, first], ageing) == [urgent, first, second]


def test_a_pipe_counts_as_older_by_the_ageing_for_each_step_of_its_priority():
    urgent = entry(priority=3)
    old, older = (PipeEntry(just_before(urgent.pipe, seconds), "a pusher") for seconds in (29, 31))
    pipes = [urgent, old, older]
    assert in_order(pipes, timedelta(seconds=10)) == [older, urgent, old]
    assert in_order(pipes, timedelta(0)) == [urgent, older, old]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3))), st.integers(0, 10))
def test_of_one_source_pipes_come_by_age_whatever_the_ageing(made, ageing_s):
    pipes = [entry(f"pusher {number}", priority=priority) for priority, number in made]
    order = in_order(pipes, timedelta(seconds=ageing_s))
    for source in {each.source for each in pipes}:
        of_source = [each.pipe for each in order if each.source == source]
        assert of_source == sorted(of_source, key=time_key)


def test_a_round_tells_what_is_ahead():
    pipes = [entry(), entry(), entry()]
    order = PipeRound(pipes)
    assert [(each, order.ahead()) for each in order] == [
        (pipes[0], pipes[1:]),
        (pipes[1], pipes[2:]),
        (pipes[2], []),
    ]


def test_the_younger_pipes_of_a_lane_that_is_held_back_are_passed_over():
    pipes = [entry(), entry(), entry(lane=1), entry("another"), entry(priority=1)]
    order = PipeRound(pipes)
    came = []
    for each in order:
        came.append(each)
        order.hold_back(each)
    assert came == [pipes[0], *pipes[2:]]


def test_a_round_is_for_the_pipes_that_are_meant():
    pipes = [entry(), entry(), entry()]
    assert list(PipeRound(pipes, {pipes[1].pipe: 7})) == [pipes[1]]
    assert list(PipeRound(pipes, {})) == []


def test_of_a_second_list_counts_what_the_first_one_goes_as_far_as():
    older, first, later, other = entry(), entry(), entry(), entry("another")
    assert as_far_as([first], [older, first, later, other]) == (older, first)
    assert as_far_as([], [older]) == ()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1))))
def test_groups_have_one_pipe_of_a_source_each_and_the_older_ones_first(made):
    pipes = [entry(f"a task {number}", priority=priority) for number, priority in made]
    groups = one_after_the_other(reversed(pipes))
    assert all(len({each.source for each in group}) == len(group) for group in groups)
    for source in {each.source for each in pipes}:
        told = [each for group in groups for each in group if each.source == source]
        assert told == [each for each in pipes if each.source == source]
    assert sum(map(len, groups)) == len(pipes)
