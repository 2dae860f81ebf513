"""One thread reads for all who follow a topic."""

import asyncio
import threading

import pytest

import cassq
from cassq.http import tails
from cassq.http.tails import Tails


@pytest.fixture
def topic():
    with cassq.connect("memory:") as store:
        yield store.topic("news", partitions=2)


def running(topic):
    return [each for each in threading.enumerate() if each.name == f"cassq-follow-{topic.name}"]


async def found(tail, partition, since, count):
    """Return messages from there on, once there are so many."""
    while True:
        news = tail.news
        messages = tail.find(partition, since, 1000)
        if messages is not None and len(messages) >= count:
            return messages
        await news.wait()


def offsets(messages):
    return [each.offset for each in messages]


def test_followers_of_a_topic_share_a_thread_which_ends_with_the_last(topic):
    async def follow():
        shared = Tails()
        with shared.follow(topic) as first:
            with shared.follow(topic) as second:
                assert first is second
                assert len(running(topic)) == 1
            assert len(running(topic)) == 1
            return running(topic)[0]

    thread = asyncio.run(follow())
    thread.join(30)
    assert not thread.is_alive()


def test_what_comes_is_found_from_each_place_that_is_kept(topic):
    async def follow():
        with Tails().follow(topic) as tail:
            await found(tail, 0, 1, 0)
            for number in range(5):
                topic.publish(b"%d" % number, partition=0)
            messages = await found(tail, 0, 1, 5)
            assert offsets(messages) == [1, 2, 3, 4, 5]
            assert offsets(tail.find(0, 3, 2)) == [3, 4]
            assert tail.find(0, 6, 10) == []  # nothing follows by now, and nobody asks the log
            assert tail.find(0, 7, 10) is None  # beyond what is known here
            assert tail.find(1, 1, 10) == []

    asyncio.run(follow())


def test_what_was_there_before_is_in_the_log_alone(topic):
    topic.publish(b"old", partition=0)

    async def follow():
        with Tails().follow(topic) as tail:
            await found(tail, 0, 2, 0)
            assert tail.find(0, 1, 10) is None

    asyncio.run(follow())


@pytest.mark.parametrize(("limit", "value"), [("KEPT", 3), ("KEPT_BYTES", 3 * (tails.OVERHEAD + 1))])
def test_no_more_is_kept_than_it_may(topic, monkeypatch, limit, value):
    monkeypatch.setattr(tails, limit, value)

    async def follow():
        with Tails().follow(topic) as tail:
            await found(tail, 0, 1, 0)
            for _ in range(10):
                topic.publish(b"x", partition=0)
            while tail.find(0, 11, 1) is None:
                await tail.news.wait()
            assert offsets(tail.find(0, 8, 100)) == [8, 9, 10]
            assert tail.find(0, 7, 100) is None

    asyncio.run(follow())


def test_a_topic_that_is_closed_is_told_and_the_next_follower_begins_anew(topic):
    async def follow():
        shared = Tails()
        with shared.follow(topic) as tail:
            await found(tail, 0, 1, 0)
            topic.close()
            while tail.failure is None:
                await tail.news.wait()
            assert isinstance(tail.failure, cassq.ClosedError)
            with shared.follow(topic) as other:
                assert other is not tail

    asyncio.run(follow())


def test_all_partitions_of_a_topic_together_keep_no_more_than_it_may(topic, monkeypatch):
    monkeypatch.setattr(tails, "KEPT_BYTES", 3 * (tails.OVERHEAD + 1))

    async def follow():
        with Tails().follow(topic) as tail:
            await found(tail, 0, 1, 0)
            for number in range(6):
                topic.publish(b"x", partition=number % 2)
                await found(tail, number % 2, number // 2 + 1, 1)
            assert (offsets(tail.find(0, 3, 9)), offsets(tail.find(1, 2, 9))) == ([3], [2, 3])
            assert (tail.find(0, 2, 9), tail.find(1, 1, 9)) == (None, None)

    asyncio.run(follow())


def test_a_fault_is_logged_and_ends_what_its_followers_read(topic, monkeypatch, caplog):
    def break_down(*_arguments, **_options):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(topic, "reader", break_down)

    async def follow():
        with Tails().follow(topic) as tail:
            async with asyncio.timeout(30):
                while tail.failure is None:
                    await tail.news.wait()

    asyncio.run(follow())
    assert "a bug" in caplog.text
