"""What waits for a lane, and what its callers hear."""

import pytest

from cassq.errors import ClosedError, OverloadedError, StorageUnavailableError, UsageError
from cassq.model.ids import new_pipe_id
from cassq.model.label import Label
from cassq.model.message import NO_HEADERS
from cassq.pushing import push_buffer
from cassq.pushing.push_buffer import SAME_PATIENCE_S, PushBuffer
from cassq.pushing.push_request import PushRequest
from cassq.pushing.push_result import PushFuture, PushLatch
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


def test_a_batch_has_messages_of_one_time_to_live_in_the_order_of_their_pushes():
    buffer = a_buffer()
    for ttl_ms in (0, 0, 5_000, 5_000, 0):
        latch = PushLatch(Label(ttl_ms))
        buffer.put_one(b"%d" % ttl_ms, NO_HEADERS, 1e12, latch)

    batches = [buffer.get() for _ in range(3)]

    told = [[(request.label.ttl_ms, list(request.bodies)) for request in batch] for batch in batches]
    assert told == [[(0, [b"0", b"0"])], [(5_000, [b"5000", b"5000"])], [(0, [b"0"])]]


def test_the_most_urgent_and_the_oldest_are_taken_in_turn_and_each_shares_its_batches():
    buffer = a_buffer()
    for number in range(6):
        buffer.put_one(b"%d" % number, NO_HEADERS, 1e12, PushLatch(Label(priority=number % 3)))

    batches = [buffer.get() for _ in range(3)]

    assert [[list(request.bodies) for request in batch] for batch in batches] == [
        [[b"2", b"5"]],
        [[b"0", b"3"]],
        [[b"1", b"4"]],
    ]
    assert not buffer.get()


def test_who_waits_too_long_behind_the_urgent_is_told_so():
    buffer = a_buffer()
    late = PushFuture()
    buffer.put_one(b"urgent", NO_HEADERS, 1e12, PushLatch(Label(priority=9)))
    buffer.put_one(b"late", NO_HEADERS, 0.0, late)

    buffer.get()

    assert type(late.exception(0)) is StorageUnavailableError


def test_who_waits_too_long_is_told_so_whatever_the_priority():
    buffer = a_buffer()
    latches = [PushLatch(Label(priority=priority)) for priority in (0, 9)]
    for latch in latches:
        buffer.put_one(b"late", NO_HEADERS, 0.0, latch)

    buffer.expire()

    for latch in latches:
        with pytest.raises(StorageUnavailableError):
            latch.result(lambda: None)
    assert not buffer.get()


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


def many(count, deadline=1e12, size=1, ends=None):
    """A request of so many messages; `ends` hears how it ended."""
    ended = [] if ends is None else ends
    return PushRequest(
        [bytes(size)] * count,
        [NO_HEADERS] * count,
        deadline,
        lambda ids, error: ended.append((len(ids), error)),
    )


def test_a_batch_takes_requests_while_they_fit_and_one_in_any_case():
    buffer = a_buffer(messages_max=5)
    for count in (2, 3, 1, 9, 1):
        buffer.put(many(count))

    taken = [[request.count for request in buffer.get()] for _ in range(4)]

    assert taken == [[2, 3], [1], [9], [1]]


def test_a_batch_carries_so_many_bytes_and_no_more():
    request = many(1, size=100)
    buffer = a_buffer(bytes_max=2 * request.size)
    for _ in range(3):
        buffer.put(many(1, size=100))

    assert [len(buffer.get()) for _ in range(2)] == [2, 1]


def test_what_waits_is_counted_whatever_leaves():
    buffer = a_buffer(messages_max=3)
    buffer.put(many(2))
    buffer.put(many(2, deadline=0.0))
    put_all(buffer, 3)
    assert buffer.messages == 7
    buffer.get()
    assert buffer.messages == 5
    buffer.expire()
    assert buffer.messages == 3
    buffer.get()
    assert buffer.messages == 0


def test_only_those_expire_whose_time_is_up_and_they_hear_that_nothing_was_pushed():
    buffer, late, early = a_buffer(), [], []
    buffer.put(many(1, deadline=0.0, ends=late))
    buffer.put(many(2, ends=early))

    buffer.expire()

    ((stored, error),) = late
    assert (stored, type(error)) == (0, StorageUnavailableError)
    assert not early
    assert [request.count for request in buffer.get()] == [2]


def test_what_a_busy_lane_gets_to_too_late_is_not_pushed():
    buffer = a_buffer()
    clock = SystemClock()
    late = put_all(buffer, 2, deadline=clock.now())
    (in_time,) = put_all(buffer, 1)

    (request,) = buffer.get()

    assert list(request.bodies) == [b"0"]
    assert not in_time.done()
    for future in late:
        with pytest.raises(StorageUnavailableError, match="not pushed"):
            future.result(0)


