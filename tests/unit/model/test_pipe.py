"""The life of a pipe, as the table tells it."""

from cassq.model.ids import new_token
from cassq.model.pipe import TRANSITIONS, Head, Phase, Step


def test_no_step_leads_back():
    order = [Phase.OPEN, Phase.SEALED, Phase.RETIRED]

    for (phase, _), steps in TRANSITIONS.items():
        assert all(order.index(after) >= order.index(phase) for after in steps.values())


def test_a_retired_pipe_allows_nothing():
    retired = Head(new_token(), phase=Phase.RETIRED, last=3, cursor=3)

    assert not any(retired.allows(step) for step in Step)


def test_a_pipe_retires_only_once_its_end_is_decided():
    assert not Head(new_token()).allows(Step.RETIRE)
    assert not Head(new_token(), phase=Phase.SEALED).allows(Step.RETIRE)
    assert Head(new_token(), phase=Phase.SEALED, last=3).allows(Step.RETIRE)


def test_the_pusher_may_still_decide_the_end_of_a_pipe_that_was_sealed_by_force():
    assert Head(new_token(), phase=Phase.SEALED).allows(Step.SEAL)
    assert not Head(new_token(), phase=Phase.SEALED, last=3).allows(Step.SEAL)


def test_the_phases_have_the_short_names_that_statistics_show():
    assert [phase.short for phase in Phase] == ["PA", "PF", "E"]
