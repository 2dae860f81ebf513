"""Messages that get another due time or another priority, on every store."""

import asyncio
import contextlib
import threading
from datetime import UTC, datetime, timedelta

import pytest
from support.patience import patiently, until

import cassq
import cassq.aio
from cassq.model.schedule import SOON_S
from cassq.model.shelf import Shelf
from cassq.popping.arrival_rate import ArrivalRate

#: By so much the clock of the database, as it is told in times of messages, is coarser than what is measured.
COARSE = timedelta(milliseconds=2)
AT_ONCE = timedelta(0)
HOUR = timedelta(hours=1)
State = cassq.MessageState


def database_time(queue):
    storage = queue._context.storage
    return datetime.fromtimestamp(storage.list_pipes(queue.name).now_ms / 1000, UTC)


def pop(popper, count=1):
    found = []
    while len(found) < count:
        found += popper.pop_many(count - len(found), timeout=60)
    return found


def due_since(delivery):
    """Return since when it was due; what became due in the millisecond of its push has no due time."""
    return delivery.due or delivery.pushed_at


def is_empty(popper):
    return patiently(lambda: popper.pop(timeout=0)) is None


@pytest.fixture
def queue(store, name):
    """A queue in which what comes back rests for long."""
    return store.queue(name, retry_delay=HOUR, retry_delay_max=HOUR, max_attempts=2)


class TestAMessageThatWaits:
    def test_comes_later_and_in_its_place_only_its_neighbours(self, queue):
        ids = [queue.push(b"%d" % number) for number in range(3)]

        assert queue.reschedule(ids[1], delay=HOUR)

        status = queue.status(ids[1])
        assert status.state is State.DELAYED
        assert timedelta(minutes=59) < status.due - database_time(queue) <= HOUR + COARSE
        assert [message.body for message in queue.peek(5)] == [b"0", b"2"]
        stats = queue.stats()
        assert (stats.waiting, stats.delayed, stats.pushed) == (2, 1, 3)
        with queue.popper() as popper:
            for delivery, body in zip(pop(popper, 2), [b"0", b"2"], strict=True):
                assert (delivery.body, delivery.due) == (body, None)
                delivery.commit()
            assert is_empty(popper)

    def test_is_not_early_and_keeps_all_that_it_was_pushed_with(self, queue):
        body, headers = bytes(range(256)) * 3000, {"tenant": "a", "b": "ö"}
        before = database_time(queue)
        message_id = queue.push(body, headers, priority=3, type="mail")
        queue.push(b"another")
        assert queue.reschedule(message_id, delay=timedelta(seconds=2))
        due_at = database_time(queue) + timedelta(seconds=1)
        with queue.popper(types=["mail"]) as popper:
            (delivery,) = pop(popper)
            assert due_at - COARSE <= delivery.due <= database_time(queue) + COARSE
            assert (delivery.body, delivery.headers) == (body, headers)
            assert (delivery.message_id, delivery.attempt) == (message_id, 1)
            assert (delivery.type, delivery.priority) == ("mail", 3)
            assert before - COARSE <= delivery.pushed_at <= due_at
            delivery.commit()
        assert queue.status(message_id).state in {State.COMMITTED, State.ENDED}

    @pytest.mark.parametrize("delay_s", [SOON_S - 2, SOON_S + 30, 86_400])
    def test_is_brought_forward(self, queue, delay_s):
        message_id = queue.push(b"x", delay=timedelta(seconds=delay_s))
        other = queue.push(b"y", delay=timedelta(seconds=delay_s))

        assert queue.reschedule(message_id, delay=AT_ONCE)

        assert queue.status(message_id).state is State.WAITING
        assert queue.status(other).state is State.DELAYED
        stats = queue.stats()
        assert (stats.waiting, stats.delayed, stats.pushed) == (1, 1, 2)
        with queue.popper(types=None) as popper:
            (delivery,) = pop(popper)
            assert (delivery.body, delivery.message_id) == (b"x", message_id)
            assert due_since(delivery) <= database_time(queue) + COARSE
            delivery.commit()

    @pytest.mark.parametrize("delay_s", [SOON_S - 2, SOON_S + 30, 86_400])
    def test_is_pushed_back(self, queue, delay_s):
        message_id = queue.push(b"x", delay=timedelta(seconds=delay_s))
        due = datetime.now(UTC) + timedelta(days=1800)

        assert queue.reschedule(message_id, due=due)

        assert abs(queue.status(message_id).due - due) <= COARSE
        assert queue.stats().delayed == 1
        assert queue.cancel(message_id)
        assert queue.stats().delayed == 0

    def test_is_due_at_once_where_its_time_has_passed(self, queue):
        message_id = queue.push(b"x", delay=HOUR, ttl=timedelta(minutes=1))
        zone = datetime.now().astimezone().tzinfo

        assert queue.reschedule(message_id, due=datetime.now(zone) - timedelta(days=3))

        with queue.popper() as popper:
            (delivery,) = pop(popper)
            assert delivery.message_id == message_id
            delivery.commit()

    def test_is_moved_as_often_as_somebody_wants(self, store, queue):
        message_id = queue.push(b"x")
        for delay in (HOUR, timedelta(seconds=3), timedelta(days=9), timedelta(seconds=20), AT_ONCE, HOUR):
            assert queue.reschedule(message_id, delay=delay)
            assert queue.stats().pushed == 1
        assert queue.reprioritise(message_id, 7)
        assert queue.status(message_id).state is State.DELAYED
        assert queue.reschedule(message_id, delay=AT_ONCE)
        with queue.popper() as popper:
            (delivery,) = pop(popper)
            assert (delivery.message_id, delivery.attempt, delivery.priority) == (message_id, 1, 7)
            delivery.commit()
            assert is_empty(popper)
        stats = queue.stats()
        assert (stats.pushed, stats.popped, stats.committed, stats.rolled_back) == (1, 1, 1, 0)
        store.delete_queue(queue.name)

    def test_leaves_nothing_behind_once_it_has_ended(self, store, queue):
        message_id = queue.push(b"x", delay=HOUR)
        for _ in range(4):
            assert queue.reschedule(message_id, delay=AT_ONCE)
        with queue.popper() as popper:
            pop(popper)[0].commit()
        storage = store.storage

        def moved():
            for _ in range(6):
                queue.reap()
            shelves = set(Shelf) - {Shelf.SCHEDULED}  # the open pile of the pusher
            return sum(len(storage.list_pipes(queue.name, shelf=shelf).entries) for shelf in shelves)

        until(lambda: moved() == 0)
        assert queue.status(message_id).state in {State.COMMITTED, State.ENDED}


