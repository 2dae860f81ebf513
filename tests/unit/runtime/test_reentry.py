"""A signal, a __del__ or a log handler may call cassq in the middle of a call of its own thread.

Nothing is lost, mixed or handed out twice, and nothing hangs: such a call works, or is told what to do.
"""

import faulthandler
import sqlite3
import sys
import threading
from collections import Counter
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

import cassq
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store

LIBRARY = str(Path(cassq.__file__).parent)

#: Far more than a slow machine takes for one test. A call that waits for itself would wait for ever.
HANGS_S = 1200


@pytest.fixture(autouse=True)
def _ended_where_it_hangs():
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'q.db'}?durability=normal"
    with cassq.connect(url) as store:
        yield store


@pytest.fixture
def queue(store):
    return store.queue("orders")


class Reentry:
    """Calls once when this thread comes to the n-th line of the library."""

    def __init__(self, line, call):
        self._left = line
        self._call = call

    @property
    def has_struck(self):
        return self._left <= 0

    def __call__(self, frame, event, _arg):
        if not frame.f_code.co_filename.startswith(LIBRARY):
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self._call()
        return self


def is_interrupted(line, outer, inner):
    """Call `outer`, and `inner` at one of its lines; return whether it came to that line."""
    reentry = Reentry(line, inner)
    before = sys.gettrace()
    sys.settrace(reentry)
    try:
        outer()
    finally:
        sys.settrace(before)
    return reentry.has_struck


def interrupt_everywhere(outer, inner):
    """Interrupt `outer` at each of its lines; return how many there were."""
    line = 1
    while is_interrupted(line, partial(outer, line), partial(inner, line)):
        line += 1
    return line - 1


def pop_all(queue):
    popped = []
    with queue.popper() as popper:
        while deliveries := popper.pop_many(1000, timeout=0):
            popper.commit_many(deliveries)
            popped += deliveries
    return popped


@pytest.mark.parametrize("is_soon", [True, False], ids=["push_soon", "push"])
def test_a_push_soon_that_interrupts_a_push_is_stored_as_the_push_itself(queue, is_soon):
    futures = {}

    def outer(line):
        body = b"outer %d" % line
        if is_soon:
            futures[body] = queue.push_soon(body, {"who": body.decode()})
        else:
            assert queue.push(body, {"who": body.decode()})

    def inner(line):
        body = b"inner %d" % line
        futures[body] = queue.push_soon(body, {"who": body.decode()})

    queue.push(b"outer 0", {"who": "outer 0"})
    lines = interrupt_everywhere(outer, inner)

    assert lines > 20
    ids = {body: future.result(timeout=60) for body, future in futures.items()}
    popped = pop_all(queue)
    bodies = [b"outer %d" % n for n in range(lines + 2)] + [b"inner %d" % n for n in range(1, lines + 1)]
    assert Counter(each.body for each in popped) == Counter(bodies)
    assert all(each.headers == {"who": each.body.decode()} for each in popped)
    assert all(ids.get(each.body, each.message_id) == each.message_id for each in popped)


@pytest.mark.parametrize("wait", [True, False], ids=["push", "wait for push_soon"])
def test_what_would_wait_for_the_push_that_it_interrupts_is_told(queue, wait):
    pushed, refused = [], []

    def inner(line):
        body = b"inner %d" % line
        try:
            if wait:
                queue.push(body)
            else:
                pushed.append(body)
                queue.push_soon(body).result(timeout=60)
        except cassq.UsageError as error:
            assert "interrupted another call of the same thread" in str(error)
            refused.append(body)
        else:
            pushed.append(body)

    queue.push(b"first")
    interrupt_everywhere(lambda line: queue.push_soon(b"outer %d" % line), inner)

    assert refused
    bodies = [each.body for each in pop_all(queue)]
    assert len(set(bodies)) == len(bodies)
    assert {body for body in bodies if body.startswith(b"inner")} == set(pushed)


