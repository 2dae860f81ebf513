"""Commits that nobody waits for, on every store."""

import threading
from datetime import timedelta

import pytest
from support.patience import patiently

import cassq

WAIT_S = 60.0


@pytest.fixture(params=["each", "grouped"])
def popper(request, queue):
    with queue.popper(commit=request.param) as made:
        yield made


def test_what_a_future_says_is_committed_never_comes_again(queue, popper):
    queue.push_many(b"%d" % number for number in range(100))
    futures = []
    while len(futures) < 100:
        futures += [each.commit_soon() for each in popper.pop_many(30, timeout=WAIT_S)]
    for future in futures:
        assert future.result(WAIT_S) is None
    assert (queue.stats().committed, patiently(lambda: popper.pop(timeout=0))) == (100, None)


def test_callbacks_pop_and_commit_without_a_thread_each(queue, popper):
    count, ended = 200, threading.Event()
    left, bodies = [count], []

    def take(future):
        (delivery,) = future.result()
        bodies.append(delivery.body)
        delivery.commit_soon().add_done_callback(go_on)

    def go_on(future):
        future.result()
        left[0] -= 1
        if left[0]:
            popper.pop_soon().add_done_callback(take)
        else:
            ended.set()

    queue.push_many(b"%d" % number for number in range(count))
    popper.pop_soon().add_done_callback(take)
    assert ended.wait(WAIT_S)
    assert sorted(bodies, key=int) == [b"%d" % number for number in range(count)]
    assert queue.stats().committed == count


def test_the_popper_writes_what_waits_when_it_closes(queue, popper):
    queue.push(b"x")
    future = popper.pop(timeout=WAIT_S).commit_soon()
    popper.close()
    assert future.result(WAIT_S) is None
    assert queue.stats().committed == 1


def test_a_delivery_that_its_popper_outlived_is_committed_all_the_same(queue, popper):
    queue.push(b"x")
    delivery = popper.pop(timeout=WAIT_S)
    popper.close()
    assert delivery.commit_soon().result(WAIT_S) is None
    assert queue.stats().committed == 1


def test_a_commit_after_the_lease_is_told(store, name):
    queue = store.queue(name, lease=timedelta(seconds=1), max_attempts=5)
    queue.push(b"x")
    with queue.popper() as mine, queue.popper(commit="grouped") as other:
        late = mine.pop(timeout=WAIT_S)
        again = other.pop(timeout=WAIT_S)  # only once the lease is over
        with pytest.raises(cassq.DeliveryExpiredError):
            late.commit_soon().result(WAIT_S)
        assert again.commit_soon().result(WAIT_S) is None


def test_what_is_given_back_goes_to_others_without_an_attempt(queue, popper):
    queue.push_many([b"1", b"2"])
    future = popper.pop_soon(2)
    unseen = future.result(WAIT_S)
    future.give_back()
    with pytest.raises(cassq.ClosedError):
        unseen[0].commit_soon()
    popped = []
    while len(popped) < 2:
        popped += popper.pop_many(2, timeout=WAIT_S)
    assert [(each.body, each.attempt) for each in popped] == [(b"1", 1), (b"2", 1)]


def test_what_is_given_back_after_the_close_goes_back_too(queue, popper):
    queue.push(b"1")
    future = popper.pop_soon()
    assert future.result(WAIT_S)
    popper.close()
    future.give_back()
    with queue.popper() as other:
        delivery = other.pop(timeout=WAIT_S)
        assert (delivery.body, delivery.attempt) == (b"1", 1)
        delivery.commit()
