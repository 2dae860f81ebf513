"""When a pusher wakes poppers that it has not heard of."""

import pytest

import cassq
from cassq.pusher import PUSH_TIMEOUT, QUIET_S, Pusher


class HandClock:
    """A clock that a test sets; its waits end when they are notified."""

    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return self.seconds

    def wait(self, condition, seconds):
        condition.wait(None if seconds is None else min(seconds, 0.01))


class Listening:
    """A coordinator that notes who is woken."""

    def __init__(self, coordinator):
        self._coordinator = coordinator
        self.woken = []

    def wake(self, queue, count, besides=""):
        self.woken.append(count)
        return self._coordinator.wake(queue, count, besides)

    def __getattr__(self, name):
        return getattr(self._coordinator, name)


@pytest.fixture
def scene():
    with cassq.connect("memory:") as store:
        queue = store.queue("orders")
        coordinator, clock = Listening(store.coordinator), HandClock()
        pusher = Pusher(store.storage, coordinator, "orders", queue.settings, clock=clock)
        yield pusher, coordinator, clock
        pusher.close()


def test_the_first_push_asks_for_hungry_poppers_and_the_next_ones_rely_on_the_answer(scene):
    pusher, coordinator, _ = scene
    for _ in range(3):
        pusher.push(b"body", None, PUSH_TIMEOUT)
    pusher.close()

    assert coordinator.woken == [1]


def test_so_does_a_push_after_a_quiet_time(scene):
    pusher, coordinator, clock = scene
    pusher.push(b"body", None, PUSH_TIMEOUT)
    clock.seconds += QUIET_S + 1
    pusher.push(b"body", None, PUSH_TIMEOUT)
    pusher.close()

    assert coordinator.woken == [1, 1]
