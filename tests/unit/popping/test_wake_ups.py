"""A wake-up that comes to a popper whose consumers have left wakes another one."""

import pytest
from support.clocks import HandClock
from support.contexts import context_of

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.model.ids import new_token
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.popping.commits import DirectCommitter
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.fetch_thread import FetchThread
from cassq.popping.fetcher import Fetcher
from cassq.popping.timing import IDLE_S
from cassq.storage.sqlite.storage import SqliteStorage


class Scene:
    """The fetch thread of one popper, and another popper that is hungry."""

    def __init__(self):
        self.clock = HandClock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.coordinator = LocalCoordinator(None, self.clock)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), QueueSettings(), new_token()))
        context = context_of(self.storage, QueueSettings(), self.clock, coordinator=self.coordinator)
        self.buffer = DeliveryBuffer(self.clock)
        self.fetcher = Fetcher(context, "a popper", on_pipe_over=lambda _: None)
        self.thread = FetchThread(
            context, self.fetcher, self.buffer, DirectCommitter(commit_soon=None), lambda: True
        )
        self.woken = []
        self.coordinator.announce_hunger("q", "another", lambda: self.woken.append(True))


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.fetcher.close()
    made.coordinator.close()
    made.storage.close()


def test_it_is_passed_on_where_nobody_pops_any_more(scene):
    scene.clock.seconds += IDLE_S + 1
    scene.buffer.alarm.wake()
    scene.thread.run_once()
    assert scene.woken == [True]


def test_without_one_nobody_is_woken(scene):
    scene.clock.seconds += IDLE_S + 1
    scene.thread.run_once()
    assert scene.woken == []


def test_it_is_passed_on_by_a_popper_that_closes(scene):
    scene.buffer.alarm.wake()
    scene.buffer.close()
    scene.thread.start()
    scene.thread.join()
    assert scene.woken == [True]
