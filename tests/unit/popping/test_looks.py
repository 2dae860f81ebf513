"""Looks by their numbers, and what is told of those that failed or never ended."""

import threading

from support.clocks import HandClock

from cassq.errors import AccessDeniedError, CoordinationUnavailableError, StorageUnavailableError
from cassq.popping.alarm import Alarm
from cassq.popping.looks import Looks


def made(silent_service=None):
    clock = HandClock()
    return Looks(clock, Alarm(clock, threading.RLock(), ()), lambda: silent_service)


def test_a_look_that_ends_late_is_no_step_back():
    looks = made()
    first, second = looks.begin(), looks.begin()
    assert (looks.begun, looks.done) == (second, 0)
    looks.end(second, None)
    looks.end(first, None)
    assert looks.done == second


def test_trouble_is_news_once_and_again_where_it_is_of_another_kind():
    looks = made()
    outage, refusal = StorageUnavailableError("away"), AccessDeniedError("no")
    troubles = (outage, StorageUnavailableError("still away"), refusal, None, outage)
    assert [looks.end(looks.begin(), each) for each in troubles] == [True, False, True, False, True]
    assert looks.trouble is outage


def test_a_look_without_an_end_is_blamed_on_the_service_that_is_silent():
    assert isinstance(made("ZooKeeper").no_answer(2.0), CoordinationUnavailableError)
    assert "ZooKeeper" in str(made("ZooKeeper").no_answer(2.0))
    assert isinstance(made().no_answer(2.0), StorageUnavailableError)
