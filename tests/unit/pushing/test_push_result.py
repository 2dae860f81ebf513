"""The future of a push is a future like any other."""

import asyncio
import threading
from concurrent.futures import FIRST_COMPLETED, as_completed, wait

import pytest

from cassq.errors import StorageUnavailableError
from cassq.model.ids import MessageId, new_pipe_id
from cassq.pushing.push_result import PushFuture

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

    # Then each is waited for in vain by nobody, and each callback is called once
    assert [future.result(5).seq for future in futures] == list(range(1, 5001))
    ending.join()
    assert sorted(map(id, called)) == sorted(map(id, futures))
