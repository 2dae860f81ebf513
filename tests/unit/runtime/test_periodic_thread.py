"""One thread repeats what many need, each in its own time."""

import logging
import threading

import pytest

from cassq.errors import StorageUnavailableError
from cassq.runtime.clock import SystemClock
from cassq.runtime.deadline import CLOSING_S, seconds_to_begin
from cassq.runtime.periodic_thread import PeriodicThread

NAME = "cassq-of-this-test"


def threads():
    return [each for each in threading.enumerate() if each.name == NAME]


@pytest.fixture
def thread():
    return PeriodicThread(NAME, SystemClock())


class Turns:
    """Counts its turns; each lasts until `may_end`."""

    def __init__(self):
        self.began, self.may_end = threading.Semaphore(0), threading.Event()
        self.may_end.set()
        self.errors = []

    def __call__(self):
        self.began.release()
        assert self.may_end.wait(30)
        if self.errors:
            raise self.errors.pop()

    def wait(self):
        assert self.began.acquire(timeout=30)


def test_tasks_share_a_thread_which_ends_with_the_last_of_them(thread):
    assert threads() == []
    turns = Turns(), Turns()
    tasks = [thread.repeat("a task", each, 0.0) for each in turns]
    for each in turns:
        each.wait()
    assert len(threads()) == 1
    tasks[0].close()
    while turns[0].began.acquire(blocking=False):
        pass
    turns[1].wait()
    assert not turns[0].began.acquire(blocking=False)
    tasks[1].close()
    assert threads() == []
    # And there is one again for whoever comes later
    task = thread.repeat("a task", turns[0], 0.0)
    turns[0].wait()
    assert len(threads()) == 1
    task.close()


def test_a_task_comes_when_it_is_poked(thread):
    seldom, never = Turns(), Turns()
    task = thread.repeat("seldom", seldom, 3600.0)
    other = thread.repeat("never", never, 3600.0)
    task.poke()
    seldom.wait()
    # A poke in the middle of a turn stands
    seldom.may_end.clear()
    task.poke()
    seldom.wait()
    task.poke()
    seldom.may_end.set()
    seldom.wait()
    assert not never.began.acquire(blocking=False)
    task.close()
    other.close()


def test_a_close_waits_for_the_turn_under_way_of_its_own_task_alone(thread):
    turns = Turns(), Turns()
    tasks = [thread.repeat("a task", each, 3600.0) for each in turns]
    turns[0].may_end.clear()
    tasks[0].poke()
    turns[0].wait()
    tasks[1].close()
    closing = threading.Thread(target=tasks[0].close)
    closing.start()
    assert closing.is_alive()
    turns[0].may_end.set()
    closing.join(30)
    assert not closing.is_alive()
    assert threads() == []


def test_a_close_waits_for_the_turn_under_way_though_the_thread_goes_on_for_others(thread):
    turns, has_ended = Turns(), []
    other = thread.repeat("another", Turns(), 3600.0)
    task = thread.repeat("a task", lambda: (turns(), has_ended.append(True)), 3600.0)
    turns.may_end.clear()
    task.poke()
    turns.wait()
    found = []
    closing = threading.Thread(target=lambda: (task.close(), found.extend(has_ended)))
    closing.start()
    while task in thread._steps:  # the test's own time limit ends it otherwise
        pass
    turns.may_end.set()
    closing.join(30)
    assert found == [True]
    other.close()


def test_a_task_may_close_itself(thread):
    done = threading.Event()

    def close():
        task.close()
        done.set()

    task = thread.repeat("a task", close, 3600.0)
    task.poke()
    assert done.wait(30)
    for each in threads():
        each.join(30)
    assert threads() == []


@pytest.mark.parametrize("error", [StorageUnavailableError("away"), RuntimeError("unexpected")])
def test_an_error_ends_neither_the_task_nor_the_others(thread, caplog, error):
    caplog.set_level(logging.DEBUG, "cassq")
    failing, other = Turns(), Turns()
    failing.errors = [error]
    tasks = [thread.repeat("it fails", failing, 0.0), thread.repeat("it does not", other, 0.0)]
    for _ in range(2):
        failing.wait()
        other.wait()
    for task in tasks:
        task.close()
    assert any(each.getMessage().startswith("it fails: ") for each in caplog.records)


def test_a_task_that_had_its_turn_lets_those_come_that_are_due(thread):
    turns = Turns(), Turns()
    tasks = [thread.repeat("a task", each, 3600.0) for each in turns]
    for _ in range(2):
        for task, each in zip(tasks, turns, strict=True):
            task.poke()
            each.wait()
    for task in tasks:
        task.close()
    # And it does not come again by itself
    assert not any(each.began.acquire(blocking=False) for each in turns)


def test_a_poke_brings_a_turn_forward_and_never_puts_it_off(thread):
    turns = Turns()
    task = thread.repeat("a task", turns, 3600.0)
    turns.may_end.clear()
    task.poke()
    turns.wait()
    task.poke()
    task.poke(3600.0)
    turns.may_end.set()
    turns.wait()
    task.close()


def test_a_turn_that_is_under_way_when_its_task_is_closed_waits_for_little(thread):
    left, done = [], threading.Event()

    def turn():
        left.append(seconds_to_begin(SystemClock(), 3600.0))
        task.close()
        left.append(seconds_to_begin(SystemClock(), 3600.0))
        done.set()

    task = thread.repeat("a task", turn, 3600.0)
    task.poke()
    assert done.wait(30)
    assert left[0] == 3600.0
    assert left[1] <= CLOSING_S


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_was_ended_by_a_task_is_followed_by_another_one(thread):
    ending, other = Turns(), Turns()
    ending.errors = [SystemExit()]
    task = thread.repeat("it exits", ending, 3600.0)
    (first,) = threads()
    task.poke()
    first.join(30)
    assert not first.is_alive()
    later = thread.repeat("another", other, 3600.0)
    later.poke()
    other.wait()
    # Also for the task that ended it
    task.poke()
    ending.wait()
    ending.wait()
    for each in (task, later):
        each.close()
    assert threads() == []