class TestAMessageThatCameBack:
    def test_comes_at_once_and_goes_on_counting_to_its_dead_letter(self, queue):
        message_id = queue.push(b"x", type="a")
        queue.push(b"y", type="b")
        with queue.popper(types=["a"]) as popper:
            (delivery,) = pop(popper)
            assert delivery.rollback(reason="too early")
            assert queue.status(message_id).state is State.DELAYED
            assert is_empty(popper)
        assert queue.reschedule(message_id, delay=AT_ONCE)
        status = queue.status(message_id)
        assert (status.state, status.attempt, status.reason) == (State.WAITING, 1, "too early")
        with queue.popper(types=["a"]) as popper:
            (again,) = pop(popper)
            assert (again.message_id, again.attempt, again.body) == (message_id, 2, b"x")
            assert again.rollback(reason="again")
        until(lambda: queue.reap() and len(list(queue.dead)) == 1)
        (letter,) = queue.dead
        assert (letter.message_id, letter.attempts, letter.reason) == (message_id, 2, "again")
        assert queue.status(message_id).state is State.DEAD
        assert not queue.reschedule(message_id, delay=AT_ONCE)
        stats = queue.stats()
        assert (stats.pushed, stats.popped, stats.rolled_back, stats.dead) == (2, 1, 2, 1)

    def test_rests_for_longer_where_that_is_asked_for(self, queue):
        message_id = queue.push(b"x")
        with queue.popper() as popper:
            pop(popper)[0].rollback(delay=timedelta(seconds=2))
        assert queue.reschedule(message_id, delay=2 * HOUR)
        status = queue.status(message_id)
        assert (status.state, status.attempt) == (State.DELAYED, 1)
        assert status.due - database_time(queue) > HOUR
        stats = queue.stats()
        assert (stats.waiting, stats.delayed, stats.pending, stats.rolled_back) == (0, 1, 0, 1)

    def test_rests_as_before_with_another_priority(self, queue):
        message_id = queue.push(b"x")
        with queue.popper() as popper:
            pop(popper)[0].rollback()
        due = queue.status(message_id).due
        assert queue.reprioritise(message_id, 9)
        status = queue.status(message_id)
        assert (status.state, status.attempt, status.due) == (State.DELAYED, 1, due)
        assert queue.reschedule(message_id, delay=AT_ONCE)
        with queue.popper() as popper:
            (delivery,) = pop(popper)
            assert (delivery.attempt, delivery.priority) == (2, 9)
            delivery.commit()

    def test_leaves_those_that_came_back_with_it(self, queue):
        ids = queue.push_many([b"%d" % number for number in range(5)])
        with queue.popper() as popper:
            popper.rollback_many(pop(popper, 5))
        assert queue.reschedule(ids[2], delay=AT_ONCE)
        with queue.popper() as popper:
            (delivery,) = pop(popper)
            assert (delivery.body, delivery.attempt) == (b"2", 2)
            delivery.commit()
            assert is_empty(popper)
        stats = queue.stats()
        assert (stats.delayed, stats.rolled_back, stats.committed, stats.popped) == (4, 5, 1, 5)
        for message_id in {*ids} - {ids[2]}:
            assert queue.status(message_id).state is State.DELAYED


