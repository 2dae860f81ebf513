"""What becomes of messages that came back and rest for long."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.lists import counts

import cassq
from cassq import MessageState
from cassq.model.shelf import Shelf

LONG = timedelta(hours=1)


@pytest.fixture
def store():
    with cassq.connect("memory:") as opened:
        yield opened


def roll_back(store, *delays, is_closed=True, ttls=None, **settings):
    """Push a message for each delay, pop them all, and roll each back; None: commit it.

    Args:
        ttls: of each message; None: none of them has one.

    Returns: the queue, of which nobody pushes or pops any more, so that its pipe is sealed; and the ids.
    """
    queue = store.queue("q", max_attempts=2, **settings)
    if ttls:
        ids = tuple(queue.push(b"%d" % number, ttl=ttl) for number, ttl in enumerate(ttls))
    else:
        ids = tuple(queue.push_many([b"%d" % number for number in range(len(delays))]))
    with queue.popper() as popper:
        for delivery, delay in zip(popper.pop_many(len(delays), timeout=60), delays, strict=True):
            if delay is None:
                delivery.commit()
            else:
                delivery.rollback(delay=delay, reason="later")
    if is_closed:
        queue.close()
    return store.queue("q"), ids


def reap(queue):
    """Have a reaper pass until nothing changes any more."""
    for _ in range(4):
        queue.reap()


def test_poppers_do_not_see_what_rests_for_long(store):
    queue, (first, second, third) = roll_back(store, 2 * LONG, None, LONG)
    before, stats = [queue.status(each) for each in (first, third)], queue.stats()

    reap(queue)

    assert counts(store.storage) == {Shelf.SCHEDULED: 1, Shelf.MOVED: 1}
    assert [queue.status(each) for each in (first, third)] == before
    assert [each.attempt for each in before] == [1, 1]
    assert queue.status(second).state is MessageState.COMMITTED
    for name in ("delayed", "waiting", "pushed", "popped", "committed", "rolled_back"):
        assert getattr(queue.stats(), name) == getattr(stats, name), name


def test_it_goes_on_with_its_attempts_and_is_a_dead_letter_after_the_last(store):
    queue, (message_id, *_) = roll_back(store, LONG, None, None)
    reap(queue)
    assert queue.reschedule(message_id, delay=timedelta(0))
    assert queue.status(message_id).state is MessageState.WAITING

    with queue.popper() as popper:
        delivery = popper.pop(timeout=60)
        assert (delivery.message_id, delivery.attempt) == (message_id, 2)
        delivery.rollback(reason="no more")

    reap(queue)
    assert [(letter.message_id, letter.reason) for letter in queue.dead] == [(message_id, "no more")]
    assert queue.status(message_id).state is MessageState.DEAD


@pytest.mark.parametrize("other", [timedelta(seconds=1), timedelta(minutes=10)])
def test_a_pipe_of_which_something_comes_back_sooner_stays(store, other):
    queue, _ = roll_back(store, LONG, other, None)
    reap(queue)
    assert counts(store.storage) == {Shelf.READY: 1}


def test_a_pipe_that_may_get_more_stays(store):
    queue, _ = roll_back(store, LONG, is_closed=False)
    reap(queue)
    assert counts(store.storage) == {Shelf.READY: 1}


@pytest.mark.parametrize("how", [{"ttls": [None, None, 3 * LONG]}, {"ttl": 3 * LONG}])
def test_what_may_expire_stays_with_the_time_that_it_has(store, how):
    queue, ids = roll_back(store, LONG, LONG, LONG, **how)
    before = [queue.status(each) for each in ids]
    reap(queue)
    assert counts(store.storage) == {Shelf.READY: 1}
    assert [queue.status(each) for each in ids] == before


def test_what_could_expire_and_has_ended_keeps_nothing_back(store):
    queue, _ = roll_back(store, LONG, None, ttls=[None, 3 * LONG])
    reap(queue)
    assert counts(store.storage) == {Shelf.SCHEDULED: 1, Shelf.MOVED: 1}


def test_what_was_put_off_is_among_the_runs(store):
    queue, (first, _) = roll_back(store, LONG, None)
    queue.push(b"later", delay=LONG)  # a pile, of which nothing was handed out
    (before,) = queue.runs()

    reap(queue)

    (run,) = queue.runs()
    assert run == replace(before, pipe=run.pipe, last=1)
    assert (run.state, run.due, run.reason) == (MessageState.DELAYED, queue.status(first).due, "later")


def test_what_is_cancelled_meanwhile_does_not_come(store):
    queue, (first, second, _) = roll_back(store, LONG, LONG, None)
    assert queue.cancel(first)
    reap(queue)
    assert counts(store.storage) == {Shelf.SCHEDULED: 1, Shelf.MOVED: 1}
    assert queue.cancel(second)
    assert queue.status(first).state is MessageState.ENDED  # its pipe has moved on
    assert queue.status(second).state is MessageState.PURGED
    assert queue.stats().delayed == 0


@pytest.mark.parametrize("end", ["cancel", "purge"])
def test_what_was_put_off_for_a_year_and_ended_leaves_nothing_behind(store, end):
    queue, (message_id,) = roll_back(store, LONG)
    for days in (300, 200, 365):
        assert queue.reschedule(message_id, delay=timedelta(days=days))
    assert counts(store.storage)[Shelf.SCHEDULED] == 1

    assert queue.cancel(message_id) if end == "cancel" else queue.purge()

    for _ in range(6):  # each pass lets the next of the chain go
        queue.reap()
    assert counts(store.storage) == {}
    stats = queue.stats()
    assert (stats.pushed, stats.popped, stats.purged, stats.delayed) == (1, 1, 1, 0)
