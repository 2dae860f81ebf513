"""Which pipe is next, and what a round passes over."""

from cassq.model.ids import new_pipe_id
from cassq.model.pipe import PipeEntry
from cassq.pipes.pipe_order import PipeRound, in_order


def entry(pusher="a pusher", *, priority=0, lane=0):
    return PipeEntry(new_pipe_id(), pusher, priority=priority, lane=lane)


def test_older_pipes_come_first_and_before_them_those_of_a_higher_priority():
    first, second = entry(), entry()
    urgent = entry(priority=1)
    assert in_order([second, urgent, first]) == [urgent, first, second]


def test_a_round_tells_what_is_ahead():
    pipes = [entry(), entry(), entry()]
    order = PipeRound(pipes)
    assert [(each, order.ahead()) for each in order] == [
        (pipes[0], pipes[1:]),
        (pipes[1], pipes[2:]),
        (pipes[2], []),
    ]


def test_the_younger_pipes_of_a_lane_that_is_held_back_are_passed_over():
    pipes = [entry(), entry(), entry(lane=1), entry("another")]
    order = PipeRound(pipes)
    came = []
    for each in order:
        came.append(each)
        order.hold_back(each)
    assert came == [pipes[0], pipes[2], pipes[3]]


def test_a_round_is_for_the_pipes_that_are_meant():
    pipes = [entry(), entry(), entry()]
    assert list(PipeRound(pipes, {pipes[1].pipe: 7})) == [pipes[1]]
    assert list(PipeRound(pipes, {})) == []
