"""A caller of push writes his message himself when nobody else writes, and may be torn out of it anywhere."""

import linecache
import sys
import threading
from pathlib import Path

import pytest

import cassq
from cassq.errors import InvalidOptionError
from cassq.pusher import Pusher

LIBRARY = str(Path(cassq.__file__).parent)


class Watched:
    """A storage that calls `around` instead of appending; it is given the append."""

    def __init__(self, storage):
        self._storage = storage
        self.around = lambda append: append()

    def append(self, pipe, batch):
        self.around(lambda: self._storage.append(pipe, batch))

    def __getattr__(self, name):
        return getattr(self._storage, name)


@pytest.fixture
def store():
    with cassq.connect("memory:") as opened:
        yield opened


@pytest.fixture
def storage(store):
    return Watched(store.storage)


@pytest.fixture
def queue(store, storage, monkeypatch):
    """A queue whose pipe is open, so that a push can be written at once."""
    queue = store.queue("orders")
    opened = queue._push()
    monkeypatch.setattr(opened._lanes[0], "_storage", storage)
    queue.push(b"first")
    wait_until_at_rest(queue)
    return queue


def wait_until_at_rest(queue):
    """Wait until the lane's own thread has nothing to do, so that the next caller writes himself."""
    with queue._push()._turns[0]:
        pass


def pop_all(queue):
    with queue.popper() as popper:
        first = popper.pop_many(1000, timeout=10)
        deliveries = first + popper.pop_many(1000, timeout=0)
        popper.commit_many(deliveries)
    return [delivery.body for delivery in deliveries]


class Writers:
    """Notes which thread writes."""

    def __init__(self):
        self.threads = []

    def __call__(self, append):
        self.threads.append(threading.current_thread())
        append()


def test_a_lone_caller_writes_his_message_himself(queue, storage):
    storage.around = writers = Writers()

    queue.push(b"second")

    assert writers.threads == [threading.current_thread()]
    assert pop_all(queue) == [b"first", b"second"]


def test_what_one_thread_pushed_soon_is_not_overtaken(queue, storage):
    storage.around = writers = Writers()

    for number in range(0, 20, 2):
        queue.push_soon(b"%d" % number)
        queue.push(b"%d" % (number + 1))

    assert pop_all(queue) == [b"first", *(b"%d" % number for number in range(20))]
    assert threading.current_thread() not in writers.threads


def test_who_comes_during_a_write_is_served_by_the_lane(queue, storage):
    is_writing, may_end = threading.Event(), threading.Event()

    def slowly(append):
        storage.around = writers
        is_writing.set()
        assert may_end.wait(10)
        append()

    storage.around, writers = slowly, Writers()
    leader = threading.Thread(target=queue.push, args=(b"second",))
    leader.start()
    assert is_writing.wait(10)
    soon = queue.push_soon(b"third")
    may_end.set()
    soon.result(10)
    leader.join()

    assert pop_all(queue) == [b"first", b"second", b"third"]
    assert leader not in writers.threads


def test_a_handler_that_pushes_in_the_middle_of_a_push_is_told(queue, storage):
    told = []

    def interrupted(append):
        storage.around = lambda append: append()
        for push in (queue.push, lambda body: queue.push_many([body])):
            with pytest.raises(InvalidOptionError, match="call push_soon"):
                push(b"of a handler")
        told.append(queue.push_soon(b"soon"))
        append()

    storage.around = interrupted
    queue.push(b"second")
    told[0].result(10)

    assert pop_all(queue) == [b"first", b"second", b"soon"]


def test_a_handler_that_closes_in_the_middle_of_a_push_does_not_wait_for_it(queue, store, storage):
    def interrupted(append):
        store.close()
        append()

    storage.around = interrupted

    with pytest.raises((cassq.ClosedError, cassq.OutcomeUnknownError), match="closed"):
        queue.push(b"second")


def test_a_closed_queue_takes_nothing(queue, store):
    store.close()

    with pytest.raises(cassq.ClosedError):
        queue.push(b"too late")


class Interruption:
    """Tears this thread out of the library at its n-th line, as Ctrl-C does.

    Python looks for signals after calls; at a `try:`, and between a block and the end of its `with` or its
    `finally`, it never does, so neither does this.
    """

    def __init__(self, line):
        self._left = line
        self._entered = set()

    @property
    def has_struck(self):
        return self._left <= 0

    def __call__(self, frame, event, _arg):
        if not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        if event == "line" and not self._is_exempt(frame):
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self

    def _is_exempt(self, frame):
        before = linecache.getline(frame.f_code.co_filename, frame.f_lineno - 1).strip()
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if not line.startswith("with "):
            return line == "try:" or before == "finally:"
        is_leaving = (frame, frame.f_lineno) in self._entered
        self._entered.add((frame, frame.f_lineno))
        return is_leaving


def push_interrupted(queue, body, line):
    """Push, interrupted at a line of the library; return whether the push ended before it came to that."""
    interruption = Interruption(line)
    before = sys.gettrace()
    sys.settrace(interruption)
    try:
        queue.push(body)
    except KeyboardInterrupt:
        return False
    finally:
        sys.settrace(before)
    assert not interruption.has_struck
    return True


@pytest.mark.parametrize("by", ["the caller", "the lane"])
def test_wherever_a_caller_is_torn_out_what_others_push_arrives_once_and_in_order(queue, monkeypatch, by):
    if by == "the lane":
        monkeypatch.setattr(Pusher, "_write_one", Pusher._put_one)
    line, others = 0, [b"first"]
    is_through = False
    while not is_through:
        line += 1
        is_through = push_interrupted(queue, b"torn %d" % line, line)
        others.append(b"after %d" % line)
        pushed = queue.push(others[-1], timeout=10)
        assert queue.peek(1000)[-1].message_id == pushed

    assert line > (60 if by == "the caller" else 30)
    popped = pop_all(queue)
    assert [body for body in popped if not body.startswith(b"torn")] == others
    torn = [body for body in popped if body.startswith(b"torn")]
    assert len(set(torn)) == len(torn)
    assert torn[-1] == b"torn %d" % line


@pytest.mark.parametrize("is_stored", [False, True], ids=["before", "after"])
def test_a_popper_that_was_faster_than_the_interruption_keeps_the_pipe_going(queue, storage, is_stored):
    def torn(append):
        storage.around = lambda append: append()
        if is_stored:
            append()
            assert pop_all(queue) == [b"first", b"torn"]
        raise KeyboardInterrupt

    storage.around = torn
    with pytest.raises(KeyboardInterrupt):
        queue.push(b"torn")
    queue.push(b"after")

    assert pop_all(queue) == ([b"after"] if is_stored else [b"first", b"after"])
