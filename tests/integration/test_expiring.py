"""Messages that wait for longer than their queue allows, on every store."""

from datetime import timedelta

import pytest
from support.patience import until

import cassq
from cassq.model.retrying import EXPIRED

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
        assert popper.pop(timeout=0) is None
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
        assert popper.pop(timeout=0) is None
        assert over(queue.stats()) == 2
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