@pytest.mark.parametrize("full_of", ["messages", "bytes"])
def test_who_finds_no_room_is_told_that_nothing_was_pushed(monkeypatch, full_of):
    monkeypatch.setattr(push_buffer, f"BUFFER_{full_of.upper()}_MAX", 2)
    buffer = a_buffer()
    buffer.put(many(2))

    with pytest.raises(StorageUnavailableError, match="not pushed"):
        buffer.put(many(1, deadline=0.0))
    with pytest.raises(StorageUnavailableError, match="not pushed"):
        put_all(buffer, 1, deadline=0.0)
    assert buffer.messages == 2
    # And once there is room again it is let in, as is one that is larger than all the room there is
    buffer.get()
    buffer.put(many(3, deadline=0.0))
    assert buffer.messages == 3


def test_who_does_not_wait_for_room_is_told_at_once_and_nothing_is_pushed(monkeypatch):
    monkeypatch.setattr(push_buffer, "BUFFER_MESSAGES_MAX", 2)
    buffer, future = a_buffer(), PushFuture()
    future.is_patient = False
    buffer.put(many(2))

    with pytest.raises(OverloadedError, match="2 messages of 2 bytes"):
        buffer.put_one(b"x", {}, float("inf"), future)
    assert buffer.messages == 2
    buffer.get()
    assert buffer.put_one(b"x", {}, float("inf"), future)


def test_a_closed_buffer_takes_nothing_and_gives_what_is_in_it():
    buffer = a_buffer()
    put_all(buffer, 1)
    buffer.close()
    with pytest.raises(ClosedError):
        buffer.put(many(1))
    with pytest.raises(ClosedError):
        put_all(buffer, 1)
    assert not buffer.is_finished
    assert [request.count for request in buffer.get()] == [1]
    assert buffer.is_finished


class TestAPushThatInterruptedAnother:
    """As in a signal handler: the thread has the lock, so the message stands aside."""

    def put_aside(self, buffer):
        future = PushFuture()
        with buffer._lock:
            assert not buffer.put_one(b"aside", NO_HEADERS, 1e12, future)
        return future

    def test_is_not_left_behind_by_a_close(self):
        buffer = a_buffer()
        future = self.put_aside(buffer)
        buffer.close()
        assert not buffer.is_finished
        buffer.wait(0.0)
        (request,) = buffer.get()
        assert list(request.bodies) == [b"aside"]
        request.fail(StorageUnavailableError("gone"))
        assert future.done()
        assert buffer.is_finished

    def test_keeps_its_place_among_what_is_pushed_before_and_after(self):
        buffer = a_buffer()
        put_all(buffer, 1)
        self.put_aside(buffer)
        buffer.take_in()
        put_all(buffer, 1)
        assert buffer.messages == 3
        assert [list(request.bodies) for request in buffer.get()] == [[b"0"], [b"aside"], [b"0"]]

    def test_is_failed_with_what_waits_too_long(self):
        buffer = a_buffer()
        future = PushFuture()
        with buffer._lock:
            buffer.put_one(b"aside", NO_HEADERS, 0.0, future)
        buffer.expire()
        assert isinstance(future.exception(0), StorageUnavailableError)
        assert buffer.messages == 0

    def test_is_refused_where_it_would_wait_for_itself_or_the_buffer_is_closed(self):
        buffer = a_buffer()
        with buffer._lock:
            with pytest.raises(UsageError):
                buffer.put(many(1))
            with pytest.raises(UsageError):
                buffer.put_one(b"", NO_HEADERS, 1e12, PushLatch())
        buffer.close()
        with buffer._lock, pytest.raises(ClosedError):
            buffer.put_one(b"", NO_HEADERS, 1e12, PushFuture())


def test_nothing_joins_a_request_that_has_expired():
    buffer = a_buffer()
    put_all(buffer, 1, deadline=0.0)
    buffer.expire()
    # Whoever comes with as little patience still hears something
    (future,) = put_all(buffer, 1, deadline=SAME_PATIENCE_S / 2)
    buffer.expire()
    assert isinstance(future.exception(0), StorageUnavailableError)


@pytest.mark.parametrize("leaves", ["what is taken", "what expires"])
def test_the_room_of_what_leaves_is_free_again(monkeypatch, leaves):
    monkeypatch.setattr(push_buffer, "BUFFER_BYTES_MAX", 1000)
    buffer = a_buffer(messages_max=1)
    patience = 1e12 if leaves == "what is taken" else 0.0
    # Given a message that stays
    put_all(buffer, 1)
    for _ in range(5):
        buffer.put_one(bytes(600), NO_HEADERS, patience, PushFuture())
        if leaves == "what is taken":
            buffer.get()
        else:
            buffer.expire()
    assert buffer.messages == 1


class TestCallersThatAreWaitedFor:
    def test_a_caller_that_expired_is_counted_no_more(self):
        buffer = a_buffer()
        buffer.put_one(b"", NO_HEADERS, 0.0, PushLatch())
        buffer.put_one(b"", NO_HEADERS, 1e12, PushLatch())
        buffer.expire()
        assert buffer._callers == buffer.messages == 1
        buffer.get()
        assert buffer._callers == buffer.messages == 0
