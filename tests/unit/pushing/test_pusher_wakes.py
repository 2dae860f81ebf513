"""When a pusher wakes poppers that it has not heard of."""

import sqlite3
from contextlib import closing

import pytest
from support.contexts import context_of

import cassq
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.model.label import UNLABELLED
from cassq.pushing.due_clock import DueClock
from cassq.pushing.popper_waker import QUIET_S
from cassq.pushing.pusher import PUSH_TIMEOUT, Pusher
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store


class HandClock(SystemClock):
    """A clock that a test sets; its waits end when they are notified."""

    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return self.seconds

    latest = now

    def wait(self, condition, seconds):
        condition.wait(None if seconds is None else min(seconds, 0.01))


class Listening:
    """A coordinator that notes who is woken."""

    def __init__(self, coordinator):
        self._coordinator = coordinator
        self.woken = []

    def wake(self, queue, count, besides="", *, types=0):
        self.woken.append(count)
        return self._coordinator.wake(queue, count, besides, types=types)

    def __getattr__(self, name):
        return getattr(self._coordinator, name)


@pytest.fixture
def scene():
    with cassq.connect("memory:") as store:
        queue = store.queue("orders")
        coordinator, clock = Listening(store.coordinator), HandClock()
        context = context_of(store.storage, queue.settings, clock, queue="orders", coordinator=coordinator)
        pusher = Pusher(context, DueClock(context))
        yield pusher, coordinator, clock
        pusher.close()


def test_the_first_push_asks_for_hungry_poppers_and_the_next_ones_rely_on_the_answer(scene):
    pusher, coordinator, _ = scene
    for _ in range(3):
        pusher.push(b"body", None, PUSH_TIMEOUT, UNLABELLED)
    pusher.close()

    assert coordinator.woken == [1]


def test_so_does_a_push_after_a_quiet_time(scene):
    pusher, coordinator, clock = scene
    pusher.push(b"body", None, PUSH_TIMEOUT, UNLABELLED)
    clock.seconds += QUIET_S + 1
    pusher.push(b"body", None, PUSH_TIMEOUT, UNLABELLED)
    pusher.close()

    assert coordinator.woken == [1, 1]


def test_pushes_do_not_wait_for_a_coordination_file_that_others_keep_locked(tmp_path):
    path, clock = str(tmp_path / "q.db"), SystemClock()
    coordinator = LocalCoordinator(f"{path}-coordination", clock, patience=3600.0)
    storage = SqliteStorage(path, is_synced=False, clock=clock)
    store = Store(f"sqlite:///{path}", Adapters(storage, coordinator, coordinator.close), clock=clock)
    queue = store.queue("q")

    with closing(sqlite3.connect(f"{path}-coordination", isolation_level=None)) as frozen:
        frozen.execute("BEGIN IMMEDIATE")
        ids = {queue.push(b"%d" % number) for number in range(9)}
        frozen.execute("ROLLBACK")

    assert len(ids) == queue.stats().waiting == 9
    store.close()
    storage.close()
