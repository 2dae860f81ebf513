"""Those who wait for one batch: what each is told, and for how long they can wait."""

import pytest
from support.clocks import HandClock

from cassq.errors import StorageUnavailableError
from cassq.model.ids import new_pipe_id
from cassq.model.message import NO_HEADERS
from cassq.pushing.callers import CALL_S, Callers
from cassq.pushing.push_request import PushRequest
from cassq.runtime.deadline import seconds_left

AWAY = StorageUnavailableError("away")


@pytest.fixture
def clock():
    return HandClock()


class Call:
    """A request of messages, and how it ended."""

    def __init__(self, *bodies, patience_s=30.0, clock):
        self.ended = []
        headers = [NO_HEADERS] * len(bodies)
        self.request = PushRequest(bodies, headers, clock.now() + patience_s, self.note)

    def note(self, ids, error):
        self.ended.append((list(ids), error))


def callers_of(clock, *calls):
    return Callers([call.request for call in calls], clock)


def test_the_messages_of_all_are_one_batch(clock):
    callers = callers_of(clock, Call(b"1", b"2", clock=clock), Call(b"3", clock=clock))
    batch = callers.batch(7)
    assert (batch.first, batch.last, batch.bodies) == (7, 9, (b"1", b"2", b"3"))
    assert (callers.count, callers.size) == (3, batch.size)


@pytest.mark.parametrize(
    ("reached", "stored"),
    [(6, (0, 0)), (7, (1, 0)), (8, (2, 0)), (9, (2, 1)), (99, (2, 1))],
)
def test_each_is_told_how_far_its_own_messages_are_stored(clock, reached, stored):
    first, second = Call(b"1", b"2", clock=clock), Call(b"3", clock=clock)
    callers, pipe = callers_of(clock, first, second), new_pipe_id()
    assert callers.store(pipe, callers.batch(7), reached) == sum(stored)
    callers.fail(AWAY)
    ids = [(pipe, 7), (pipe, 8), (pipe, 9)]
    ((first_ids, first_error),), ((second_ids, second_error),) = first.ended, second.ended
    assert (first_ids, second_ids) == (ids[: stored[0]], ids[2 : 2 + stored[1]])
    assert (first_error is None, second_error is None) == (stored[0] == 2, stored[1] == 1)


def test_only_those_without_time_are_told_while_the_others_can_wait(clock):
    hurried, patient = Call(b"1", patience_s=1.0, clock=clock), Call(b"2", clock=clock)
    callers = callers_of(clock, hurried, patient)
    assert callers.deadline == hurried.request.deadline
    clock.seconds += 1.0
    callers.fail(AWAY, only_late=True)
    assert (hurried.ended, patient.ended) == ([([], AWAY)], [])
    assert callers.still_wait()
    assert callers.deadline == patient.request.deadline
    callers.fail(AWAY)
    assert not callers.still_wait()
    assert callers.deadline == float("inf")


def test_who_was_told_before_is_no_caller_any_more(clock):
    told, waiting = Call(b"1", clock=clock), Call(b"2", clock=clock)
    told.request.fail(AWAY)
    callers = callers_of(clock, told, waiting)
    assert callers.still_wait()
    assert callers.batch(1).bodies == (b"2",)


def test_a_call_has_a_moment_though_a_caller_has_none(clock):
    callers = callers_of(clock, Call(b"1", patience_s=0.0, clock=clock))
    with callers.in_time():
        assert seconds_left(clock, 60.0) == CALL_S
    callers.fail(AWAY)
    with callers.in_time():
        assert seconds_left(clock, 60.0) == 60.0