@pytest.mark.parametrize("commit", ["each", "grouped"])
def test_a_pop_that_interrupts_a_pop_or_a_commit_hands_out_nothing_twice(queue, commit):
    queue.push_many(b"%d" % number for number in range(2000))
    popped, refused = [], []
    with queue.popper(commit=commit) as popper:

        def outer(_line):
            delivery = popper.pop(timeout=60)
            popped.append(delivery.body)
            delivery.commit()

        def inner(line):
            try:
                delivery = popper.pop(timeout=60)
            except cassq.UsageError:
                refused.append(line)
            else:
                popped.append(delivery.body)
                # What it refused in the middle of another commit can be committed after that.
                with suppress(cassq.UsageError):
                    delivery.commit()
                    return
                left.append(delivery)

        left = []
        lines = interrupt_everywhere(outer, inner)
        for delivery in left:
            delivery.commit()
        while deliveries := popper.pop_many(1000, timeout=0):
            popped += [each.body for each in deliveries]
            popper.commit_many(deliveries)

    assert refused
    assert len(refused) < lines
    assert Counter(popped) == Counter(b"%d" % number for number in range(2000))
    assert queue.stats().waiting == queue.stats().pending == 0


ACTS = {
    "rollback": lambda _queue, _popper, other: other.rollback(),
    "extend": lambda _queue, _popper, other: other.extend(),
    "commit": lambda _queue, _popper, other: other.commit(),
    "stats": lambda queue, _popper, _other: queue.stats(),
    "resume": lambda queue, _popper, _other: queue.resume(),
    "push": lambda queue, _popper, _other: queue.push(b"more"),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ["rollback", "commit", "extend"])
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("leases", ["one lease", "two leases"])
def test_whatever_interrupts_the_end_of_a_delivery_works_or_is_told_and_spoils_nothing(
    store, leases, act, end
):
    queue = store.queue("patient", max_attempts=1_000_000, retry_delay=timedelta(0))
    line, refused = 0, []
    is_through = False
    with queue.popper() as popper:
        while not is_through:
            line += 1
            bodies = [b"%d" % line, b"other %d" % line]
            deliveries = []
            # What is pushed after the first was popped has a lease of its own.
            for together in [bodies] if leases == "one lease" else [[body] for body in bodies]:
                queue.push_many(together)
                deliveries += [popper.pop(timeout=60) for _ in together]
            delivery, other = deliveries
            calls = {"rollback": delivery.rollback, "commit": delivery.commit, "extend": delivery.extend}

            def inner(other=other):
                try:
                    ACTS[act](queue, popper, other)
                except cassq.UsageError as error:
                    refused.append(str(error))

            is_through = not is_interrupted(line, calls[end], inner)
            for each in (delivery, other):
                with suppress(cassq.ClosedError):
                    each.commit()
            popper.commit_many(popper.pop_many(10, timeout=0))

    assert line > 10
    assert all("interrupted another call of the same thread" in each for each in refused)
    pop_all(queue)
    stats = queue.stats()
    assert (stats.waiting, stats.pending, stats.dead) == (0, 0, 0)
    assert stats.committed == stats.pushed


def wait_for_closers():
    for thread in threading.enumerate():
        if thread.name == "cassq-close":
            thread.join()


@pytest.mark.parametrize("what", ["popper", "queue", "store"])
def test_a_close_in_a_callback_of_push_soon_closes_once_that_is_through(tmp_path, what):
    url = f"sqlite:///{tmp_path / 'q.db'}?durability=normal"
    store = cassq.connect(url)
    queue = store.queue("q")
    closed = {"popper": queue.popper(), "queue": queue, "store": store}[what]
    has_closed, trouble, threads = threading.Event(), [], []

    def close(_future):
        threads.append(threading.current_thread().name)
        try:
            closed.close()
        except BaseException as error:
            trouble.append(error)
        has_closed.set()

    with closing(sqlite3.connect(tmp_path / "q.db", isolation_level=None)) as other:
        other.execute(
            "BEGIN IMMEDIATE"
        )  # nothing is stored meanwhile, so it is the pushing thread that calls back
        futures = [queue.push_soon(b"%d" % number) for number in range(300)]
        futures[0].add_done_callback(close)
        other.execute("ROLLBACK")

    ids = {future.result(timeout=HANGS_S) for future in futures}
    assert has_closed.wait(HANGS_S)
    assert (trouble, threads) == ([], ["cassq-push-q"])
    wait_for_closers()
    store.close()
    with cassq.connect(url) as again:
        assert {each.message_id for each in pop_all(again.queue("q"))} == ids


