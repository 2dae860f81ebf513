"""Futures of messages: who ends them, and that a cancelled one is given nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from cassq.errors import ClosedError, OverloadedError, StorageUnavailableError, UsageError
from cassq.model.ids import new_pipe_id
from cassq.model.message import Batch
from cassq.popping.delivery import BatchSlice
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.timing import LOOK_TIMEOUT_S
from cassq.runtime.clock import SystemClock
from cassq.runtime.reentry import noted

WAIT_S = 60.0


class Clock(SystemClock):
    """Stands still."""

    at = 100.0

    def now(self):
        return self.at


class Run:
    is_live, pipe, attempt, lease_s, left_s = True, new_pipe_id(), 1, 30.0, 30.0
    events = None


class Asker:
    is_closed = False


class Bodies:
    """What a committer is to a delivery that nobody commits."""

    def commit(self, deliveries):
        raise AssertionError(f"nobody asked for {deliveries}")


def messages(*bodies, run=None):
    return [BatchSlice(run or Run(), Batch(1, bodies, None, len(bodies), 0), Bodies())]


def bodies(future):
    return [each.body for each in future.result(WAIT_S)]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def buffer(clock):
    made = DeliveryBuffer(clock)
    yield made
    made.close()
    made.answers.shutdown(wait=False)


def told(buffer):
    """Wait until the futures' thread has done what it was asked for."""
    buffer.answers.submit(lambda: None).result(WAIT_S)


def test_what_comes_goes_to_who_came_first_and_what_is_there_at_once(buffer):
    first, second = buffer.get_soon(1), buffer.get_soon(2)
    buffer.put(messages(b"1", b"2", b"3", b"4"))
    assert (bodies(first), bodies(second)) == ([b"1"], [b"2", b"3"])
    assert bodies(buffer.get_soon(9)) == [b"4"]


def test_who_cancels_is_given_nothing_and_the_next_one_is(buffer):
    first, second = buffer.get_soon(1), buffer.get_soon(1)
    assert first.cancel()
    assert first.cancel()
    buffer.put(messages(b"1"))
    assert bodies(second) == [b"1"]
    assert not second.cancel()
    assert buffer.take_back() == {}


def test_who_cancels_what_is_on_its_way_is_told_so(buffer):
    held = threading.Event()
    future = buffer.get_soon(1)
    buffer.answers.submit(held.wait)  # the futures' thread has other things to do
    buffer.put(messages(b"1"))
    assert not future.done()
    assert not future.cancel()
    held.set()
    assert bodies(future) == [b"1"]


def test_what_ended_before_its_consumer_could_look_is_given_to_nobody(buffer):
    future, other = buffer.get_soon(1), buffer.get_soon(1)
    run = Run()
    with buffer._lock:
        buffer.put(messages(b"late", run=run))
        run.is_live = False
    told(buffer)
    assert not future.done()
    buffer.put(messages(b"1", b"2"))
    assert (bodies(future), bodies(other)) == ([b"1"], [b"2"])


def test_who_waits_for_many_hears_of_a_cancelled_one(buffer):
    before, after = buffer.get_soon(1), buffer.get_soon(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, [before], WAIT_S)
        before.cancel()
        after.cancel()
        assert waiting.result(WAIT_S).done == {before}
    assert wait([before, after], WAIT_S).done == {before, after}
    assert after.cancel()


def test_a_callback_that_exits_stops_nobody(buffer):
    def leave(_):
        raise SystemExit(1)

    first, second = buffer.get_soon(1), buffer.get_soon(1)
    first.add_done_callback(leave)
    buffer.put(messages(b"1", b"2"))
    assert bodies(second) == [b"2"]


