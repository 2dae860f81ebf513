"""Whoever closes a queue or a store waits for what others of the process are still closing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import cassq
from cassq.runtime.clock import SystemClock
from cassq.runtime.reentry import Closing


class HeldClosing:
    """A closing by another thread that goes on only once somebody waits for it."""

    def __init__(self, closed, owner, name, monkeypatch):
        """Close `closed`, which is held behind its last step: the method `name` of `owner`."""
        self.has_closed = False
        self.go_on = threading.Event()
        self._begun = threading.Event()
        self._closing = closed._closing
        monkeypatch.setattr(self._closing, "_clock", self)
        step = getattr(owner, name)

        def held(*values):
            step(*values)
            self._begun.set()
            self.go_on.wait()
            self.has_closed = True

        monkeypatch.setattr(owner, name, held)
        self.thread = threading.Thread(target=closed.close)
        self.thread.start()
        self._begun.wait()

    def wait(self, condition, seconds):
        """Wait as the clock of the closing: that somebody does lets it go on."""
        self.go_on.set()
        condition.wait(seconds)


@pytest.fixture
def hold(monkeypatch):
    held = []

    def hold(closed, owner, name):
        held.append(HeldClosing(closed, owner, name, monkeypatch))
        return held[-1]

    yield hold
    for each in held:
        each.go_on.set()
        each.thread.join()


@pytest.fixture
def store():
    with cassq.connect("memory:") as store:
        yield store


def test_a_queue_waits_for_a_popper_that_is_still_closing_as_the_next_is_made(store, hold):
    queue = store.queue("q")
    popper = queue.popper()
    closing = hold(popper, popper._intake, "leave")
    queue.popper()

    queue.close()

    assert closing.has_closed


def test_a_queue_waits_for_a_run_reader_that_is_still_closing_as_the_next_is_made(store, hold):
    queue = store.queue("q")
    reader = queue.run_reader("a", lease=timedelta(seconds=10))
    closing = hold(reader, reader, "_close")
    queue.run_reader("b", lease=timedelta(seconds=10))

    queue.close()

    assert closing.has_closed


def test_a_store_waits_for_a_queue_that_is_still_closing_as_it_is_opened_again(store, hold):
    queue = store.queue("q")
    closing = hold(queue._workers, queue._workers, "_close")
    assert store.queue("q") is not queue

    store.close()

    assert closing.has_closed


def test_a_close_that_raised_holds_up_no_other_one():
    closing = Closing(SystemClock())

    def fail():
        raise RuntimeError("planted")

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="planted"):
            closing.run(fail)
        assert closing.has_closed
        pool.submit(closing.run, fail).result()  # of the two the first is through
