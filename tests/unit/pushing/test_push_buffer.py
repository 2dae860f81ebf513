"""What waits for a lane, and what its callers hear."""

from cassq.errors import StorageUnavailableError
from cassq.model.ids import new_pipe_id
from cassq.model.message import NO_HEADERS
from cassq.pushing.push_buffer import SAME_PATIENCE_S, PushBuffer, PushRequest
from cassq.pushing.push_result import PushFuture
from cassq.runtime.clock import SystemClock


def a_buffer(messages_max=1000, bytes_max=1_000_000):
    return PushBuffer(SystemClock(), messages_max, bytes_max)


def put_all(buffer, count, deadline=1e12):
    futures = [PushFuture() for _ in range(count)]
    for number, future in enumerate(futures):
        buffer.put_one(b"%d" % number, NO_HEADERS, deadline, future)
    return futures


def test_single_messages_travel_in_one_parcel_in_their_order():
    buffer = a_buffer()
    put_all(buffer, 5)

    (request,) = buffer.get()

    assert list(request.bodies) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_parcel_of_singles_stops_growing_at_what_a_batch_carries():
    buffer = a_buffer(messages_max=3)
    put_all(buffer, 4)

    assert [request.count for request in buffer.get() + buffer.get()] == [3, 1]


def test_a_single_message_never_overtakes_what_was_pushed_before_it():
    buffer = a_buffer()
    put_all(buffer, 1)
    buffer.put(PushRequest([b"many"], [NO_HEADERS], 1e12, lambda _ids, _error: None))
    put_all(buffer, 1)

    assert [list(request.bodies) for request in buffer.get()] == [[b"0"], [b"many"], [b"0"]]


def test_callers_of_unlike_patience_are_kept_apart():
    buffer = a_buffer()
    put_all(buffer, 1, deadline=1e6)
    put_all(buffer, 1, deadline=1e6 + 2 * SAME_PATIENCE_S)

    assert [request.count for request in buffer.get()] == [1, 1]


def test_what_was_taken_grows_no_more():
    buffer = a_buffer()
    put_all(buffer, 2)
    (taken,) = buffer.get()
    put_all(buffer, 1)

    assert taken.count == 2
    assert [request.count for request in buffer.get()] == [1]


def test_each_caller_hears_of_his_own_message_when_only_some_were_stored():
    buffer, pipe = a_buffer(), new_pipe_id()
    futures = put_all(buffer, 3)
    (request,) = buffer.get()

    request.store(pipe, 7, 2)
    request.fail(StorageUnavailableError("the database is away"))

    assert [future.result(0) for future in futures[:2]] == [(pipe, 7), (pipe, 8)]
    assert isinstance(futures[2].exception(0), StorageUnavailableError)


def test_a_message_on_its_way_cannot_be_cancelled():
    (future,) = put_all(a_buffer(), 1)

    assert not future.cancel()
    assert future.running()