class TestHurried:
    @pytest.mark.parametrize("is_listening", [True, False])
    def test_without_a_look_it_ends_where_a_push_would_have_woken_the_popper(self, buffer, is_listening):
        buffer.alarm.is_listening = is_listening
        future = buffer.get_soon(1)
        buffer.alarm.is_listening = True
        future.hurry(is_looking=False)
        told(buffer)
        assert future.done() is is_listening
        if not is_listening:  # nobody listened when it came
            assert buffer.alarm.is_look_asked
            buffer.end_round(buffer.begin_round())
        assert future.result(WAIT_S) == []

    def test_it_ends_with_nothing_only_after_a_look_that_began_later(self, buffer):
        number = buffer.begin_round()
        future = buffer.get_soon(1)
        future.hurry()
        told(buffer)
        assert buffer.alarm.is_look_asked
        buffer.end_round(number)
        told(buffer)
        assert not future.done()
        buffer.end_round(buffer.begin_round())
        assert future.result(WAIT_S) == []

    def test_it_ends_with_what_the_look_finds(self, buffer):
        future = buffer.get_soon(1)
        future.hurry()
        number = buffer.begin_round()
        buffer.put(messages(b"1"))
        buffer.end_round(number)
        assert bodies(future) == [b"1"]

    def test_it_ends_with_why_the_look_failed(self, buffer):
        future = buffer.get_soon(1)
        future.hurry()
        buffer.end_round(buffer.begin_round(), StorageUnavailableError("away"))
        with pytest.raises(StorageUnavailableError, match="away"):
            future.result(WAIT_S)

    def test_a_later_call_ends_it_where_no_look_has_ended(self, clock, buffer):
        future = buffer.get_soon(1)
        future.hurry()
        clock.at += LOOK_TIMEOUT_S / 2
        future.hurry()
        told(buffer)
        assert not future.done()
        clock.at += LOOK_TIMEOUT_S / 2
        future.hurry()
        with pytest.raises(StorageUnavailableError, match=f"within {LOOK_TIMEOUT_S:g} s"):
            future.result(WAIT_S)

    def test_once_it_has_ended_nothing_happens(self, buffer):
        buffer.put(messages(b"1"))
        future = buffer.get_soon(1)
        assert bodies(future) == [b"1"]
        future.hurry()
        told(buffer)
        assert bodies(future) == [b"1"]


def test_all_end_with_the_buffer_and_those_of_a_popper_with_it(buffer):
    mine, other = Asker(), Asker()
    first, second = buffer.get_soon(1, mine), buffer.get_soon(1, other)
    mine.is_closed = True
    buffer.leave(mine)
    with pytest.raises(ClosedError):
        first.result(WAIT_S)
    told(buffer)
    assert not second.done()
    with pytest.raises(ClosedError):
        buffer.get_soon(1, mine)
    buffer.close()
    with pytest.raises(ClosedError):
        second.result(WAIT_S)
    with pytest.raises(ClosedError):
        buffer.get_soon(1, other)


def test_what_is_wrong_for_good_ends_them(buffer):
    future = buffer.get_soon(1)
    buffer.end_round(buffer.begin_round(), UsageError("it was deleted"))
    with pytest.raises(UsageError, match="deleted"):
        future.result(WAIT_S)
    # A later one waits for a look of its own
    later = buffer.get_soon(1)
    told(buffer)
    assert not later.done()
    buffer.put(messages(b"1"))
    assert bodies(later) == [b"1"]


def test_no_more_wait_than_there_is_room_for(buffer, monkeypatch):
    monkeypatch.setattr("cassq.popping.pop_future.WAITERS_MAX", 2)
    first, second = buffer.get_soon(1), buffer.get_soon(1)
    with pytest.raises(OverloadedError, match="2 pops wait already"):
        buffer.get_soon(1)
    assert second.cancel()
    third = buffer.get_soon(1)
    buffer.put(messages(b"1", b"2"))
    assert (bodies(first), bodies(third)) == ([b"1"], [b"2"])


