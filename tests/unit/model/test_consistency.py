"""Which rows of a pipe cannot be true together, and which odd ones can."""

from dataclasses import replace

import pytest

from cassq.errors import DecodeError
from cassq.model.consistency import check_head, check_mark, check_state
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.pipe import End, Head, Mark, Phase, PipeState, Run, RunState

PIPE = new_pipe_id()
HEAD = Head(new_token(), cursor=9, read_from=10, floor=2)
RETIRED = replace(HEAD, last=9, phase=Phase.RETIRED)


def a_run(first, last):
    return Run(first, last, first, RunState.LEASED, 1, new_token(), 1000, 500, 0, "me")


def a_state(head, runs=(), marks=()):
    return PipeState(head, tuple(a_run(*each) for each in runs), tuple(Mark(*each) for each in marks), 0)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(a_state(Head(new_token())), id="a new pipe"),
        pytest.param(a_state(replace(HEAD, floor=9)), id="all of it is below the floor"),
        pytest.param(a_state(HEAD, [(3, 9)]), id="one run"),
        pytest.param(a_state(HEAD, [(3, 5), (7, 9)], [(6, 6, End.PURGED)]), id="one message was cancelled"),
        pytest.param(a_state(HEAD, [(3, 5)], [(6, 9, End.PURGED)]), id="what waited was purged"),
        pytest.param(a_state(HEAD, [(3, 9)], [(12, 12, End.PURGED)]), id="cancelled behind the cursor"),
        pytest.param(
            a_state(HEAD, [(3, 5), (6, 9)], [(4, 7, End.COMMITTED)]),
            id="a late mark over an edge",
        ),
        pytest.param(a_state(HEAD, [(6, 9), (3, 5)]), id="in no order"),
        pytest.param(
            a_state(RETIRED, [(3, 9)], [(3, 4, End.DEAD), (5, 9, End.COMMITTED)]), id="retired and ended"
        ),
    ],
)
def test_what_cassq_may_write_under_any_race_is_taken_as_it_is(state):
    assert check_state(PIPE, state) is state


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (a_state(HEAD, [(3, 6), (6, 9)]), "messages 6 to 6 lie in two runs"),
        (a_state(HEAD, [(3, 9), (4, 5)]), "messages 4 to 5 lie in two runs"),
        (a_state(HEAD, [(3, 10)]), "a run ends at 10, behind the cursor at 9"),
        (a_state(HEAD, [(4, 9)]), "message 3 was handed out or purged"),
        (a_state(HEAD, [(3, 5), (7, 9)]), "message 6 was handed out or purged"),
        (a_state(HEAD, [(3, 8)]), "message 9 was handed out or purged"),
        (a_state(HEAD, [(3, 9)], [(9, 10, End.COMMITTED)]), "message 10 is committed, and the cursor at 9"),
        (a_state(HEAD, [(3, 9)], [(11, 11, End.DEAD)]), "message 11 is dead, and the cursor at 9"),
        (a_state(RETIRED, [(3, 9)], [(3, 8, End.COMMITTED)]), "it is retired, and message 9 has not ended"),
    ],
)
def test_what_cannot_be_true_together_is_refused_with_the_pipe_and_the_message(state, words):
    with pytest.raises(DecodeError, match=words) as refused:
        check_state(PIPE, state)

    assert str(PIPE) in str(refused.value)


@pytest.mark.parametrize("head", [HEAD, RETIRED, replace(HEAD, read_from=7), replace(RETIRED, read_from=20)])
def test_a_head_that_cassq_may_write_is_taken_as_it_is(head):
    assert check_head(head) is head


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"floor": 10}, id="the floor is behind the cursor"),
        pytest.param({"last": 8}, id="the cursor is behind the end"),
        pytest.param({"read_from": 0}, id="no batch begins there"),
        pytest.param({"read_from": 11}, id="what waits would not be read"),
        pytest.param({"phase": Phase.RETIRED}, id="retired, and where it ends is not decided"),
        pytest.param({"phase": Phase.RETIRED, "last": 12}, id="retired, and something waits"),
        pytest.param({"last": 12}, id="open, and where it ends is decided"),
    ],
)
def test_a_head_that_contradicts_itself_is_refused(wrong):
    with pytest.raises(ValueError, match=r"out of order|a head cannot be"):
        check_head(replace(HEAD, **wrong))


@pytest.mark.parametrize(("end", "target"), [(End.MOVED, None), (End.COMMITTED, PIPE)])
def test_what_was_moved_and_nothing_else_has_a_target(end, target):
    with pytest.raises(ValueError, match="it was moved to"):
        check_mark(Mark(3, 4, end, target))
