"""Leases of a group, and those of a queue, on every store, for threads and for tasks."""

import asyncio

import pytest

import cassq
import cassq.aio

WAIT_S = 60.0


@pytest.fixture
def topic(store, name):
    made = store.topic(name, partitions=2)
    made.declare_group("g")
    return made


def bodies(leased):
    return [each.body for each in leased.messages]


def test_two_lessors_share_the_partitions_and_nothing_is_skipped_or_done_twice(topic):
    topic.publish_many([b"%d" % number for number in range(60)], partition=0)
    topic.publish_many([b"%d" % number for number in range(60, 120)], partition=1)
    done = []
    with topic.lessor("g") as one, topic.lessor("g") as other:
        while len(done) < 120:
            for lessor, committer in ((one, other), (other, one)):
                if leased := lessor.lease(7, 0.1):
                    done += bodies(leased)
                    committer.commit(leased.token)
    assert sorted(map(int, done)) == list(range(120))
    assert [each.lag for each in topic.lag("g")] == [0, 0]


def test_a_consumer_takes_over_from_a_lessor(topic):
    topic.publish_many([b"%d" % number for number in range(10)], partition=0)
    with topic.lessor("g") as lessor:
        leased = lessor.lease(4, WAIT_S)
        lessor.commit(leased.token)
        late = lessor.lease(4, WAIT_S)
    with topic.consumer("g") as consumer:
        found = consumer.poll(10, WAIT_S)
        assert [each.body for each in found] == [b"%d" % number for number in range(4, 10)]
        with topic.lessor("g") as lessor, pytest.raises(cassq.PartitionLostError):
            lessor.commit(late.token)


def test_tasks_wait_for_what_is_published_and_a_cancelled_one_takes_nothing(store, topic):
    async def main():
        awaited = await cassq.aio.Store(store).find_topic(topic.name)
        async with awaited.lessor("g") as lessor:
            cancelled = [asyncio.ensure_future(lessor.lease(1, None)) for _ in range(20)]
            await asyncio.sleep(0)
            for each in cancelled:
                each.cancel()
            waits = asyncio.ensure_future(lessor.lease(5, WAIT_S))
            await awaited.publish(b"x")
            leased = await waits
            assert bodies(leased) == [b"x"]
            await lessor.release(leased.token)
            again = await lessor.lease(5, WAIT_S)
            await lessor.commit(again.token)
            assert await lessor.lease(5) is None

    asyncio.run(asyncio.wait_for(main(), 2 * WAIT_S))


def test_tasks_lease_messages_of_a_queue_and_end_them_by_their_tokens(store, name):
    async def main():
        queue = await cassq.aio.Store(store).queue(name)
        async with queue.lessor() as lessor:
            cancelled = [asyncio.ensure_future(lessor.lease(1)) for _ in range(20)]
            await asyncio.sleep(0.1)
            for each in cancelled:
                each.cancel()
            await queue.push(b"x")
            (leased,) = await lessor.lease(5, WAIT_S)
            assert [(each.body, each.attempt) for each in leased.messages] == [(b"x", 1)]
            lease = cassq.Lease.parse(leased.lease.to_text())
            assert await queue.leases.extend([lease]) == [cassq.Extension.EXTENDED]
            assert queue.leases.left_s(lease) > 0
            back = {leased.messages[0].seq: cassq.Rollback(reason="busy")}
            assert await queue.leases.settle(lease, back) is cassq.Settled.COMMITTED
            (again,) = await lessor.lease(5, WAIT_S)
            assert await queue.leases.commit([again.lease]) == [cassq.Settled.COMMITTED]
            assert await lessor.lease(5, 0) == []

    asyncio.run(asyncio.wait_for(main(), 2 * WAIT_S))