def test_a_thousand_wait_without_a_thread_each(buffer):
    before = threading.active_count()
    futures = [buffer.get_soon(1) for _ in range(1000)]
    assert threading.active_count() <= before + 1
    buffer.put(messages(*[b"%d" % number for number in range(1000)]))
    assert [bodies(future) for future in futures] == [[b"%d" % number] for number in range(1000)]


def test_in_the_middle_of_another_call_of_its_thread_nothing_is_done(buffer):
    future = buffer.get_soon(1)
    with buffer._lock:
        for call in (lambda: buffer.get_soon(1), future.cancel, future.hurry):
            with pytest.raises(UsageError, match="interrupted another call"):
                call()
    with noted():
        for call in (future.result, future.exception):
            with pytest.raises(UsageError, match="interrupted another call"):
                call()
    buffer.put(messages(b"1"))
    assert future.exception(WAIT_S) is None


def test_a_callback_may_ask_for_the_next(buffer):
    found = []
    ended = threading.Event()

    def go_on(future):
        found.extend(each.body for each in future.result())
        if len(found) < 3:
            buffer.get_soon(1).add_done_callback(go_on)
        else:
            ended.set()

    buffer.get_soon(1).add_done_callback(go_on)
    buffer.put(messages(b"1", b"2", b"3"))
    assert ended.wait(WAIT_S)
    assert found == [b"1", b"2", b"3"]


class TestGivenBack:
    def test_one_that_waits_is_given_nothing(self, buffer):
        first, second = buffer.get_soon(1), buffer.get_soon(1)
        first.give_back()
        buffer.put(messages(b"1"))
        assert first.cancelled()
        assert bodies(second) == [b"1"]

    def test_what_it_has_ended_with_goes_to_the_next_in_line(self, buffer):
        buffer.put(messages(b"1", b"2"))
        future, other = buffer.get_soon(2), buffer.get_soon(2)
        (first, second) = future.result(WAIT_S)
        future.give_back()
        assert bodies(other) == [b"1", b"2"]
        for each in (first, second):
            with pytest.raises(ClosedError, match="given back before"):
                each.commit()

    def test_what_is_on_its_way_goes_to_the_next_in_line(self, buffer):
        held = threading.Event()
        future = buffer.get_soon(1)
        buffer.answers.submit(held.wait)
        buffer.put(messages(b"1"))
        future.give_back()
        held.set()
        told(buffer)
        assert bodies(buffer.get_soon(1)) == [b"1"]

    def test_what_its_caller_has_ended_stays_so(self, buffer):
        buffer.put(messages(b"1", b"2", b"3"))
        future = buffer.get_soon(3)
        future.result(WAIT_S)[1].finish("committed")
        future.give_back()
        assert bodies(buffer.get_soon(3)) == [b"1", b"3"]

    def test_what_has_little_of_its_lease_left_goes_back_through_the_database(self, buffer):
        returned = threading.Event()

        class Ending(Run):
            left_s = Run.lease_s / 3

            def give_back(self, parts, how, messages):
                assert (list(parts), how.is_counted) == ([(1, 1)], False)
                returned.set()

        buffer.put(messages(b"1", run=Ending()))
        future = buffer.get_soon(1)
        future.result(WAIT_S)
        future.give_back()
        assert returned.wait(WAIT_S)
        assert buffer.take_back() == {}

    def test_nothing_comes_of_an_error(self, buffer):
        future = buffer.get_soon(1)
        future.hurry()
        buffer.end_round(buffer.begin_round(), StorageUnavailableError("away"))
        told(buffer)
        future.give_back()
        assert isinstance(future.exception(), StorageUnavailableError)

    def test_in_the_middle_of_another_call_of_its_thread_nothing_is_done(self, buffer):
        buffer.put(messages(b"1"))
        future = buffer.get_soon(1)
        (delivery,) = future.result(WAIT_S)
        with buffer._lock, pytest.raises(UsageError, match="interrupted another call"):
            future.give_back()
        delivery.check_unfinished()