class TestWhatIsNotMoved:
    def test_is_what_somebody_has(self, queue):
        message_id = queue.push(b"x")
        with queue.popper() as popper:
            (delivery,) = pop(popper)
            assert not queue.reschedule(message_id, delay=HOUR)
            assert not queue.reprioritise(message_id, 9)
            delivery.commit()
        assert queue.status(message_id).state is State.COMMITTED
        assert queue.stats().committed == 1

    def test_is_what_has_ended_or_never_was(self, store, queue):
        committed, cancelled, purged = (queue.push(b"x") for _ in range(3))
        with queue.popper() as popper:
            pass
        assert queue.cancel(cancelled)
        with queue.popper() as popper:
            for delivery in pop(popper, 2):
                if delivery.message_id == committed:
                    delivery.commit()
                else:
                    delivery.give_back()
        assert queue.purge() == 1
        beyond = cassq.MessageId(committed.pipe, 99)
        other = store.queue(f"{queue.name}-other").push(b"x")
        unknown = cassq.MessageId(cassq.MessageId.parse(str(other)).pipe, 1)
        for message_id in (committed, cancelled, purged, beyond, unknown):
            assert not queue.reschedule(message_id, delay=AT_ONCE)
            assert not queue.reprioritise(str(message_id), 1)
        with queue.popper() as popper:
            assert is_empty(popper)
        assert queue.stats().purged == 2

    def test_is_told_by_errors_where_a_call_is_wrong(self, queue):
        message_id = queue.push(b"x")
        day = datetime.now(UTC) + timedelta(days=1)
        for options, words in (
            ({}, "give a delay or a due time"),
            ({"delay": HOUR, "due": day}, "give one of them"),
            ({"due": day.replace(tzinfo=None)}, "time zone"),
            ({"due": "tomorrow"}, "time zone"),
            ({"due": day + timedelta(days=2000)}, "1830 are allowed"),
            ({"delay": 5}, "timedelta"),
            ({"delay": -HOUR}, "timedelta from 0"),
            ({"delay": timedelta(days=2000)}, "to 1830 days"),
        ):
            with pytest.raises(cassq.InvalidOptionError, match=words):
                queue.reschedule(message_id, **options)
        for priority in (-1, 10, 1.0, True, None, "5"):
            with pytest.raises(cassq.InvalidOptionError, match="priority"):
                queue.reprioritise(message_id, priority)
        for wrong in ("nonsense", 5, None):
            with pytest.raises(cassq.UsageError, match="id"):
                queue.reschedule(wrong, delay=HOUR)
        assert queue.status(message_id).state is State.WAITING
        assert queue.stats().pipes == 1

    def test_is_anything_of_a_queue_that_somebody_else_deleted(self, queue, url):
        ids = [queue.push(b"x"), queue.push(b"y", delay=HOUR)]
        if url == "memory:":
            return  # nobody else has it
        with cassq.connect(url) as other:
            other.delete_queue(queue.name)
        for message_id in ids:
            with contextlib.suppress(cassq.QueueNotFoundError):  # as soon as this process hears of it
                assert not queue.reschedule(message_id, delay=AT_ONCE)
            with contextlib.suppress(cassq.QueueNotFoundError):
                assert not queue.reprioritise(message_id, 3)

    def test_is_anything_of_a_queue_that_is_closed(self, store, queue):
        message_id = queue.push(b"x")
        store.delete_queue(queue.name)
        for call in (
            lambda: queue.reschedule(message_id, delay=HOUR),
            lambda: queue.reprioritise(message_id, 3),
        ):
            with pytest.raises(cassq.ClosedError):
                call()


