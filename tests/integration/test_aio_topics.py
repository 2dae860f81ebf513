"""Topics for programs that await, on every store."""

import asyncio
import gc

import pytest

import cassq
import cassq.aio

WAIT_S = 60.0


@pytest.fixture
def awaited(store, name):
    """Return what runs a coroutine function of a topic."""

    def run(main, **settings):
        async def whole():
            topic = await cassq.aio.Store(store).topic(name, **settings)
            await asyncio.wait_for(main(topic), 2 * WAIT_S)

        asyncio.run(whole())

    return run


@pytest.fixture
def fanned_out(store, name):
    """Return what runs a coroutine function of a topic, and of a queue of the same name."""

    def run(main):
        async def whole():
            opened = cassq.aio.Store(store)
            topic, queue = await opened.topic(name), await opened.queue(name)
            await asyncio.wait_for(main(topic, queue), 2 * WAIT_S)

        asyncio.run(whole())

    return run


def bodies(messages):
    return [message.body for message in messages]


def test_many_tasks_publish_and_one_follows(awaited):
    async def main(topic):
        async with topic.reader("latest") as reader:

            async def follow():
                found = []
                async for message in reader:
                    found.append(message.body)
                    if len(found) == 200:
                        break
                return found

            following = asyncio.ensure_future(follow())
            places = await asyncio.gather(*(topic.publish(b"%d" % number) for number in range(200)))
            found = await following
            assert len(set(places)) == 200
            assert sorted(found, key=int) == [b"%d" % number for number in range(200)]

    awaited(main, partitions=2)


def test_a_read_that_is_cancelled_loses_nothing(awaited):
    async def main(topic):
        async with topic.reader() as reader:
            reading = asyncio.ensure_future(reader.read_many(10, WAIT_S))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await topic.publish_many([b"1", b"2", b"3"])

            first = await reader.read_many(2, WAIT_S)
            assert reader.positions == {0: 3}
            assert bodies(first + await reader.read_many(2, WAIT_S)) == [b"1", b"2", b"3"]

            await reader.seek({0: 2})
            assert bodies(await reader.read_many(5, WAIT_S)) == [b"2", b"3"]

    awaited(main)


def test_a_block_that_is_cancelled_has_its_message_come_again(awaited):
    async def main(topic):
        await topic.publish_many([b"1", b"2"])
        async with topic.consumer("g", commit="each") as consumer:
            (first,) = await consumer.poll(1, WAIT_S)

            async def work():
                async with first:
                    await asyncio.sleep(WAIT_S)

            working = asyncio.ensure_future(work())
            await asyncio.sleep(0)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working

            again = await consumer.poll(2, WAIT_S)
            assert bodies(again) == [b"1", b"2"]
            for message in again:
                async with message:
                    pass
        assert sum(each.lag for each in await topic.lag("g")) == 0

    awaited(main)


def test_the_loop_of_a_reader_ends_with_it(awaited):
    async def main(topic):
        await topic.publish(b"1")
        reader = await topic.reader()
        found = []
        async for message in reader:
            found.append(message.body)
            await reader.close()
        assert found == [b"1"]
        with pytest.raises(cassq.ClosedError):
            await reader.read_many()

    awaited(main)


def test_a_consumer_that_is_closed_behind_a_cancelled_read_tells_nothing_of_it(awaited):
    told = []

    async def main(topic):
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with topic.consumer("g") as consumer:
            reading = asyncio.ensure_future(consumer.poll(10, WAIT_S))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        await asyncio.wait([consumer._arrivals._looking])

    awaited(main)
    gc.collect()
    assert told == []


def test_a_relay_fills_a_queue_until_its_block_ends(fanned_out, name):
    async def main(topic, queue):
        await topic.publish_many([b"1", b"2", b"3"])
        async with topic.subscribe(name) as relay, queue.popper() as popper:
            found = []
            while len(found) < 3:
                delivery = await popper.pop(WAIT_S)
                async with delivery:
                    found.append((delivery.body, delivery.headers["cassq-offset"]))
            assert found == [(b"1", "0:1"), (b"2", "0:2"), (b"3", "0:3")]
            assert (relay.queue, relay.partitions) == (name, [0])
            assert not await relay.wait(0)
        assert await relay.wait()

    fanned_out(main)


def test_a_subscription_is_declared_and_relayed_and_ended(fanned_out, name):
    async def main(topic, _queue):
        declared = await topic.declare_subscription(name, types=["order.*"])
        assert await topic.subscriptions() == {name: declared}
        relay = await topic.relay(name)
        waiting = asyncio.ensure_future(relay.wait())

        await topic.unsubscribe(name)

        with pytest.raises(cassq.GroupNotFoundError):
            await waiting
        await relay.close()
        assert await topic.subscriptions() == {}

    fanned_out(main)


def test_a_wait_for_the_end_of_a_relay_may_be_cancelled(fanned_out, name):
    async def main(topic, _queue):
        async with topic.subscribe(name) as relay:
            waiting = asyncio.ensure_future(relay.wait())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not await relay.wait(0)

    fanned_out(main)
