"""Pops by futures, on every store."""

import random
import threading
from datetime import timedelta

import pytest

import cassq

WAIT_S = 60.0


def numbered(count):
    return [b"%d" % number for number in range(count)]


def bodies(deliveries):
    return [each.body for each in deliveries]


def test_a_future_ends_with_what_is_pushed_later_and_with_what_is_there(queue, popper):
    future = popper.pop_soon()
    queue.push(b"later")
    (delivery,) = future.result(WAIT_S)
    assert (delivery.body, delivery.attempt) == (b"later", 1)
    delivery.commit()
    queue.push_many(numbered(3))
    there: list[bytes] = []
    while len(there) < 3:
        deliveries = popper.pop_soon(3).result(WAIT_S)
        there += bodies(deliveries)
        popper.commit_many(deliveries)
    assert there == numbered(3)


def test_a_future_that_is_hurried_ends_with_nothing_where_nothing_is(popper):
    future = popper.pop_soon()
    future.hurry()
    assert future.result(WAIT_S) == []


def test_a_count_below_one_is_refused(popper):
    with pytest.raises(cassq.InvalidOptionError, match="0"):
        popper.pop_soon(0)


def test_futures_of_a_popper_that_is_closed_end_and_the_messages_come_again(queue):
    with queue.popper() as first:
        future = first.pop_soon()
    with pytest.raises(cassq.ClosedError):
        future.result(WAIT_S)
    queue.push(b"x")
    with queue.popper() as second:
        (delivery,) = second.pop_soon().result(WAIT_S)
        delivery.commit()
    assert delivery.attempt == 1


def test_a_callback_may_end_and_extend_what_came(store, name):
    queue = store.queue(name, retry_delay=timedelta(0), lease=timedelta(minutes=5))
    seen, ended = [], threading.Event()
    with queue.popper() as popper:

        def work(future):
            (delivery,) = future.result()
            seen.append((delivery.body, delivery.attempt))
            delivery.extend()
            if delivery.attempt == 1:
                delivery.rollback()
            else:
                delivery.commit()
            if len(seen) < 6:
                popper.pop_soon().add_done_callback(work)
            else:
                ended.set()

        queue.push_many(numbered(3))
        popper.pop_soon().add_done_callback(work)
        assert ended.wait(WAIT_S)
    assert sorted(seen) == [(body, attempt) for body in numbered(3) for attempt in (1, 2)]
    assert queue.stats().committed == 3


def test_of_many_futures_that_are_cancelled_none_keeps_a_message(queue):
    """No attempt is counted, and none waits for the end of a lease, which is a minute."""
    dice, count = random.Random(5), 2000
    found: dict[bytes, int] = {}
    with queue.popper() as popper:
        waiting: list[cassq.PopFuture] = []

        def take(future):
            deliveries = future.result(WAIT_S)
            popper.commit_many(deliveries)
            for each in deliveries:
                assert each.body not in found
                found[each.body] = each.attempt

        pushing = threading.Thread(target=queue.push_many, args=(numbered(count),))
        pushing.start()
        while len(found) < count:
            waiting.append(popper.pop_soon(dice.choice((1, 1, 3))))
            if len(waiting) > dice.randrange(20):
                future = waiting.pop(dice.randrange(len(waiting)))
                if not (dice.random() < 0.7 and future.cancel()):
                    if not future.done():
                        future.hurry()
                    take(future)
        pushing.join()
        for future in waiting:
            assert future.cancel() or future.result(WAIT_S) == []
    assert set(found.values()) == {1}
    stats = queue.stats()
    assert (stats.committed, stats.rolled_back) == (count, 0)
