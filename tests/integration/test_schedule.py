"""Messages that are due later, on every store."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from support.patience import patiently, until

import cassq
import cassq.aio
from cassq.model.schedule import SOON_S, class_of
from cassq.model.shelf import Shelf
from cassq.model.uses import uses_due

#: By so much the clock of the database, as it is told in times of messages, is coarser than what is measured.
COARSE = timedelta(milliseconds=2)


@pytest.fixture
def queue(store, name):
    return store.queue(name)


def database_time(queue):
    storage = queue._context.storage
    return datetime.fromtimestamp(storage.list_pipes(queue.name).now_ms / 1000, UTC)


def pop(popper, count):
    found = []
    while len(found) < count:
        found += popper.pop_many(count - len(found), timeout=60)
    return found


def test_what_waits_a_moment_to_be_stored_goes_into_a_pile_of_its_class(queue):
    least_s = 15_360
    futures = [queue.push_soon(b"%d" % number, delay=timedelta(seconds=least_s)) for number in range(300)]
    for future in futures:
        future.result()

    storage = queue._context.storage
    entries = [entry for shelf in Shelf for entry in storage.list_pipes(queue.name, shelf=shelf).entries]
    assert {entry.due_class for entry in entries} == {class_of(least_s)}


def test_nothing_comes_before_its_delay_has_passed(queue):
    dice = random.Random(3)
    begun = {}
    futures = []
    for number in range(200):
        delay = timedelta(seconds=dice.choice([0, 0.001, 0.3, dice.random() * 2]))
        body = b"%d" % number
        begun[body] = (database_time(queue) if number % 50 == 0 else None, delay)
        futures.append((body, queue.push_soon(body, delay=delay)))
    ids = {body: future.result() for body, future in futures}
    with queue.popper() as popper:
        came = []
        while len(came) < 200:
            for delivery in popper.pop_many(50, timeout=60):
                now = database_time(queue)
                at, delay = begun[delivery.body]
                assert delivery.due is None or delivery.due <= now + COARSE
                assert at is None or at + delay <= now + COARSE
                assert delivery.message_id == ids[delivery.body]
                assert (delivery.due is None) == (delay == timedelta(0))
                delivery.commit()
                came.append(delivery.body)
        assert len(set(came)) == 200
        assert patiently(lambda: popper.pop(timeout=0)) is None


def test_a_due_time_is_a_time_in_any_zone_and_the_past_is_now(queue):
    now = datetime.now(UTC)
    queue.push(b"old", due=now - timedelta(days=1))
    queue.push(b"new", due=now + timedelta(days=1))
    with queue.popper() as popper:
        (delivery,) = pop(popper, 1)
        assert delivery.body == b"old"
        delivery.commit()
        assert patiently(lambda: popper.pop(timeout=0)) is None
    assert queue.stats().delayed == 1
    assert queue.purge() == 1


def test_who_waits_is_served_when_a_message_is_due(queue):
    with queue.popper() as popper:
        queue.push(b"x", delay=timedelta(seconds=1))
        delivery = popper.pop(timeout=60)
        assert delivery.body == b"x"
        delivery.commit()


def test_what_is_not_due_is_delayed_and_may_be_cancelled(queue):
    soon = queue.push(b"soon", delay=timedelta(seconds=SOON_S - 1))
    later = queue.push(b"later", delay=timedelta(hours=1))
    years = queue.push(b"years", delay=timedelta(days=1800))
    assert uses_due(queue.settings)
    stats = queue.stats()
    assert (stats.waiting, stats.delayed, stats.pushed) == (0, 3, 3)
    for message_id in (soon, later, years):
        status = queue.status(message_id)
        assert status.state is cassq.MessageState.DELAYED
        assert status.due > datetime.now(UTC)
    assert queue.peek() == []
    assert queue.cancel(later)
    assert queue.status(later).state is cassq.MessageState.PURGED
    assert queue.stats().delayed == 2
    assert queue.purge() == 2
    assert queue.stats().delayed == 0


def test_what_is_held_goes_back_when_its_popper_closes(store, queue):
    queue.push(b"x", delay=timedelta(seconds=6))
    with queue.popper() as popper:
        assert popper.pop(timeout=1) is None
        assert queue.stats().pending == 1
    stats = queue.stats()
    assert (stats.pending, stats.rolled_back) == (0, 0)
    with queue.popper() as popper:
        (delivery,) = pop(popper, 1)
        assert delivery.attempt in {1, 2}
        assert delivery.due <= database_time(queue) + COARSE
        delivery.commit()


def test_piles_are_sorted_in_time_and_ids_stay(store, queue):
    dice = random.Random(5)
    delays = [SOON_S + dice.random() * 5 for _ in range(300)]
    ids = {}
    pushed_at = database_time(queue)
    for number, delay in enumerate(delays):
        future = queue.push_soon(b"%d" % number, {"n": str(number)}, delay=timedelta(seconds=delay), type="a")
        ids[number] = future
    ids = {number: future.result() for number, future in ids.items()}
    assert queue.stats().delayed == 300
    cancelled = ids.pop(7)
    assert queue.cancel(cancelled)
    with queue.popper(types=["a"]) as popper:
        deliveries = []
        while len(deliveries) < 299:
            for delivery in popper.pop_many(100, timeout=60):
                assert delivery.due <= database_time(queue) + COARSE
                deliveries.append(delivery)
                delivery.commit()
    numbers = [int(each.body) for each in deliveries]
    assert sorted(numbers) == sorted(ids)
    for each in deliveries:
        number = int(each.body)
        assert each.message_id == ids[number]
        assert each.headers == {"n": str(number)}
        assert each.due >= pushed_at + timedelta(seconds=delays[number]) - COARSE
        assert each.pushed_at < pushed_at + timedelta(seconds=SOON_S)
        assert each.type == "a"
    assert queue.status(ids[3]).state in {cassq.MessageState.COMMITTED, cassq.MessageState.ENDED}
    stats = queue.stats()
    assert (stats.pushed, stats.committed, stats.purged) == (300, 299, 1)
    assert (stats.waiting, stats.delayed, stats.pending) == (0, 0, 0)


def test_a_dead_letter_has_the_id_that_its_push_returned(store, name):
    queue = store.queue(name, max_attempts=1)
    message_id = queue.push(b"x", delay=timedelta(seconds=SOON_S + 0.5))
    other = queue.push(b"y", delay=timedelta(seconds=SOON_S + 0.1))
    with queue.popper() as popper:
        first, second = pop(popper, 2)
        assert [first.body, second.body] == [b"y", b"x"]
        first.commit()
        second.reject("planted")
    assert [letter.message_id for letter in queue.dead] == [message_id]
    assert queue.status(message_id).state is cassq.MessageState.DEAD
    assert queue.status(other).state in {cassq.MessageState.COMMITTED, cassq.MessageState.ENDED}


def test_a_deleted_queue_leaves_nothing_that_is_scheduled(store, name):
    queue = store.queue(name)
    for delay in (1, 30, 3000):
        queue.push(b"x", delay=timedelta(seconds=delay))
    storage = queue._context.storage
    assert sum(len(storage.list_pipes(name, shelf=shelf).entries) for shelf in Shelf) == 3
    store.delete_queue(name)
    assert not any(storage.list_pipes(name, shelf=shelf).entries for shelf in Shelf)


def test_a_ttl_counts_from_the_due_time(queue):
    queue.push(b"x", delay=timedelta(seconds=3), ttl=timedelta(seconds=2))
    with queue.popper() as popper:
        (delivery,) = pop(popper, 1)
        assert delivery.body == b"x"
        delivery.commit()


def test_push_many_gives_all_one_due_time(queue):
    queue.push_many([b"%d" % number for number in range(2500)], delay=timedelta(seconds=1))
    with queue.popper() as popper:
        deliveries = pop(popper, 2500)
        assert len({each.due for each in deliveries}) == 1
        assert deliveries[0].due <= database_time(queue) + COARSE
        for each in deliveries:
            each.commit_soon()
    until(lambda: queue.stats().committed == 2500)


def test_a_task_pushes_with_a_delay(store, queue):
    async def push_and_pop():
        async with cassq.aio.Store(store) as wrapped:
            scheduled = await wrapped.queue(queue.name)
            await scheduled.push(b"x", delay=timedelta(seconds=0.5))
            async with scheduled.popper() as popper:
                delivery = await popper.pop(timeout=60)
                await delivery.commit()
                return delivery.body

    assert asyncio.run(push_and_pop()) == b"x"


def test_a_run_reader_gets_nothing_that_is_not_due(queue):
    queue.push(b"later", delay=timedelta(hours=1))
    soon_at = database_time(queue) + timedelta(seconds=2)
    queue.push(b"soon", delay=timedelta(seconds=2))
    queue.push(b"now")
    reader = queue.run_reader("r", lease=timedelta(minutes=1))
    found = 0
    while found < 2:
        for run in reader.take(10):
            found += run.count
        assert found < 2 or soon_at <= database_time(queue) + COARSE
        reader.wait()
    reader.close()
    assert queue.stats().delayed == 1


def test_bad_due_times_are_refused_and_nothing_is_pushed(queue):
    for options in (
        {"delay": timedelta(days=2000)},
        {"delay": 5},
        {"delay": timedelta(seconds=-1)},
        {"due": datetime(2030, 1, 1)},  # noqa: DTZ001 - it is to be refused
        {"due": datetime(2030, 1, 1, tzinfo=UTC), "delay": timedelta(1)},
        {"due": datetime.now(UTC) + timedelta(days=2000)},
    ):
        with pytest.raises(cassq.InvalidOptionError, match=r"due|delay"):
            queue.push(b"x", **options)
    assert queue.stats().pushed == 0
