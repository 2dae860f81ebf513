"""The future of a push is a future like any other."""

import asyncio
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait

import pytest

from cassq.errors import StorageUnavailableError
from cassq.model.ids import MessageId, new_pipe_id
from cassq.pushing import push_result
from cassq.pushing.push_result import PushFuture, PushLatch, answer

PIPE = new_pipe_id()
FAILURE = StorageUnavailableError("the database is away")


def an_id(seq=1):
    return MessageId(PIPE, seq)


def test_it_gives_the_id_to_who_asks_afterwards():
    future = PushFuture()
    assert not future.done()
    future.set_result(an_id())

    assert future.done()
    assert not future.running()
    assert future.result(0) == an_id()
    assert future.exception(0) is None


def test_it_raises_the_error():
    future = PushFuture()
    future.set_exception(FAILURE)

    assert future.exception(0) is FAILURE
    with pytest.raises(StorageUnavailableError):
        future.result(0)


def test_who_waits_in_vain_hears_of_it():
    with pytest.raises(TimeoutError):
        PushFuture().result(0.001)


@pytest.mark.parametrize("when", ["before", "after"])
def test_callbacks_are_called_once_whenever_they_are_added(when):
    future, called = PushFuture(), []
    if when == "before":
        future.add_done_callback(called.append)
    future.set_result(an_id())
    if when == "after":
        future.add_done_callback(called.append)

    assert called == [future]


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_callbacks_are_called_in_their_order_and_one_that_raises_keeps_no_other(is_waited_for, caplog):
    future, called = PushFuture(), []

    def fail(_):
        called.append("first")
        raise ValueError("planted")

    if is_waited_for:
        wait([future], timeout=0)
    future.add_done_callback(fail)
    future.add_done_callback(lambda _: called.append("second"))
    future.add_done_callback(lambda _: called.append("third"))
    future.set_result(an_id())

    assert called == ["first", "second", "third"]
    assert "planted" in caplog.text


def test_the_standard_library_waits_for_them():
    futures = [PushFuture() for _ in range(3)]
    futures[1].set_exception(FAILURE)

    done, pending = wait(futures, timeout=0.01, return_when=FIRST_COMPLETED)
    assert (done, pending) == ({futures[1]}, {futures[0], futures[2]})

    threading.Timer(0.01, lambda: [futures[place].set_result(an_id()) for place in (2, 0)]).start()
    assert set(as_completed(futures, timeout=5)) == set(futures)


def test_asyncio_awaits_it():
    async def push():
        future = PushFuture()
        threading.Timer(0.01, future.set_result, (an_id(5),)).start()
        return await asyncio.wrap_future(future)

    assert asyncio.run(push()) == an_id(5)


def test_no_waiter_is_forgotten_however_it_races_with_the_end():
    # Given thousands of futures that one thread waits for while another ends them, neck and neck
    futures = [PushFuture() for _ in range(5000)]
    called = []
    begin = threading.Barrier(2)

    def end_all():
        begin.wait()
        for seq, future in enumerate(futures, 1):
            future.set_result(an_id(seq))

    ending = threading.Thread(target=end_all)
    ending.start()
    begin.wait()
    for future in futures:
        future.add_done_callback(called.append)
        future.add_done_callback(called.append)

    # Then each is waited for in vain by nobody, and each callback is called once
    assert [future.result(5).seq for future in futures] == list(range(1, 5001))
    ending.join()
    assert sorted(map(id, called)) == sorted([*map(id, futures), *map(id, futures)])


def unexpected():
    raise AssertionError("it was not woken")


def test_callers_that_are_answered_together_wake_each_other(monkeypatch):
    monkeypatch.setattr(push_result, "LOOK_S", 60.0)
    latches = [PushLatch() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(latch.result, unexpected) for latch in latches]
        answer([(latch, an_id(number)) for number, latch in enumerate(latches, 1)])
        assert [each.result(30) for each in waiting] == [an_id(1), an_id(2), an_id(3)]


def test_a_caller_that_is_torn_away_wakes_the_next_one_all_the_same(monkeypatch):
    torn, following = PushLatch(), PushLatch()

    def look():
        answer([(torn, an_id(1)), (following, an_id(2))])
        raise KeyboardInterrupt

    monkeypatch.setattr(push_result, "LOOK_S", 0.001)
    with pytest.raises(KeyboardInterrupt):
        torn.result(look)
    monkeypatch.setattr(push_result, "LOOK_S", 60.0)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(following.result, unexpected).result(30) == an_id(2)


def test_a_caller_whose_push_failed_hears_of_it_at_once(monkeypatch):
    monkeypatch.setattr(push_result, "LOOK_S", 60.0)
    latch = PushLatch()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(latch.result, unexpected)
        latch.set_exception(FAILURE)
        assert waiting.exception(30) is FAILURE


@pytest.mark.parametrize("ends", ["stored", "failed"])
def test_whoever_waits_already_is_woken(ends):
    future = PushFuture()
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(future.exception, 60)
        together = pool.submit(wait, [future], 60)
        while not (future._made and future._those_who_wait and future._made._waiters):
            time.sleep(0.001)
        if ends == "stored":
            future.set_result(an_id())
        else:
            future.set_exception(FAILURE)
        assert waiting.result(30) is (None if ends == "stored" else FAILURE)
        assert together.result(30).done == {future}
