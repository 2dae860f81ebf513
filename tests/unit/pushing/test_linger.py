"""How long a lane waits for callers who were just answered; waits are played, none is slept."""

import pytest

from cassq.model.message import NO_HEADERS
from cassq.pushing.linger import CALLERS_MIN, GATHER_MAX_S, SKIPPED_MAX, Linger
from cassq.pushing.push_buffer import PushBuffer
from cassq.pushing.push_request import PushRequest
from cassq.pushing.push_result import PushFuture, PushLatch

#: How long the write before took.
WRITE_S = 0.001


class PlayedClock:
    """Lets a fifth of a write pass at each wait, and something happen."""

    def __init__(self):
        self.seconds = 0.0
        self.happens = lambda: None

    def now(self):
        return self.seconds

    def wait(self, condition, seconds):
        self.seconds += min(seconds, WRITE_S / 5)
        condition.release()  # as everybody who waits does
        try:
            self.happens()
        finally:
            condition.acquire()


@pytest.fixture
def clock():
    return PlayedClock()


@pytest.fixture
def buffer(clock):
    return PushBuffer(clock, 1000, 1_000_000)


@pytest.fixture
def gathering():
    return Linger()


def put(buffer, count=1, end=PushLatch):
    for _ in range(count):
        buffer.put_one(b"x", NO_HEADERS, 1e12, end())


def count_waits(gathering, buffer, clock, batches, callers=8):
    """Tell for how many of so many batches somebody was waited for."""
    waited = 0
    for _ in range(batches):
        before = clock.now()
        gathering.note_answered(callers, WRITE_S)
        gathering.wait(buffer)
        waited += clock.now() > before
        buffer.get()
    return waited


def test_callers_who_come_back_travel_together(gathering, buffer, clock):
    clock.happens = lambda: put(buffer, 2)
    gathering.note_answered(8, WRITE_S)

    gathering.wait(buffer)

    (request,) = buffer.get()
    assert request.count == request.callers == 8


def test_one_in_eight_may_take_his_time(gathering, buffer, clock):
    put(buffer, 3)
    clock.happens = lambda: put(buffer, 2)
    gathering.note_answered(16, 1.0)

    gathering.wait(buffer)

    assert sum(request.count for request in buffer.get()) == 3 + 14


@pytest.mark.parametrize(("took", "at_most"), [(WRITE_S, WRITE_S), (1.0, GATHER_MAX_S)])
def test_nobody_waits_longer_than_the_write_before_took(gathering, buffer, clock, took, at_most):
    gathering.note_answered(8, took)

    gathering.wait(buffer)

    assert clock.now() == pytest.approx(at_most)


def test_few_callers_are_not_waited_for(gathering, buffer, clock):
    assert count_waits(gathering, buffer, clock, 10, callers=CALLERS_MIN - 1) == 0


def test_callers_who_stay_away_are_waited_for_more_and_more_rarely(gathering, buffer, clock):
    assert count_waits(gathering, buffer, clock, 1 + 1 + 1 + 2 + 1 + 4) == 3
    assert count_waits(gathering, buffer, clock, 100 * (1 + SKIPPED_MAX)) <= 100 + 10

    clock.happens = lambda: put(buffer, 8)
    assert count_waits(gathering, buffer, clock, 1 + SKIPPED_MAX) >= 1
    assert count_waits(gathering, buffer, clock, 10) == 10


@pytest.mark.parametrize(
    "other",
    [
        lambda buffer: put(buffer, end=PushFuture),
        lambda buffer: buffer.put(PushRequest([b"many"], [NO_HEADERS], 1e12, lambda _ids, _error: None)),
        lambda buffer: buffer.close(),
    ],
    ids=["push_soon", "push_many", "close"],
)
def test_nothing_else_waits_for_them(gathering, buffer, clock, other):
    clock.happens = lambda: other(buffer)
    gathering.note_answered(8, WRITE_S)

    gathering.wait(buffer)

    assert clock.now() == pytest.approx(WRITE_S / 5)


def test_what_expired_is_not_counted(gathering, buffer, clock):
    for _ in range(8):
        buffer.put_one(b"late", NO_HEADERS, clock.now(), PushLatch())
    buffer.expire()
    clock.happens = lambda: put(buffer)
    gathering.note_answered(4, WRITE_S)

    gathering.wait(buffer)

    assert sum(request.count for request in buffer.get()) == 4
