"""Leases of handlers at work are extended, and late messages taken away."""

import logging

import pytest

from cassq.errors import ClosedError, DeliveryExpiredError, StorageUnavailableError
from cassq.runtime.clock import SystemClock
from cassq.worker.watchdog import LOOK_S, Watchdog


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
def watchdog(clock):
    return Watchdog(clock)


def test_a_lease_is_extended_once_a_third_of_it_has_passed(watchdog, clock):
    delivery = Delivery(Run(clock))
    with watchdog.holding(delivery, 1000.0):
        watchdog.look()
        assert delivery.calls == []
        clock.at += 10.1
        watchdog.look()
        watchdog.look()
        assert delivery.calls == [("extend",)]
    clock.at += 25
    watchdog.look()
    assert delivery.calls == [("extend",)]


def test_of_messages_that_share_a_lease_one_extends_it(watchdog, clock):
    run = Run(clock)
    first, second = Delivery(run), Delivery(run)
    with watchdog.holding(first, 1000.0), watchdog.holding(second, 1000.0):
        clock.at += 15
        watchdog.look()
    assert len(first.calls + second.calls) == 1


def test_an_extension_that_failed_is_tried_again_while_the_lease_runs(watchdog, clock, caplog):
    delivery = Delivery(Run(clock), StorageUnavailableError("away"))
    with watchdog.holding(delivery, 1000.0), caplog.at_level(logging.WARNING, "cassq"):
        clock.at += 15
        watchdog.look()
        watchdog.look()
    assert delivery.calls == [("extend",)]
    assert "away" in caplog.text


def test_a_lease_that_has_ended_is_left_alone(watchdog, clock):
    delivery = Delivery(Run(clock), DeliveryExpiredError("over"))
    with watchdog.holding(delivery, 1000.0):
        clock.at += 31
        watchdog.look()
        delivery.run.is_live = False
        watchdog.look()
    assert delivery.calls == []


def test_a_message_that_has_ended_is_left_alone(watchdog, clock, caplog):
    ended, ending = Delivery(Run(clock)), Delivery(Run(clock), ClosedError("just now"))
    ended.has_ended = True
    with watchdog.holding(ended, 1000.0), watchdog.holding(ending, 1000.0):
        clock.at += 15
        with caplog.at_level(logging.WARNING, "cassq"):
            watchdog.look()
    assert (ended.calls, ending.calls, caplog.records) == ([], [], [])


def test_a_message_that_takes_too_long_is_taken_away_once(watchdog, clock):
    delivery, cancelled = Delivery(Run(clock)), []
    with watchdog.holding(delivery, 5.0, lambda: cancelled.append(1)):
        watchdog.look()
        assert (watchdog.busy, watchdog.late) == (1, 0)
        clock.at += 5.5
        watchdog.look()
        clock.at += 20
        watchdog.look()
        assert delivery.calls == [("rollback", "the handler took longer than its timeout of 5 s")]
        assert cancelled == [1]
        assert (watchdog.busy, watchdog.late) == (1, 1)
    assert (watchdog.busy, watchdog.late) == (0, 0)


def test_others_that_share_the_lease_of_a_late_one_keep_it(watchdog, clock):
    run = Run(clock)
    late, other = Delivery(run), Delivery(run)
    with watchdog.holding(late, 5.0), watchdog.holding(other, 1000.0):
        clock.at += 15
        watchdog.look()
    assert [call[0] for call in late.calls] == ["rollback"]
    assert other.calls == [("extend",)]


def test_all_that_is_left_is_given_back(watchdog, clock):
    ended, working = Delivery(Run(clock)), Delivery(Run(clock))
    ended.has_ended, cancelled = True, []
    with watchdog.holding(ended, 5.0, lambda: cancelled.append(1)), watchdog.holding(working, 5.0):
        watchdog.give_back_all()
    assert (ended.calls, working.calls, cancelled) == ([], [("give_back",)], [1])


def test_it_looks_as_often_as_the_shortest_lease_in_hand_asks_for(watchdog, clock):
    run = Run(clock)
    run.lease_s = 1.2
    with watchdog.open():
        assert watchdog._step.seconds == LOOK_S
        with watchdog.holding(Delivery(run), 5.0):
            assert watchdog._step.seconds == pytest.approx(0.1)
