"""Leases of handlers at work are extended, and late messages taken away."""

import logging

import pytest

from cassq.errors import ClosedError, DeliveryExpiredError, StorageUnavailableError
from cassq.runtime.clock import SystemClock
from cassq.worker.keeper import LOOK_S, Keeper


class Clock(SystemClock):
    """Stands still."""

    at = 100.0

    def now(self):
        return self.at


class Run:
    lease_s = 30.0

    def __init__(self, clock):
        self._clock = clock
        self.ends_at = clock.now() + self.lease_s
        self.is_live = True

    @property
    def left_s(self):
        return self.ends_at - self._clock.now()


class Delivery:
    """Of a queue whose database answers what the test wants."""

    def __init__(self, run, *failures):
        self.run, self.failures, self.calls, self.has_ended = run, list(failures), [], False

    def _call(self, *what):
        if self.failures:
            raise self.failures.pop(0)
        self.calls.append(what)

    def extend(self):
        self._call("extend")
        self.run.ends_at = self.run._clock.now() + self.run.lease_s

    def rollback(self, reason):
        self.has_ended = True
        self._call("rollback", reason)

    def give_back(self):
        self.has_ended = True
        self._call("give_back")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def keeper(clock):
    return Keeper(clock)


def test_a_lease_is_extended_once_a_third_of_it_has_passed(keeper, clock):
    delivery = Delivery(Run(clock))
    with keeper.holding(delivery, 1000.0):
        keeper.look()
        assert delivery.calls == []
        clock.at += 10.1
        keeper.look()
        keeper.look()
        assert delivery.calls == [("extend",)]
    clock.at += 25
    keeper.look()
    assert delivery.calls == [("extend",)]


def test_of_messages_that_share_a_lease_one_extends_it(keeper, clock):
    run = Run(clock)
    first, second = Delivery(run), Delivery(run)
    with keeper.holding(first, 1000.0), keeper.holding(second, 1000.0):
        clock.at += 15
        keeper.look()
    assert len(first.calls + second.calls) == 1


def test_an_extension_that_failed_is_tried_again_while_the_lease_runs(keeper, clock, caplog):
    delivery = Delivery(Run(clock), StorageUnavailableError("away"))
    with keeper.holding(delivery, 1000.0), caplog.at_level(logging.WARNING, "cassq"):
        clock.at += 15
        keeper.look()
        keeper.look()
    assert delivery.calls == [("extend",)]
    assert "away" in caplog.text


def test_a_lease_that_has_ended_is_left_alone(keeper, clock):
    delivery = Delivery(Run(clock), DeliveryExpiredError("over"))
    with keeper.holding(delivery, 1000.0):
        clock.at += 31
        keeper.look()
        delivery.run.is_live = False
        keeper.look()
    assert delivery.calls == []


def test_a_message_that_has_ended_is_left_alone(keeper, clock, caplog):
    ended, ending = Delivery(Run(clock)), Delivery(Run(clock), ClosedError("just now"))
    ended.has_ended = True
    with keeper.holding(ended, 1000.0), keeper.holding(ending, 1000.0):
        clock.at += 15
        with caplog.at_level(logging.WARNING, "cassq"):
            keeper.look()
    assert (ended.calls, ending.calls, caplog.records) == ([], [], [])


def test_a_message_that_takes_too_long_is_taken_away_once(keeper, clock):
    delivery, cancelled = Delivery(Run(clock)), []
    with keeper.holding(delivery, 5.0, lambda: cancelled.append(1)):
        keeper.look()
        assert (keeper.busy, keeper.late) == (1, 0)
        clock.at += 5.5
        keeper.look()
        clock.at += 20
        keeper.look()
        assert delivery.calls == [("rollback", "the handler took longer than its timeout of 5 s")]
        assert cancelled == [1]
        assert (keeper.busy, keeper.late) == (1, 1)
    assert (keeper.busy, keeper.late) == (0, 0)


def test_others_that_share_the_lease_of_a_late_one_keep_it(keeper, clock):
    run = Run(clock)
    late, other = Delivery(run), Delivery(run)
    with keeper.holding(late, 5.0), keeper.holding(other, 1000.0):
        clock.at += 15
        keeper.look()
    assert [call[0] for call in late.calls] == ["rollback"]
    assert other.calls == [("extend",)]


def test_all_that_is_left_is_given_back(keeper, clock):
    ended, working = Delivery(Run(clock)), Delivery(Run(clock))
    ended.has_ended, cancelled = True, []
    with keeper.holding(ended, 5.0, lambda: cancelled.append(1)), keeper.holding(working, 5.0):
        keeper.give_back_all()
    assert (ended.calls, working.calls, cancelled) == ([], [("give_back",)], [1])


def test_it_looks_as_often_as_the_shortest_lease_in_hand_asks_for(keeper, clock):
    run = Run(clock)
    run.lease_s = 1.2
    with keeper.open():
        assert keeper._step.seconds == LOOK_S
        with keeper.holding(Delivery(run), 5.0):
            assert keeper._step.seconds == pytest.approx(0.1)
