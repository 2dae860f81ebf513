"""A fetch thread that takes its steps when it is told to, and what it works with."""

import threading
from dataclasses import replace
from datetime import timedelta

from support.clocks import HandClock
from support.contexts import context_of

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.popping.commits import DirectCommitter
from cassq.popping.consumer_line import Consumer
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.fetch_thread import FetchThread
from cassq.popping.fetcher import Fetcher
from cassq.storage.sqlite.storage import SqliteStorage

SETTINGS = QueueSettings(lease=timedelta(seconds=8))
NAME = "a popper"


class Clock(HandClock):
    """Whoever waits has waited; then something may happen, without the lock."""

    def __init__(self):
        super().__init__()
        self.waits = []
        self.then = []

    def wait(self, condition, seconds):
        self.waits.append(seconds)
        self.seconds += seconds
        if self.then:
            condition.release()
            try:
                self.then.pop(0)()
            finally:
                condition.acquire()


class Scene:
    """A queue with one pipe, and a fetch thread that takes its steps when it is told to."""

    def __init__(self, **options):
        settings = replace(SETTINGS, **options)
        self.clock = Clock()
        self.storage = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.coordinator = LocalCoordinator(None, self.clock)
        assert self.storage.change_queue(None, QueueRecord("q", new_token(), settings, new_token()))
        context = context_of(self.storage, settings, self.clock, coordinator=self.coordinator)
        self.record = context.record
        self.polls = context.polls
        self.buffer = DeliveryBuffer(self.clock)
        self.fetcher = Fetcher(context, NAME, on_pipe_over=lambda _: None)
        self.is_active = True
        self.thread = FetchThread(
            *(context, self.fetcher, self.buffer, DirectCommitter(commit_soon=None), lambda: self.is_active)
        )
        self.entry = PipeEntry(new_pipe_id(), "a pusher")
        self.storage.create_pipe("q", self.entry, Head(new_token()))
        self._pushed = 0

    def push(self, count=1):
        self.storage.append(self.entry.pipe, Batch(self._pushed + 1, (b"body",) * count, None, count))
        self._pushed += count

    def stand_in_line(self, count=1):
        """Be a consumer that waits; return it."""
        now = self.clock.now()
        consumer = Consumer(
            *(threading.Condition(self.buffer._lock), None, count),
            asked_at=now,
            deadline=now + 1000.0,
            look=0,
        )
        self.buffer._line.join(consumer)
        return consumer

    def leave(self, consumer):
        self.buffer._line.leave(consumer)

    def other(self):
        """Have another popper be hungry; return what it hears."""
        woken = []
        self.coordinator.announce_hunger("q", "another", lambda: woken.append(True))
        return woken

    @property
    def hungry(self):
        return self.coordinator.hungry("q", besides="another")

    @property
    def rows(self):
        return [(run.first, run.last, run.state, run.attempt) for run in self.state.runs]

    @property
    def state(self):
        return self.storage.load_pipe(self.entry.pipe)


def made(**options):
    scene = Scene(**options)
    yield scene
    scene.fetcher.close()
    scene.coordinator.close()
    scene.storage.close()
