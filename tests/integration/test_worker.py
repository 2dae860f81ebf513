"""Workers, on every store."""

import asyncio
import contextlib
import functools
import threading
import time
from datetime import timedelta

import pytest
from support.patience import patiently, until

import cassq
from cassq.popping import grouped_commits

WAIT_S = 60.0
AT_ONCE = timedelta(0)


@pytest.fixture
def queue(store, name):
    return store.queue(name, retry_delay=AT_ONCE, lease=timedelta(minutes=5), max_attempts=3)


@pytest.fixture(params=["threads", "tasks"])
def awaited(request):
    """Return a decorator that makes a plain function what the worker is to call."""
    if request.param == "threads":
        return lambda function: function

    def as_task(function):
        @functools.wraps(function)
        async def handle(delivery):
            return await asyncio.to_thread(function, delivery)

        return handle

    return as_task


@contextlib.contextmanager
def running(worker, **stop):
    """Run a worker beside the block."""
    failed = []

    def run():
        try:
            worker.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        worker.stop(**stop)
        thread.join(WAIT_S)
        assert not thread.is_alive()
    for error in failed:
        raise error


def test_what_returns_is_committed_and_what_fails_comes_again(store, queue, awaited):
    worker, seen = cassq.Worker(store, concurrency=4), []

    @worker.on(queue.name)
    @awaited
    def handle(delivery):
        seen.append((delivery.body, delivery.attempt))
        if delivery.body == b"bad" and delivery.attempt < 3:
            raise ValueError("not yet")

    queue.push_many([b"1", b"bad", b"2"])
    with running(worker):
        until(lambda: queue.stats().committed == 3)
    assert sorted(seen) == [(b"1", 1), (b"2", 1), (b"bad", 1), (b"bad", 2), (b"bad", 3)]


def test_no_handler_waits_for_the_commits_of_a_group(store, queue, awaited, monkeypatch):
    monkeypatch.setattr(grouped_commits, "GROUP_S", 3600.0)
    worker, seen = cassq.Worker(store, concurrency=1), []

    @worker.on(queue.name, commit="grouped")
    @awaited
    def handle(delivery):
        seen.append(delivery.body)

    queue.push_many([b"1", b"2", b"3"])
    with running(worker):
        until(lambda: len(seen) == 3)
        assert "mark" not in store.telemetry.snapshot()  # the group is not full, nor old
    assert queue.stats().committed == 3


def test_a_handler_may_reject_and_choose_when_its_message_comes_again(store, queue, awaited):
    worker, seen = cassq.Worker(store), []

    @worker.on(queue.name, concurrency=2)
    @awaited
    def handle(delivery):
        seen.append(delivery.body)
        if delivery.body == b"no":
            raise cassq.Reject("no such customer")
        if delivery.body == b"later":
            raise cassq.Retry(timedelta(hours=1), "the server is busy")

    ids = [queue.push(body) for body in (b"no", b"later")]
    with running(worker):
        until(lambda: queue.stats().dead_letters == 1 and len(seen) == 2)
        until(lambda: queue.status(ids[1]).state == cassq.MessageState.DELAYED)
    (letter,) = queue.dead
    assert (letter.body, letter.reason, letter.attempts) == (b"no", "no such customer", 1)
    assert queue.status(ids[1]).reason == "the server is busy"


def test_a_handler_may_end_its_message_itself(store, queue):
    worker = cassq.Worker(store)

    @worker.on(queue.name)
    def handle(delivery):
        delivery.commit()
        raise ValueError("after all")

    queue.push(b"x")
    with running(worker):
        until(lambda: queue.stats().committed == 1)
    assert queue.stats().rolled_back == 0


def test_hooks_are_entered_in_order_and_leave_before_the_message_ends(store, queue, awaited):
    told = []

    def hook(name):
        @contextlib.contextmanager
        def around(delivery):
            told.append(f"{name} in")
            try:
                yield
            finally:
                told.append(f"{name} out {delivery.has_ended}")

        return around

    worker = cassq.Worker(store, concurrency=1, hooks=[hook("a"), hook("b")])

    @worker.on(queue.name)
    @awaited
    def handle(_):
        told.append("handler")

    queue.push(b"x")
    with running(worker):
        until(lambda: queue.stats().committed == 1)
    assert told == ["a in", "b in", "handler", "b out False", "a out False"]


