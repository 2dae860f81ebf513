"""Messages that wait for longer than their queue allows, on every store."""

import asyncio
from contextlib import nullcontext
from datetime import timedelta

import pytest
from support.patience import patiently, until

import cassq
import cassq.aio
from cassq.model.label import to_label
from cassq.model.retrying import EXPIRED
from cassq.model.uses import uses_message_ttl

TTL = timedelta(seconds=1)


@pytest.fixture(params=["drop", "dead"])
def queue(request, store, name):
    return store.queue(name, ttl=TTL, on_expired=request.param, clock_skew_max=timedelta(milliseconds=100))


def over(stats):
    return stats.expired + stats.dead


def alter(store, queue, ttl):
    """Alter the time-to-live; return once the queue goes by it."""
    store.alter_queue(queue.name, ttl=ttl)
    until(lambda: queue.settings.ttl == ttl)


def test_what_waited_for_too_long_is_delivered_to_nobody(queue, store):
    ids = queue.push_many([b"old"] * 2500)
    with queue.popper() as popper:
        until(lambda: not queue.peek())
        assert patiently(lambda: popper.pop(timeout=0)) is None
        stats = queue.stats()
        assert (stats.waiting, stats.pending, over(stats), stats.popped) == (0, 0, 2500, 0)
        state = cassq.MessageState.EXPIRED if stats.expired else cassq.MessageState.DEAD
        assert queue.status(ids[7]).state is state
        alter(store, queue, timedelta(0))
        queue.push(b"new")
        with popper.pop(timeout=60) as delivery:
            assert delivery.body == b"new"
    assert {letter.reason for letter in queue.dead} <= {EXPIRED}


def test_where_nobody_pops_a_reaper_ends_them(queue, store):
    queue.push_many([b"old"] * 3)
    until(lambda: store.reap() and over(queue.stats()) == 3)
    assert queue.stats().waiting == 0


def test_what_a_consumer_has_does_not_expire_and_what_it_gives_back_does(queue, store):
    alter(store, queue, timedelta(0))
    queue.push_many([b"kept", b"given back"])
    with queue.popper() as popper:
        kept, given = popper.pop_many(2, timeout=60)
        queue.push(b"old")
        alter(store, queue, TTL)
        until(lambda: not queue.peek())
        given.rollback(delay=timedelta(0))
        assert patiently(lambda: popper.pop(timeout=0)) is None
        until(lambda: over(queue.stats()) == 2)  # a slow look may leave one to the next
        kept.commit()
        stats = queue.stats()
        assert (stats.committed, over(stats), stats.rolled_back) == (1, 2, 1)


def test_a_letter_that_is_put_back_has_all_its_time_again(store, name):
    queue = store.queue(name, ttl=TTL, on_expired="dead", clock_skew_max=timedelta(milliseconds=100))
    queue.push(b"old")
    until(lambda: store.reap() and queue.stats().dead_letters)
    alter(store, queue, timedelta(hours=1))
    assert queue.dead.put_back() == 1
    with queue.popper() as popper, popper.pop(timeout=60) as delivery:
        assert delivery.body == b"old"
        assert delivery.attempt == 1


def test_a_message_with_a_time_of_its_own_expires_and_others_do_not(store, name):
    queue = store.queue(name, clock_skew_max=timedelta(milliseconds=100))
    queue.push(b"new", ttl=timedelta(hours=1))
    old = queue.push(b"old", ttl=TTL)
    queue.push_soon(b"old", ttl=TTL).result()
    queue.push_many([b"old"] * 3, ttl=TTL)
    queue.push(b"newest")
    until(lambda: len(queue.peek()) == 2)
    with queue.popper() as popper:
        for body in (b"new", b"newest"):
            with popper.pop(timeout=60) as delivery:
                assert delivery.body == body
        assert patiently(lambda: popper.pop(timeout=0)) is None
    assert queue.status(old).state is cassq.MessageState.EXPIRED
    stats = queue.stats()
    assert (stats.committed, stats.expired, stats.waiting) == (2, 5, 0)


def test_a_message_with_a_time_of_its_own_expires_where_nobody_pops(store, name):
    queue = store.queue(name, on_expired="dead", clock_skew_max=timedelta(milliseconds=100))
    queue.push(b"old", ttl=TTL)
    until(lambda: store.reap() and queue.stats().dead_letters)
    (letter,) = queue.dead
    assert (letter.body, letter.reason) == (b"old", EXPIRED)


def test_a_time_of_its_own_outlasts_the_queues(queue):
    kept = queue.push(b"kept", ttl=timedelta(hours=1))
    queue.push(b"old")
    until(lambda: len(queue.peek()) == 1)
    with queue.popper() as popper:
        with popper.pop(timeout=60) as delivery:
            assert delivery.message_id == kept
        assert patiently(lambda: popper.pop(timeout=0)) is None


