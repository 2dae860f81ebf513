"""Messages that are pushed again and again, on every store."""

import asyncio
from datetime import timedelta

import pytest

import cassq
import cassq.aio

EACH_SECOND = "* * * * * *"
SECOND = timedelta(seconds=1)


@pytest.fixture
def queue(store, name):
    return store.queue(name)


def pop(popper, count):
    found = []
    while len(found) < count:
        delivery = popper.pop(timeout=60)
        assert delivery
        delivery.commit()
        found.append(delivery)
    return found


def test_each_occurrence_comes_once_when_it_is_due(queue):
    told = queue.schedules.set("tick", EACH_SECOND, b"tick", {"a": "b"}, priority=4, type="mail")
    with queue.popper(types=["mail"]) as popper:
        came = pop(popper, 5)
        queue.schedules.delete("tick")

    assert [each.due for each in came] == [told.next_due + number * SECOND for number in range(5)]
    assert {(each.body, each.headers["a"], each.priority, each.type) for each in came} == {
        (b"tick", "b", 4, "mail")
    }


def test_what_is_set_is_told_until_it_is_deleted(queue):
    yearly = queue.schedules.set("yearly", "0 0 1 1 *", b"a year", timezone="Europe/Berlin")
    daily = queue.schedules.set("daily", "0 9 * * MON-FRI", b"a day", ttl=timedelta(hours=1))

    assert list(queue.schedules) == [daily, yearly]
    assert queue.schedules.get("yearly") == yearly
    assert queue.schedules.set("daily", "0 9 * * MON-FRI", b"a day", ttl=timedelta(hours=1)) == daily

    queue.schedules.delete("daily")
    assert list(queue.schedules) == [yearly]
    with pytest.raises(cassq.ScheduleNotFoundError, match="it has: yearly"):
        queue.schedules.delete("daily")


def test_a_later_queue_of_the_name_has_no_schedules_of_an_earlier_one(store, name):
    store.queue(name).schedules.set("tick", EACH_SECOND, b"tick")
    store.delete_queue(name)

    later = store.queue(name)

    assert list(later.schedules) == []
    later.reap()
    assert later.stats().delayed == later.stats().waiting == 0


def test_who_has_an_earlier_queue_of_the_name_sets_nothing(store, name):
    earlier = store.queue(name)
    store.delete_queue(name)
    later = store.queue(name)

    with pytest.raises((cassq.QueueNotFoundError, cassq.ClosedError), match=r"was deleted|is closed"):
        earlier.schedules.set("tick", EACH_SECOND, b"tick")

    assert list(later.schedules) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "a b"}, "name of a schedule"),
        ({"cron": "each day"}, "no cron expression"),
        ({"cron": None}, "must be a str"),
        ({"timezone": "Moon/Sea"}, "time-zone database"),
        ({"body": "text"}, "a body is bytes"),
        ({"body": bytes(2 * 2**20)}, "body_bytes_max"),
        ({"body": bytes(2**16 + 1)}, "push a reference"),
        ({"headers": {"a": 1}}, "header"),
        ({"ttl": 5}, "ttl=5"),
        ({"priority": 10}, "priority=10"),
        ({"type": "a b"}, "type of messages"),
        ({"delay": SECOND}, "'delay' is no option of a schedule"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_breaks_a_rule_is_refused_and_sets_nothing(queue, wrong, words):
    right = {"name": "daily", "cron": "0 9 * * *", "body": b"body"}

    with pytest.raises(cassq.UsageError, match=words):
        queue.schedules.set(**(right | wrong))

    assert list(queue.schedules) == []


def test_what_awaits_sets_and_lists_them_too(url, name):
    async def use():
        async with cassq.aio.connect(url) as store:
            queue = await store.queue(name)
            told = await queue.schedules.set("daily", "0 9 * * *", b"body")
            assert await queue.schedules.get("daily") == told
            assert [each async for each in queue.schedules] == [told]
            await queue.schedules.delete("daily")
            assert [each async for each in queue.schedules] == []

    asyncio.run(use())


def test_reaping_alone_pushes_what_is_due(queue):
    queue.schedules.set("tick", EACH_SECOND, b"tick")

    assert queue.reap().recurred > 0
    assert queue.stats().delayed > 0