def test_the_lease_of_a_handler_at_work_is_extended(store, name, awaited):
    queue = store.queue(name, lease=timedelta(seconds=2), max_attempts=9)
    worker, ends = cassq.Worker(store, concurrency=2), []

    @worker.on(name)
    @awaited
    def handle(delivery):
        run = delivery.run if hasattr(delivery, "run") else delivery.sync.run
        ends.append(run.ends_at)
        while run.ends_at < ends[0] + 4 and run.is_live:
            time.sleep(0.01)

    queue.push(b"long")
    with running(worker):
        until(lambda: queue.stats().committed == 1)
    assert len(ends) == 1


def test_a_handler_that_takes_too_long_loses_its_message(store, queue):
    worker, attempts, may_end, told = cassq.Worker(store, timeout=0.3), [], threading.Event(), []

    @worker.on(queue.name)
    def handle(delivery):
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            assert may_end.wait(WAIT_S)
            with pytest.raises(cassq.ClosedError, match="rolled back before"):
                delivery.commit()
            told.append(1)

    message_id = queue.push(b"x")
    with running(worker):
        until(lambda: queue.stats().committed == 1)
        assert worker.late == 1
        may_end.set()
        until(lambda: told and not worker.busy)
    assert attempts == [1, 2]
    assert queue.stats().rolled_back == 1
    assert queue.status(message_id).state == cassq.MessageState.COMMITTED


def test_a_task_that_takes_too_long_is_cancelled_and_its_message_comes_again(store, queue):
    worker, attempts, cancelled = cassq.Worker(store, timeout=0.3), [], []

    @worker.on(queue.name)
    async def handle(delivery):
        attempts.append(delivery.attempt)
        try:
            if delivery.attempt == 1:
                await asyncio.sleep(WAIT_S)
        except asyncio.CancelledError:
            cancelled.append(delivery.attempt)
            raise

    queue.push(b"x")
    with running(worker):
        until(lambda: queue.stats().committed == 1)
    assert (attempts, cancelled) == ([1, 2], [1])


def test_a_stop_lets_handlers_finish_and_costs_no_message_an_attempt(store, queue, awaited):
    worker, began, may_end = cassq.Worker(store, concurrency=2), threading.Event(), threading.Event()

    @worker.on(queue.name)
    @awaited
    def handle(_):
        began.set()
        assert may_end.wait(WAIT_S)

    queue.push_many([b"%d" % number for number in range(100)])
    with running(worker, drain=WAIT_S):
        assert began.wait(WAIT_S)
        worker.stop(drain=WAIT_S)
        until(lambda: queue._workers._poppers[-1].is_closed)
        may_end.set()
    stats = queue.stats()
    assert 1 <= stats.committed <= 2
    with queue.popper() as popper:
        while left := patiently(lambda: popper.pop_many(100, timeout=0)):
            assert {each.attempt for each in left} == {1}
            popper.commit_many(left)
    assert queue.stats().committed == 100


def test_tasks_that_do_not_end_in_time_are_cancelled_without_an_attempt(store, queue):
    worker, began, seen = cassq.Worker(store), threading.Event(), []

    @worker.on(queue.name)
    async def handle(_):
        began.set()
        try:
            await asyncio.sleep(WAIT_S)
        except asyncio.CancelledError as error:
            seen.append("cancelled")
            raise RuntimeError("what a driver makes of it") from error

    queue.push(b"x")
    with running(worker, drain=0):
        assert began.wait(WAIT_S)
    assert seen == ["cancelled"]
    with queue.popper() as popper:
        assert popper.pop(timeout=WAIT_S).attempt == 1


def test_the_messages_of_threads_that_do_not_end_go_back_without_an_attempt(store, queue, monkeypatch):
    monkeypatch.setattr("cassq.worker.worker.GRACE_S", 0.2)
    worker, began, may_end, left = cassq.Worker(store), threading.Event(), threading.Event(), []
    stopping: list[bool] = []

    @worker.on(queue.name)
    def handle(delivery):
        with delivery:
            began.set()
            assert may_end.wait(WAIT_S)
        left.append(stopping[-1])

    queue.push(b"x")
    with running(worker, drain=0):
        assert began.wait(WAIT_S)
    with queue.popper() as popper:
        delivery = popper.pop(timeout=WAIT_S)
        assert delivery.attempt == 1
        stopping.append(worker.is_stopping)
        may_end.set()
        until(lambda: left)
        delivery.commit()
    assert left == [True]
    assert queue.stats().committed == 1
    # The one that ended late tells nothing to the next run
    queue.push(b"y")
    with running(worker):
        until(lambda: queue.stats().committed == 2)