@pytest.mark.parametrize(
    "ttl", [timedelta(0), timedelta(milliseconds=999), timedelta(days=4000), 5, "5m", -TTL]
)
def test_a_time_that_is_none_is_refused_and_nothing_is_pushed(store, name, ttl):
    queue = store.queue(name)
    for push in (queue.push, queue.push_soon, lambda body, ttl: queue.push_many([body], ttl=ttl)):
        with pytest.raises(cassq.InvalidOptionError, match=r"^ttl=.* must be a timedelta from 1s to "):
            push(b"x", ttl=ttl)
    assert queue.stats().waiting == 0


def test_a_queue_says_once_that_it_has_such_messages(store, name, monkeypatch):
    queue = store.queue(name)
    changes = []
    change = queue.record.change
    monkeypatch.setattr(queue.record, "change", lambda edit: changes.append(edit) or change(edit))
    queue.push(b"x")
    assert changes == []
    for _ in range(3):
        queue.push(b"x", ttl=timedelta(hours=1))
    assert len(changes) == 1
    store.alter_queue(name, lease=timedelta(seconds=7))
    with cassq.connect(store.url) if store.url != "memory:" else nullcontext(store) as other:
        again = other.find_queue(name)
        assert uses_message_ttl(again.settings)
        again.push(b"x", ttl=timedelta(hours=1))


def test_a_program_that_awaits_gives_messages_a_time_too(url, name):
    async def main():
        async with cassq.aio.connect(url) as store:
            queue = await store.queue(name, clock_skew_max=timedelta(milliseconds=100))
            await queue.push(b"new")
            await queue.push(b"old", ttl=TTL)
            await queue.push_many([b"old"], ttl=TTL)
            await asyncio.to_thread(until, lambda: len(queue.sync.peek()) == 1)
            async with queue.popper() as popper, await popper.pop(60) as delivery:
                assert delivery.body == b"new"
            while (await queue.stats()).expired < 2:
                await store.reap()
            return await queue.stats()

    stats = asyncio.run(main())
    assert (stats.committed, stats.expired, stats.waiting) == (1, 2, 0)


def test_what_was_taken_ahead_goes_back_before_it_is_long_over(store, name):
    queue = store.queue(name, lease=timedelta(seconds=2), clock_skew_max=timedelta(milliseconds=100))
    queue.push_many([b"old"] * 400, ttl=TTL)
    with queue.popper() as popper:
        popped = 0

        def is_over():
            nonlocal popped
            if delivery := patiently(lambda: popper.pop(timeout=0)):
                popped += 1
                delivery.commit()
            return queue.stats().waiting == queue.stats().pending == 0

        until(is_over)
    stats = queue.stats()
    assert stats.committed == popped
    assert stats.expired == 400 - popped


def test_the_order_stays_where_a_part_of_what_came_back_has_expired(store, name):
    queue = store.queue(name, push_width=1, pop_width=1, clock_skew_max=timedelta(milliseconds=100))
    queue.push(b"1")
    queue.push(b"2", ttl=TTL)
    queue.push_many([b"3", b"4", b"5"])
    with queue.popper() as popper:
        deliveries = []
        while len(deliveries) < 5:
            deliveries += popper.pop_many(5, timeout=60)
        assert popper.rollback_many(deliveries, timedelta(0)) == 5
    queue.push_many([b"6", b"7"])
    until(lambda: len(queue.peek()) == 6)
    with queue.popper() as popper:
        handed = []
        while len(handed) < 6:
            with popper.pop(timeout=60) as delivery:
                handed.append(delivery.body)
    assert handed == [b"1", b"3", b"4", b"5", b"6", b"7"]


@pytest.mark.parametrize("error", [cassq.StorageUnavailableError, cassq.OutcomeUnknownError])
def test_the_first_message_with_a_time_of_its_own_outlives_an_outage(error, monkeypatch):
    with cassq.connect("memory:") as store:
        queue = store.queue("q")
        change, refusals = queue.record.change, [1, 2]

        def refuse(edit):
            if refusals:
                refusals.pop()
                raise error("away")
            return change(edit)

        monkeypatch.setattr(queue.record, "change", refuse)
        queue.push_soon(b"x", ttl=TTL).result()
        refusals += [1] * 1000
        queue.push(b"x", ttl=TTL)  # the record says so already
        assert len(refusals) == 1000
        other = store.queue("other")
        monkeypatch.setattr(other.record, "change", refuse)
        with pytest.raises(cassq.StorageUnavailableError, match=r"not pushed: .*away"):
            other.push(b"x", ttl=TTL, timeout=0)
        assert other.stats().pushed == 0


@pytest.mark.parametrize("seconds", [1, 1.001, 59.999, 60, 61, 300.5, 3600, 86400, 10**8])
def test_a_time_is_rounded_up_and_little(seconds):
    stored = to_label({"ttl": timedelta(seconds=seconds)}).ttl_ms / 1000
    assert seconds <= stored <= seconds * (1 + 1 / 64)
    assert to_label({"ttl": timedelta(seconds=stored)}).ttl_ms / 1000 == stored


def test_times_that_are_nearly_alike_are_one():
    assert (
        len({to_label({"ttl": timedelta(seconds=300 - number / 1000)}).ttl_ms for number in range(1000)}) <= 2
    )
