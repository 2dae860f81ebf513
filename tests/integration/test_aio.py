"""The asyncio classes, on every store."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import uvloop

import cassq
import cassq.aio

WAIT_S = 60.0


@pytest.fixture
def awaited(store, name):
    """Return what runs a coroutine function of a queue."""

    def run(main, **settings):
        async def whole():
            queue = await cassq.aio.Store(store).queue(name, **settings)
            await asyncio.wait_for(main(queue), 2 * WAIT_S)

        asyncio.run(whole())

    return run


def test_a_thousand_tasks_push_and_consumers_go_through_them(awaited):
    count, found = 1000, []

    async def consume(popper):
        async for delivery in popper:
            async with delivery:
                found.append(delivery.body)
                assert delivery.headers == {"of": "many"}
            if len(found) >= count:
                return

    async def main(queue):
        ids = await asyncio.gather(
            *(queue.push(b"%d" % number, {"of": "many"}) for number in range(count)),
        )
        assert len(set(ids)) == count
        async with queue.popper() as popper:
            consumers = [asyncio.ensure_future(consume(popper)) for _ in range(20)]
            await asyncio.wait(consumers, return_when=asyncio.FIRST_COMPLETED)
            for each in consumers:
                each.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)
        assert (await queue.stats()).committed == count

    awaited(main)
    assert sorted(found, key=int) == [b"%d" % number for number in range(count)]


async def look(popper):
    """Pop without waiting, again while a busy machine's look takes longer than a pop waits for one."""
    while True:
        try:
            return await popper.pop(timeout=0)
        except cassq.UnavailableError:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("commit", ["each", "grouped"])
def test_a_pop_waits_for_what_is_pushed_later_and_ends_with_nothing_in_time(awaited, commit):
    async def main(queue):
        async with queue.popper(commit=commit) as popper:
            assert await look(popper) is None
            assert await popper.pop_many(5, timeout=timedelta(milliseconds=5)) == []
            waiting = asyncio.ensure_future(popper.pop())
            await asyncio.sleep(0)
            message_id = await queue.push(b"later")
            delivery = await waiting
            assert (delivery.body, delivery.message_id, delivery.attempt) == (b"later", message_id, 1)
            await delivery.commit()
            with pytest.raises(cassq.ClosedError):
                await delivery.commit()
            with pytest.raises(cassq.InvalidOptionError):
                await popper.pop_many(0)
        assert (await queue.stats()).committed == 1

    awaited(main)


def test_a_block_that_fails_rolls_back_with_the_reason(awaited):
    async def main(queue):
        await queue.push(b"x")
        async with queue.popper() as popper:
            with pytest.raises(KeyError):
                async with await popper.pop(WAIT_S) as delivery:
                    raise KeyError("no such customer")
            delivery = await popper.pop(WAIT_S)
            assert delivery.attempt == 2
            assert await delivery.rollback(timedelta(0), reason="again")
            delivery = await popper.pop(WAIT_S)
            await delivery.extend()
            assert await delivery.give_back()
            delivery = await popper.pop(WAIT_S)
            assert delivery.attempt == 3
            assert await delivery.reject("enough")
        (letter,) = [letter async for letter in queue.dead]
        assert (letter.body, letter.reason, letter.attempts) == (b"x", "enough", 3)
        assert await queue.dead.count() == 1
        assert await queue.dead.put_back(letter.message_id) == 1

    awaited(main, retry_delay=timedelta(0), max_attempts=9)


def test_a_block_that_is_cancelled_rolls_back_at_once(awaited):
    async def main(queue):
        await queue.push(b"x")
        async with queue.popper() as popper:
            began = asyncio.Event()

            async def work():
                async with await popper.pop(WAIT_S):
                    began.set()
                    await asyncio.sleep(WAIT_S)

            working = asyncio.ensure_future(work())
            await began.wait()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            async with await popper.pop(WAIT_S) as delivery:
                assert delivery.attempt == 2

    awaited(main, retry_delay=timedelta(minutes=10))


