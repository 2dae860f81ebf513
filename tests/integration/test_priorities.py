"""Urgent messages before others, on every store."""

import asyncio
import threading
from contextlib import nullcontext
from datetime import timedelta

import pytest
from support.patience import until

import cassq
import cassq.aio
from cassq.model.uses import uses_priority
from cassq.popping import buffered_leases, delivery_buffer

NEVER = timedelta(0)

#: What a consumer has to do for each message, and more of them than it works off in any time that counts.
WORK_S = 0.001
BACKLOG = 5_000


@pytest.fixture
def queue(store, name):
    return store.queue(name, ageing=NEVER)


def bodies(popper, count, work_s=0.0):
    """Pop one by one, so that what is in hand is known."""
    found = []
    while len(found) < count:
        with popper.pop(timeout=60) as delivery:
            found.append(delivery.body)
            threading.Event().wait(work_s)
    return found


def overtaken(popper, count):
    """Return how many others come before so many urgent ones have come."""
    others = 0
    while count:
        with popper.pop(timeout=60) as delivery:
            is_urgent = delivery.body == b"urgent"
            threading.Event().wait(WORK_S)
        count -= is_urgent
        others += not is_urgent
    return others


def test_the_higher_priority_goes_first_and_each_in_the_order_of_its_pushes(queue):
    for number in range(3):
        for priority in (0, 9, 4):
            queue.push(b"%d %d" % (priority, number), priority=priority)
    order = [b"%d %d" % (priority, number) for priority in (9, 4, 0) for number in range(3)]
    assert [message.body for message in queue.peek(9)] == order
    with queue.popper() as popper:
        assert bodies(popper, 9) == order


def test_what_is_urgent_overtakes_a_backlog_that_is_being_worked_off(queue):
    # Given a consumer in the middle of a backlog
    queue.push_many([b"backlog"] * BACKLOG)
    with queue.popper() as popper:
        assert set(bodies(popper, 100)) == {b"backlog"}
        # When something urgent comes
        queue.push(b"urgent", priority=1)
        until(lambda: uses_priority(queue.settings))
        # Then it does not wait for the rest
        assert overtaken(popper, 1) < BACKLOG - 100


def test_a_message_that_waited_for_long_enough_goes_before_a_more_urgent_one(store, name):
    queue = store.queue(name, ageing=timedelta(milliseconds=1))
    queue.push(b"old")
    until(lambda: queue.stats().oldest_age > timedelta(milliseconds=20))
    queue.push(b"urgent", priority=9)
    assert [message.body for message in queue.peek()] == [b"old", b"urgent"]


def test_the_ageing_of_a_queue_can_be_altered(store, queue):
    queue.push(b"old")
    queue.push(b"urgent", priority=1)
    store.alter_queue(queue.name, ageing=timedelta(milliseconds=1))
    until(lambda: queue.peek(1)[0].body == b"old")


def test_a_consumer_that_works_for_long_leaves_what_is_urgent_to_others(queue, store, url, monkeypatch):
    # Given poppers that do not give up what they have, however long nobody comes
    for module in (delivery_buffer, buffered_leases):
        monkeypatch.setattr(module, "IDLE_S", 3600.0)
    # And one whose consumer came for urgent messages, and is at work now
    queue.push_many([b"urgent"] * 10, priority=5)
    queue.push_many([b"later"] * BACKLOG)
    with (
        queue.popper() as popper,
        nullcontext(store) if url == "memory:" else cassq.connect(url) as other,
    ):
        first = popper.pop(timeout=60)
        assert first.body == b"urgent"
        # When one of another process comes, or one that shares nothing with it
        with other.queue(queue.name).popper(commit="grouped") as free:
            # Then it does not wait for the next urgent ones until nothing else is left
            assert overtaken(free, 9) < BACKLOG
        first.commit()


def test_a_consumer_that_becomes_slow_leaves_what_is_pushed_then_to_others(queue, store, url, monkeypatch):
    # Given poppers that do not give up what they have, however long nobody comes
    for module in (delivery_buffer, buffered_leases):
        monkeypatch.setattr(module, "IDLE_S", 3600.0)
    # And one whose consumer was fast, and is at work now
    with (
        queue.popper() as popper,
        nullcontext(store) if url == "memory:" else cassq.connect(url) as other,
    ):
        for _ in range(30):
            queue.push(b"fast", priority=5)
            assert bodies(popper, 1) == [b"fast"]
        queue.push(b"slow", priority=5)
        slow = popper.pop(timeout=60)
        assert slow.body == b"slow"
        queue.push_many([b"later"] * BACKLOG)
        with other.queue(queue.name).popper(commit="grouped") as free:
            # When something urgent comes now and then, of which the first may be taken ahead
            found = []
            while b"urgent" not in found:
                queue.push(b"urgent", priority=5)
                found += bodies(free, 100, WORK_S)
                # Then another consumer gets one meanwhile, before nothing else is left
                assert len(found) < BACKLOG
        slow.commit()


def test_a_queue_says_once_that_it_has_such_messages(queue):
    assert not uses_priority(queue.settings)
    queue.push(b"a", priority=0)
    assert not uses_priority(queue.settings)
    queue.push(b"b", priority=1)
    assert uses_priority(queue.settings)


@pytest.mark.parametrize("priority", [-1, 10, True, 1.0, "5", None])
def test_a_priority_that_is_none_is_refused_and_nothing_is_pushed(queue, priority):
    for push in (queue.push, queue.push_soon):
        with pytest.raises(cassq.InvalidOptionError, match="from 0 to 9"):
            push(b"x", priority=priority)
    with pytest.raises(cassq.InvalidOptionError, match="from 0 to 9"):
        queue.push_many([b"x"], priority=priority)
    assert queue.stats().pushed == 0


def test_an_option_that_there_is_not_is_refused_by_name(queue):
    with pytest.raises(cassq.InvalidOptionError, match="'prio' is no option of a push; the options are"):
        queue.push(b"x", prio=3)


def test_threads_that_push_with_priorities_in_turn_lose_nothing(store, name):
    queue = store.queue(name, push_width=2)

    def push(own):
        futures = [
            queue.push_soon(b"%d %d %d" % (own, number % 10, number), priority=number % 10)
            for number in range(500)
        ]
        for future in futures:
            future.result(60)

    threads = [threading.Thread(target=push, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with queue.popper() as popper:
        assert len(set(bodies(popper, 1500))) == 1500
    until(lambda: store.reap() and queue.stats().committed == 1500)


def test_tasks_push_with_a_priority(store, queue):
    async def push():
        async with cassq.aio.Store(store) as tasks:
            await (await tasks.queue(queue.name)).push(b"later")
            await (await tasks.queue(queue.name)).push(b"urgent", priority=3)
            return [message.body for message in await (await tasks.queue(queue.name)).peek()]

    assert asyncio.run(push()) == [b"urgent", b"later"]