@pytest.mark.parametrize("what", ["queue", "store"])
def test_a_close_while_another_thread_closes_returns_when_that_is_through(tmp_path, monkeypatch, what):
    store = cassq.connect(f"sqlite:///{tmp_path / 'q.db'}?durability=normal")
    queue = store.queue("q")
    closed = {"queue": queue, "store": store}[what]
    told = SimpleQueue()
    wait = SystemClock.wait

    def tell_and_wait(clock, condition, seconds):
        if threading.current_thread() in closers:
            told.put("waits")
        wait(clock, condition, seconds)

    def close():
        closed.close()
        told.put("closed" if future.done() else "returned early")

    closers = [threading.Thread(target=close) for _ in range(2)]
    monkeypatch.setattr(SystemClock, "wait", tell_and_wait)
    with closing(sqlite3.connect(tmp_path / "q.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # nothing is stored meanwhile, so no close can be through
        future = queue.push_soon(b"on its way")
        for closer in closers:
            closer.start()
        first = told.get(timeout=HANGS_S)
        other.execute("ROLLBACK")
    for closer in closers:
        closer.join()
    store.close()

    assert first == "waits"
    assert [told.get() for _ in range(told.qsize())] == ["closed", "closed"]


def _hold_record(queue, _other):
    return (lambda: queue.record._is_looking), queue.record.read, queue.stats


def _hold_lease(_queue, other):
    def is_held():
        is_free = other.run._changing.acquire(blocking=False)
        if is_free:
            other.run._changing.release()
        return not is_free

    return is_held, other.extend, other.rollback


@pytest.mark.parametrize("hold", [_hold_record, _hold_lease])
def test_a_call_never_waits_for_a_thread_that_waits_for_the_call_it_interrupted(hold):
    clock = SystemClock()
    kept, coordinator = SqliteStorage(None, clock=clock), LocalCoordinator(None, clock)
    with Store("memory", Adapters(kept, coordinator, coordinator.close), clock=clock) as store:
        queue = store.queue("orders")
        with queue.popper() as popper:
            queue.push(b"one")
            mine = popper.pop(timeout=60)
            queue.push(b"another")
            other = popper.pop(timeout=60)  # under a lease of its own
            is_held, beside, inner = hold(queue, other)
            told = []

            def interrupt(frame, event, _arg):
                if not frame.f_code.co_filename.startswith(LIBRARY):
                    return None
                if event == "line" and not told and kept._file._writing._is_owned():
                    told.append(None)
                    thread = threading.Thread(target=beside, daemon=True)
                    thread.start()
                    while not is_held():  # and then it waits for what this thread has
                        threading.Event().wait(0.001)
                    with pytest.raises(cassq.UsageError, match="interrupted another call"):
                        inner()
                    told.append(thread)
                return interrupt

            before = sys.gettrace()
            sys.settrace(interrupt)
            try:
                mine.extend()
            finally:
                sys.settrace(before)
            told[1].join()
            mine.commit()
            other.commit()


CLOSED_IN = {
    "push": lambda queue, _popper: queue.push_soon(b"more").result(timeout=60),
    "pop": lambda _queue, popper: popper.pop(timeout=60).commit(),
    "rollback": lambda _queue, popper: popper.pop(timeout=60).rollback(),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["popper", "store"])
@pytest.mark.parametrize("outer", CLOSED_IN)
def test_a_close_in_the_middle_of_another_call_lets_it_end_and_loses_nothing(tmp_path, outer, what):
    url = f"sqlite:///{tmp_path / 'q.db'}?durability=normal"
    line, stored, committed, refused = 0, 0, 0, 0
    is_through = False
    while not is_through:
        line += 1
        store = cassq.connect(url)
        queue = store.queue("q", retry_delay=timedelta(0))
        queue.push(b"first")
        popper = queue.popper()
        stored += 1

        counted = []

        def call(queue=queue, popper=popper, counted=counted):
            CLOSED_IN[outer](queue, popper)
            counted.append(1)

        closed = {"popper": popper, "store": store}[what]
        try:
            is_through = not is_interrupted(line, call, closed.close)
        except cassq.ClosedError:
            refused += 1  # what was popped by then is in a consumer's hands, until its lease ends
        stored += len(counted) if outer == "push" else 0
        committed += len(counted) if outer == "pop" else 0
        wait_for_closers()
        store.close()

    assert line > 20
    with cassq.connect(url) as store:
        stats = store.queue("q").stats()
        assert stats.pushed >= stored
        assert stats.committed == committed
        assert stats.pending <= refused
        assert stats.waiting + stats.pending + stats.dead == stats.pushed - stats.committed