class TestAnotherPriority:
    def test_lets_a_message_go_first_and_keeps_its_ttl_and_type(self, queue):
        first = queue.push(b"first", type="a")
        second = queue.push(b"second", type="a", ttl=HOUR)
        assert queue.reprioritise(second, 9)
        assert [each.message_id for each in queue.peek(5)] == [second, first]
        assert {each.priority: each.waiting for each in queue.stats().priorities} == {9: 1, 0: 1}
        with queue.popper(types=["a"]) as popper:
            one, other = pop(popper, 2)
            assert [(each.body, each.priority, each.type) for each in (one, other)] == [
                (b"second", 9, "a"), (b"first", 0, "a")
            ]  # fmt: skip
            one.commit()
            other.commit()

    def test_leaves_a_due_time_as_it_is(self, queue):
        for delay in (timedelta(seconds=SOON_S - 3), HOUR):
            message_id = queue.push(b"x", delay=delay, priority=2)
            due = queue.status(message_id).due
            assert queue.reprioritise(message_id, 0)
            status = queue.status(message_id)
            assert (status.state, status.due) == (State.DELAYED, due)
        stats = queue.stats()
        assert [(each.priority, each.delayed) for each in stats.priorities if each.delayed] == [(0, 2)]


class TestTimeToLive:
    """Counts from the due time, and from the push of what has none."""

    def test_of_a_message_counts_from_its_new_due_time(self, queue):
        message_id = queue.push(b"x", ttl=timedelta(seconds=1), delay=HOUR)
        assert queue.reschedule(message_id, delay=timedelta(seconds=1))
        with queue.popper() as popper:
            pop(popper)[0].commit()
        gone = queue.push(b"y", ttl=timedelta(seconds=1), delay=HOUR)
        assert queue.reschedule(gone, delay=AT_ONCE)
        until(lambda: queue.reap() and queue.status(gone).state in {State.EXPIRED, State.ENDED})
        until(lambda: queue.stats().expired == 1)

    def test_of_a_queue_counts_so_too(self, store, name):
        queue = store.queue(f"{name}-ttl", ttl=timedelta(seconds=1))
        message_id = queue.push(b"x")
        assert queue.reschedule(message_id, delay=timedelta(seconds=2))
        with queue.popper() as popper:
            (delivery,) = pop(popper)
            assert delivery.message_id == message_id
            delivery.commit()