def test_a_loop_goes_on_after_a_message_whose_lease_has_ended(awaited):
    seen = []

    async def main(queue):
        await queue.push(b"x")
        async with queue.popper() as slow, queue.popper(commit="grouped") as other:
            async for delivery in slow:
                async with delivery:
                    seen.append(delivery.attempt)
                    again = await other.pop(WAIT_S)
                    assert again.attempt == 2
                    if len(seen) == 1:
                        await queue.push(b"y")
                        await again.commit()
                break
            # One that the consumer ends itself
            async for delivery in slow:
                async with delivery:
                    again = await other.pop(WAIT_S)
                    await again.commit()
                    await delivery.commit()
                seen.append("went on")
                break
            await queue.push(b"z")
            late = await slow.pop(WAIT_S)
            await (await other.pop(WAIT_S)).commit()
            with pytest.raises(cassq.DeliveryExpiredError):
                async with late:
                    pass

    awaited(main, lease=timedelta(seconds=1), max_attempts=9)
    assert seen == [1, "went on"]


def test_event_loops_of_several_kinds_share_a_store(store, name):
    count, found = 200, []

    async def work(number):
        queue = await cassq.aio.Store(store).queue(name)
        await asyncio.gather(*(queue.push(b"%d" % each) for each in range(number, count, 2)))
        async with queue.popper() as popper:
            while delivery := await popper.pop(timeout=0.5):
                async with delivery:
                    found.append(delivery.body)

    with ThreadPoolExecutor(2) as pool:
        ran = [pool.submit(asyncio.run, work(0)), pool.submit(uvloop.run, work(1))]
        for each in ran:
            each.result(2 * WAIT_S)
    asyncio.run(work(count))  # what the one that ended first gave back as it left
    assert sorted(found, key=int) == [b"%d" % number for number in range(count)]


def test_a_loop_ends_with_its_popper(awaited):
    async def main(queue):
        popper = await queue.popper()

        async def consume():
            async for _ in popper:
                pytest.fail("there is nothing")

        consuming = asyncio.ensure_future(consume())
        await asyncio.sleep(0)
        await popper.close()
        await consuming

    awaited(main)


@pytest.mark.parametrize("commit", ["each", "grouped"])
def test_a_loop_that_always_finds_something_lets_others_run(awaited, commit):
    count = 1000

    async def main(queue):
        ticks = done = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        await queue.push_many([b"x"] * count)
        ticking = asyncio.ensure_future(tick())
        async with queue.popper(commit=commit) as popper:
            async for delivery in popper:
                async with delivery:
                    done += 1
                    assert ticks >= done - 1
                if done == count:
                    break
        ticking.cancel()

    awaited(main)


def test_idle_consumers_look_no_more_often_than_threads(awaited):
    """All of them are told by one look, or by the popper that listens."""

    async def main(queue):
        async with queue.popper() as popper:
            looks = popper.sync._intake.buffer._looks
            for _ in range(2):
                before = looks.begun
                popped = await asyncio.gather(*(popper.pop(timeout=0.2) for _ in range(100)))
                assert popped == [None] * 100
            assert looks.begun - before < 50

    awaited(main)


def test_of_many_pops_that_are_cancelled_none_loses_or_counts_a_message(awaited):
    """None waits for the end of a lease, which is a minute: an attempt would be counted."""
    dice, messages, cancellations = random.Random(7), 2000, 20_000
    attempts: dict[bytes, int] = {}

    async def commit(delivery):
        assert delivery.body not in attempts
        attempts[delivery.body] = delivery.attempt
        await delivery.commit()

    async def main(queue):
        pushed = cancelled = 0
        popping: set[asyncio.Task[list[cassq.aio.Delivery]]] = set()
        over: list[asyncio.Task[object]] = []
        async with queue.popper() as popper:
            while cancelled < cancellations or pushed < messages or len(attempts) < messages:
                if pushed < messages and pushed - len(attempts) < 20:
                    bodies = [b"%d" % number for number in range(pushed, pushed + 10)]
                    pushed += len(bodies)
                    over.append(asyncio.ensure_future(queue.push_many(bodies)))
                while len(popping) < 20:
                    popping.add(asyncio.ensure_future(popper.pop_many(dice.choice((1, 1, 3)))))
                await asyncio.sleep(dice.choice((0, 0, 0, 0.001)))
                for each in list(popping):
                    if each.done():
                        popping.remove(each)
                        over += [asyncio.ensure_future(commit(delivery)) for delivery in each.result()]
                    elif cancelled < cancellations and dice.random() < 0.3:
                        popping.remove(each)
                        cancelled += 1
                        each.cancel()
            for each in popping:
                each.cancel()
            await asyncio.gather(*over)
        stats = await queue.stats()
        assert (stats.committed, stats.rolled_back, stats.waiting) == (messages, 0, 0)

    awaited(main, lease=timedelta(minutes=5))
    assert set(attempts.values()) == {1}
