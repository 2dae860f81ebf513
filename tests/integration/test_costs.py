"""What messages cost, counted at the port: the promise that makes a queue on Cassandra sensible."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from support.clocks import HandClock
from support.patience import until

import cassq

#: A call that has not ended after so long has failed, and waits by the clock.
STUCK_S = 5.0

READS = ("read_queues", "glance_queue", "list_pipes", "read_batches", "load_pipe", "read_dead", "count_dead")


def calls(store, method):
    count = store.telemetry.snapshot().get(method)
    return count.calls if count else 0


@pytest.mark.parametrize("journal", ["off", "outline", "headers"])
def test_a_pipe_costs_two_transactions_beside_its_takes_and_no_body_is_written_twice(store, name, journal):
    queue = store.queue(name, pipe_messages_max=100, journal=journal)
    queue.push_many(b"x" for _ in range(1000))
    queue.close()  # the tenth pipe is sealed too
    pipes = calls(store, "create_pipe")
    assert pipes in {10, 11}, "one more where the next one was opened ahead of time"
    assert calls(store, "append") == 10
    assert calls(store, "transact") == pipes, "a seal for each pipe"

    queue = store.queue(name)
    with queue.popper() as popper:
        takes = set()
        popped = 0
        while popped < 1000:
            deliveries = popper.pop_many(1000, timeout=10)
            takes |= {delivery.run for delivery in deliveries}
            popper.commit_many(deliveries)
            popped += len(deliveries)
    queue.reap()

    assert queue.stats().pipes == 0
    assert calls(store, "transact") == pipes + len(takes) + pipes, "one for each run, one more to retire"
    assert calls(store, "delete_pipe") == pipes
    assert calls(store, "append") == 10
    of_topics = [calls(store, each) for each in ("glance_topic", "list_segments", "load_head", "link")]
    if journal == "off":
        assert of_topics == [0, 0, 0, 0]
    else:
        assert 1 <= calls(store, "link") <= calls(store, "load_head") <= 4 * calls(store, "glance_topic")


@pytest.mark.parametrize(("pushed", "pops"), [(1, 1), (8, 8)], ids=["in one pop", "in a loop, on two pipes"])
def test_an_idle_popper_reads_less_than_five_times_a_second(store, name, pushed, pops):
    queue = store.queue(name, pipe_messages_max=10)
    queue.push_many(b"x" for _ in range(pushed))
    with queue.popper() as popper:
        for _ in range(pushed):
            popper.pop(timeout=10).commit()
        assert popper.pop(timeout=1) is None
        # A slow machine has looks told as failed, and others ask anew: more reads, never fewer.
        rates = []
        while len(rates) < 5 and not any(rate < 5 for rate in rates):
            before = {method: calls(store, method) for method in READS}
            begun = time.monotonic()
            for _ in range(pops):
                assert popper.pop(timeout=4 / pops) is None
            seconds = time.monotonic() - begun
            rates.append(sum(calls(store, method) - before[method] for method in READS) / seconds)

    assert rates[-1] < 5


def test_a_message_that_comes_alone_costs_one_look_besides_the_one_that_finds_it(url, name, monkeypatch):
    clock = HandClock()  # so nobody looks because a slow machine let time pass, or expects the next at once
    monkeypatch.setattr(sys.modules["cassq.connect"], "SystemClock", lambda: clock)
    count = 30

    def ended(future):
        """Return what a call comes to: one that failed, on a slow machine, is tried again by that clock."""
        while not wait((future,), STUCK_S).done:
            clock.seconds += STUCK_S
        return future.result()

    with cassq.connect(url) as store, ThreadPoolExecutor(1) as thread, ThreadPoolExecutor(1) as others:
        queue = store.queue(name)
        with queue.popper() as popper:

            def is_hungry():
                is_listening = popper._intake.buffer.alarm.is_listening
                return is_listening and queue._context.coordinator.hungry(name)

            for number in range(2 * count):
                if number == count:
                    before = calls(store, "list_pipes")
                popped = thread.submit(popper.pop, 10)
                ended(others.submit(until, is_hungry))
                clock.seconds += 0.02
                ended(others.submit(queue.push, b"x"))
                ended(others.submit(ended(popped).commit))
            looks = calls(store, "list_pipes") - before

    assert looks / count < 1.5