def test_an_error_that_comes_in_the_middle_of_the_run_gives_back_what_is_in_hand(store, queue, monkeypatch):
    """As Ctrl-C does, and a signal handler that raises."""
    worker, began, may_end = cassq.Worker(store), threading.Event(), threading.Event()

    @worker.on(queue.name)
    def handle(_):
        began.set()
        may_end.wait(WAIT_S)

    def interrupt(_):
        assert began.wait(WAIT_S)
        raise KeyboardInterrupt

    queue.push(b"x")
    monkeypatch.setattr("cassq.worker.worker.GRACE_S", 0.1)
    monkeypatch.setattr("cassq.worker.worker._End.wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    may_end.set()
    with queue.popper() as popper:
        assert popper.pop(timeout=WAIT_S).attempt == 1


def test_a_stop_before_the_run_ends_it_at_once(store, queue):
    worker = cassq.Worker(store)
    worker.on(queue.name)(lambda _: None)
    worker.stop()
    worker.run()
    queue.push(b"x")
    with running(worker):
        until(lambda: queue.stats().committed == 1)


class Callable:
    async def __call__(self, delivery):
        await asyncio.sleep(0)


async def coroutine(extra, delivery):
    await asyncio.sleep(0)


def traced(function):
    @functools.wraps(function)
    def call(delivery):
        return function(delivery)

    return call


@pytest.mark.parametrize(
    "handler",
    [Callable(), functools.partial(coroutine, 1), functools.partial(Callable()), traced(Callable().__call__)],
    ids=["object", "partial", "partial of an object", "wrapped"],
)
def test_what_is_called_as_a_coroutine_function_is_awaited(store, queue, handler, caplog):
    worker = cassq.Worker(store)
    worker.on(queue.name)(handler)
    queue.push(b"x")
    with running(worker):
        until(lambda: queue.stats().committed == 1)
    assert not caplog.records


def test_what_returns_something_that_has_not_run_is_rolled_back(store, queue):
    worker = cassq.Worker(store)
    worker.on(queue.name)(lambda delivery: coroutine(1, delivery))
    queue.push(b"x")
    with running(worker):
        until(lambda: queue.stats().dead_letters == 1)
    (letter,) = queue.dead
    assert "has not run" in letter.reason


def test_a_delay_that_is_too_long_is_told_as_the_reason(store, queue):
    worker = cassq.Worker(store)

    @worker.on(queue.name)
    def handle(_):
        raise cassq.Retry(timedelta(days=30))

    queue.push(b"x")
    with running(worker):
        until(lambda: queue.stats().dead_letters == 1)
    (letter,) = queue.dead
    assert "InvalidOptionError" in letter.reason


def test_a_lease_that_is_made_shorter_is_kept_all_the_same(store, name):
    queue = store.queue(name, lease=timedelta(minutes=5), max_attempts=9)
    worker, ends = cassq.Worker(store, concurrency=1), []

    @worker.on(name)
    def handle(delivery):
        if delivery.body == b"long":
            ends.append(delivery.run.ends_at)
            while delivery.run.ends_at < ends[0] + 4 and delivery.run.is_live:
                time.sleep(0.01)

    with running(worker):
        queue.push(b"first")
        until(lambda: queue.stats().committed == 1)
        store.alter_queue(name, lease=timedelta(seconds=2))
        until(lambda: queue.settings.lease == timedelta(seconds=2))
        queue.push(b"long")
        until(lambda: queue.stats().committed == 2)
    assert len(ends) == 1


def test_a_queue_that_is_deleted_ends_the_worker(store, queue):
    worker = cassq.Worker(store)
    worker.on(queue.name)(lambda _: None)
    queue.push(b"x")
    beside = running(worker)
    beside.__enter__()
    until(lambda: queue.stats().committed == 1)
    store.delete_queue(queue.name)
    until(lambda: not worker._running.locked())
    with pytest.raises(cassq.ClosedError, match="was deleted"):
        beside.__exit__(None, None, None)


def test_what_is_wrong_is_told(store, name):
    worker = cassq.Worker(store)
    with pytest.raises(cassq.UsageError, match="no handler"):
        worker.run()
    with pytest.raises(cassq.InvalidOptionError):
        cassq.Worker(store, concurrency=0)
    with pytest.raises(cassq.InvalidOptionError, match="no handler"):
        worker.on(name)(17)
    with pytest.raises(cassq.InvalidNameError):
        worker.on(lambda _: None)
    worker.on(name)(lambda _: None)
    with pytest.raises(cassq.InvalidOptionError, match="one for each queue"):
        worker.on(name)
    with running(worker):
        until(worker._running.locked)
        with pytest.raises(cassq.UsageError, match="runs already"):
            worker.run()