def test_what_was_moved_is_cancelled_and_purged_by_its_first_id(queue):
    ids = [queue.push(b"%d" % number, delay=delay) for number, delay in enumerate((AT_ONCE, HOUR, HOUR))]
    for message_id in ids:
        assert queue.reschedule(message_id, delay=2 * HOUR)
    assert queue.cancel(ids[0])
    assert queue.cancel(ids[0])
    assert not queue.reschedule(ids[0], delay=AT_ONCE)
    assert queue.status(ids[0]).state is State.PURGED
    assert queue.reschedule(ids[1], delay=AT_ONCE)
    assert queue.purge() == 2
    for message_id in ids:
        assert queue.status(message_id).state in {State.PURGED, State.ENDED}
        assert not queue.reschedule(message_id, delay=AT_ONCE)
    stats = queue.stats()
    assert (stats.waiting, stats.delayed, stats.purged, stats.pushed) == (0, 0, 3, 3)
    with queue.popper() as popper:
        assert is_empty(popper)


def test_a_deleted_queue_leaves_nothing_that_was_moved(store, queue):
    for delay in (AT_ONCE, timedelta(seconds=5), HOUR):
        message_id = queue.push(b"x", delay=delay)
        for again in (HOUR, AT_ONCE, timedelta(days=3)):
            assert queue.reschedule(message_id, delay=again)
    storage = store.storage
    store.delete_queue(queue.name)
    assert not any(storage.list_pipes(queue.name, shelf=shelf).entries for shelf in Shelf)


def test_what_is_moved_in_a_paused_queue_waits_for_its_end(queue):
    ids = [queue.push(b"x", delay=delay) for delay in (AT_ONCE, HOUR)]
    queue.pause()
    with queue.popper() as popper:
        for message_id in ids:
            assert queue.reschedule(message_id, delay=AT_ONCE)
        assert queue.reprioritise(ids[1], 5)
        assert is_empty(popper)
        queue.resume()
        assert {delivery.message_id for delivery in pop(popper, 2)} == set(ids)


def test_a_window_that_is_out_makes_way(store, queue, monkeypatch):
    monkeypatch.setattr(ArrivalRate, "is_fast", lambda *_: True)
    with queue.popper() as popper:
        message_id = queue.push(b"0")
        pop(popper)[0].commit()
        assert popper.pop(timeout=0.1) is None
        until(lambda: (state := store.storage.load_pipe(message_id.pipe)) and state.window)

        late = queue.push_soon(b"1").result()
        was_in_time = queue.reschedule(late, delay=HOUR)

        # Either the popper had it, or nobody gets it before its hour is over.
        if was_in_time:
            assert is_empty(popper)
            assert queue.reschedule(late, delay=AT_ONCE)
        (delivery,) = pop(popper)
        assert delivery.message_id == late
        delivery.commit()
    stats = queue.stats()
    assert (stats.pushed, stats.committed) == (2, 2)


def test_moves_beside_poppers_lose_nothing_and_give_nothing_twice(queue):
    count = 60
    ids = queue.push_many([b"%d" % number for number in range(count)], delay=timedelta(seconds=2))
    came, moved = [], []

    def move():
        for number, message_id in enumerate(ids):
            delay = AT_ONCE if number % 2 else timedelta(seconds=1)
            moved.append(patiently(lambda m=message_id, d=delay: queue.reschedule(m, delay=d)))

    moving = threading.Thread(target=move)
    moving.start()
    with queue.popper() as popper:
        while len(came) < count:
            for delivery in popper.pop_many(7, timeout=60):
                assert due_since(delivery) <= database_time(queue) + COARSE
                came.append(delivery.message_id)
                delivery.commit()
        moving.join()
        assert is_empty(popper)
    assert sorted(came) == sorted(ids)
    assert len(moved) == count


def test_a_task_moves_messages(store, queue):
    async def main():
        async with cassq.aio.Store(store) as wrapped:
            opened = await wrapped.queue(queue.name)
            message_id = await opened.push(b"x", delay=HOUR)
            assert await opened.reprioritise(message_id, 4)
            assert await opened.reschedule(message_id, due=datetime.now(UTC))
            with pytest.raises(cassq.InvalidOptionError):
                await opened.reschedule(message_id)
            async with opened.popper() as popper:
                delivery = await popper.pop(timeout=60)
                assert not await opened.reschedule(message_id, delay=HOUR)
                await delivery.commit()
                return delivery.priority, delivery.message_id == message_id

    assert asyncio.run(main()) == (4, True)
