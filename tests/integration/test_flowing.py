"""Windows as applications meet them: in a flow, with everything that may be done to a message."""

import threading

import pytest

import cassq
from cassq.popping.arrival_rate import ArrivalRate


@pytest.fixture(autouse=True)
def flowing(monkeypatch):
    """Take whatever comes for a flow, so that windows are leased however slow the machine is."""
    monkeypatch.setattr(ArrivalRate, "is_fast", lambda *_: True)


@pytest.fixture
def counted(store, monkeypatch):
    """The transactions on pipes so far."""
    calls = []
    below = store.storage._storage  # what each queue's own wrapper is around, too
    transact = below.transact

    def noted(pipe, transaction):
        calls.append(transaction)
        return transact(pipe, transaction)

    monkeypatch.setattr(below, "transact", noted)
    return calls


def is_window_out(store, pipe):
    state = store.storage.load_pipe(pipe)
    return state is not None and state.window is not None


def test_a_flow_comes_in_order_with_few_transactions(queue, popper, counted):
    def push():
        for number in range(200):
            queue.push(b"%d" % number)

    pushing = threading.Thread(target=push)
    pushing.start()
    came = []
    while len(came) < 200:
        delivery = popper.pop(timeout=10)
        came.append(delivery.body)
        delivery.commit()
    pushing.join()

    assert came == [b"%d" % number for number in range(200)]
    assert 0 < len(counted) < 100


def test_figures_are_exact_when_nothing_is_in_flight_though_a_window_is_out(store, queue, popper):
    ids = [queue.push(b"%d" % number) for number in range(3)]
    deliveries = []
    while len(deliveries) < 3:
        deliveries += popper.pop_many(3, timeout=10)
    deliveries[0].commit()

    assert is_window_out(store, ids[0].pipe)
    stats = queue.stats()
    assert (stats.waiting, stats.pending, stats.committed, stats.popped, stats.pushed) == (0, 2, 1, 3, 3)
    assert queue.status(ids[0]).state is cassq.MessageState.COMMITTED
    assert queue.status(ids[1]).state is cassq.MessageState.PENDING
    assert queue.peek(10) == []


def test_a_message_of_a_window_is_rolled_back_and_comes_again(store, queue, popper):
    queue.push(b"first")
    first = popper.pop(timeout=10)
    assert is_window_out(store, first.message_id.pipe)

    assert first.rollback()

    again = popper.pop(timeout=10)
    assert (again.message_id, again.attempt) == (first.message_id, 2)
    again.commit()


def test_the_lease_of_a_message_of_a_window_is_extended(store, queue):
    with queue.popper() as popper:
        queue.push(b"long work")
        delivery = popper.pop(timeout=10)
        assert is_window_out(store, delivery.message_id.pipe)
        before = delivery.run.ends_at

        delivery.extend()

        assert delivery.run.ends_at > before
        assert not is_window_out(store, delivery.message_id.pipe)
        delivery.commit()


def test_a_popper_that_closes_leaves_no_window_and_gives_back_what_was_not_popped(store, queue):
    with queue.popper() as popper:
        ids = [queue.push(b"%d" % number) for number in range(3)]
        popper.pop(timeout=10).commit()

    assert not is_window_out(store, ids[0].pipe)
    with queue.popper() as popper:
        came = [popper.pop(timeout=10) for _ in range(2)]
        assert [(each.message_id, each.attempt) for each in came] == [(each, 1) for each in ids[1:]]


def test_a_queue_that_is_paused_has_no_window_after_a_while(store, queue, popper):
    first = queue.push(b"first")
    popper.pop(timeout=10).commit()
    queue.pause()
    second = queue.push(b"second")

    assert popper.pop(timeout=3) is None
    assert queue.purge() == 1
    assert queue.status(second).state in {cassq.MessageState.PURGED, cassq.MessageState.ENDED}
    assert not is_window_out(store, first.pipe)


def test_a_message_is_cancelled_though_a_window_is_out(store, queue, popper):
    first = queue.push(b"first")
    popper.pop(timeout=10).commit()
    assert is_window_out(store, first.pipe)
    queue.pause()
    second, third = queue.push(b"second"), queue.push(b"third")

    # It may have been taken before the popper heard of the pause
    is_cancelled = queue.cancel(second)
    queue.resume()

    came = [popper.pop(timeout=10) for _ in range(1 if is_cancelled else 2)]
    assert [each.message_id for each in came] == ([third] if is_cancelled else [second, third])
    assert popper.pop(timeout=0.5) is None


def test_pipes_retire_behind_windows(store, name):
    queue = store.queue(name, pipe_messages_max=5)
    with queue.popper() as popper:
        for number in range(20):
            queue.push(b"%d" % number)
            popper.pop(timeout=10).commit()
    queue.close()

    queue = store.queue(name)
    for _ in range(50):
        if not queue.stats().pipes:
            break
        store.reap()
    stats = queue.stats()
    assert (stats.pipes, stats.committed, stats.pushed) == (0, 20, 20)
