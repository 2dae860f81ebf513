"""The lessors of a topic's groups in a process: which stay open, and for how long."""

import asyncio

import pytest
from support.patience import until

import cassq
from cassq.http.lending_topic import LendingTopic

WAIT_S = 30.0


@pytest.fixture
def topic():
    with cassq.connect("memory:") as store:
        made = store.topic("news")
        made.declare_group("readers")
        yield LendingTopic(made)


def test_one_is_for_all_and_is_closed_when_nobody_used_it_lately(topic):
    async def main():
        async with topic.lending("readers") as first, topic.lending("readers") as second:
            assert first is second
            await topic.close_idle(0)
            assert not first.is_over
        await topic.close_idle(1000)
        assert not first.is_over
        await topic.close_idle(0)
        assert first.is_over
        async with topic.lending("readers") as third:
            assert not third.is_over

    asyncio.run(main())


def test_one_whose_client_has_something_stays_open(topic):
    topic.sync.publish(b"x")

    async def main():
        async with topic.lending("readers") as lessor:
            leased = await asyncio.to_thread(lessor.lease, 1, WAIT_S)
        assert topic.is_busy
        await topic.close_idle(0)
        assert not lessor.is_over
        await asyncio.to_thread(lessor.commit, leased.token)
        await asyncio.to_thread(until, lambda: not topic.is_busy)  # its thread hears of that
        await topic.close_idle(0)
        assert lessor.is_over

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_one_whose_group_is_gone_is_opened_anew(topic):
    async def main():
        with pytest.raises(cassq.GroupNotFoundError):
            async with topic.lending("readers"):
                raise cassq.GroupNotFoundError("gone")
        async with topic.lending("readers") as lessor:
            assert not lessor.is_over
        await topic.forget("readers")
        assert lessor.is_over
        with pytest.raises(cassq.GroupNotFoundError):
            async with topic.lending("none"):
                pytest.fail("there is no such group")

    asyncio.run(main())
