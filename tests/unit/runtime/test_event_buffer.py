"""Events on their way to an observer: no call is held up, and an observer that raises is left."""

import logging
import os
import sys
import threading

import pytest
from support.patience import until

from cassq.runtime import event_buffer
from cassq.runtime.clock import SystemClock
from cassq.runtime.event_buffer import EventBuffer


@pytest.fixture
def listen(request):
    """Return a buffer for a function that hears its events; it is closed at the end."""

    def make(hear):
        buffer = EventBuffer(hear, SystemClock(), None)
        request.addfinalizer(buffer.close)
        return buffer

    return make


def test_events_are_told_in_their_order_without_being_asked_for(listen):
    heard = []
    buffer = listen(heard.append)
    for number in range(3):
        buffer.note(number)
    until(lambda: heard == [0, 1, 2])


def test_a_close_returns_once_all_is_told(listen):
    heard = []
    buffer = listen(heard.append)
    buffer.note("last")
    buffer.close()
    assert heard == ["last"]


def raise_error(event):
    raise ValueError(event)


@pytest.mark.parametrize("fail", [raise_error, sys.exit], ids=["raises", "exits"])
def test_an_observer_that_raises_is_logged_once_and_told_nothing_any_more(listen, caplog, fail):
    heard = []

    def hear(event):
        heard.append(event)
        fail(event)

    buffer = listen(hear)
    buffer.note("first")
    buffer.note("second")
    buffer.close()
    buffer.note("third")
    buffer.tell()

    assert heard == ["first"]
    assert [(each.name, each.levelno) for each in caplog.records] == [("cassq.observer", logging.ERROR)]
    assert "'first'" in caplog.text


def test_an_observer_that_does_not_come_back_holds_nobody_up(listen):
    entered, may_go_on, heard = threading.Event(), threading.Event(), []

    def hear(event):
        entered.set()
        assert may_go_on.wait(60)
        heard.append(event)

    buffer = listen(hear)
    buffer.note(0)
    assert entered.wait(60)
    for number in range(1, 100):
        buffer.note(number)
    assert heard == []
    may_go_on.set()
    buffer.close()
    assert heard == list(range(100))


def test_more_than_it_can_hold_is_left_out_and_logged_once(listen, caplog, monkeypatch):
    monkeypatch.setattr(event_buffer, "EVENTS_MAX", 2)
    entered, may_go_on, heard = threading.Event(), threading.Event(), []

    def hear(event):
        entered.set()
        assert may_go_on.wait(60)
        heard.append(event)

    buffer = listen(hear)
    buffer.note(0)
    assert entered.wait(60)
    for number in range(1, 6):
        buffer.note(number)
    may_go_on.set()
    buffer.close()

    assert heard == [0, 1, 2]
    assert len(caplog.records) == 1


def test_an_event_that_is_noted_while_another_is_told_comes_after_it(listen):
    heard = []

    def hear(event):
        heard.append(event)
        if event < 3:
            buffer.note(event + 1)

    buffer = listen(hear)
    buffer.note(0)
    until(lambda: heard == [0, 1, 2, 3])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_tells_nothing_and_waits_for_nothing(listen):
    reading, writing = os.pipe()
    parent = os.getpid()

    def hear(_):
        if os.getpid() != parent:
            os.write(writing, b"told")

    buffer = listen(hear)
    buffer.note("before")
    child = os.fork()
    if not child:
        buffer.note("in the child")
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    os.close(writing)
    assert os.read(reading, 10) == b""
    os.close(reading)


def test_an_age_is_told_by_the_clock_of_the_database(listen):
    buffer = listen(lambda _: None)
    assert buffer.age_of(1000) is None
    buffer.hear(500_000)
    assert 10 <= buffer.age_of(490_000) < 60
    assert buffer.age_of(600_000) == 0
