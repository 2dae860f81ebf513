"""A store and its queues for a program that awaits.

Owns which call waits in a thread, and which by a future: a push by a future, so that those of many tasks are
written together. Decides nothing about messages. What must not break: each call takes the arguments of its
synchronous twin.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from datetime import timedelta
from itertools import islice
from typing import Unpack

from cassq.aio.landing import landed
from cassq.aio.lessors import Leases, Lessor
from cassq.aio.popper import Popper
from cassq.aio.topics import Topic
from cassq.aio.twins import ClosingTwin, Opening, TwinOf, call_in_thread, in_thread
from cassq.bulk.schedules import Schedules as SyncSchedules
from cassq.connect import connect as connect_sync
from cassq.errors import OverloadedError
from cassq.model.arguments import to_seconds
from cassq.model.events import Observer
from cassq.model.ids import MessageId
from cassq.model.message import Headers
from cassq.model.options import PushOptions, QueueOptions, TopicOptions
from cassq.model.recurrence import Schedule
from cassq.model.settings import QueueSettings
from cassq.model.tracing import Tracer
from cassq.observing.dead_letters import DeadLetters as SyncDeadLetters
from cassq.observing.dead_letters import DeadMessage
from cassq.popping.lessor import Lessor as SyncLessor
from cassq.popping.popper import Popper as SyncPopper
from cassq.popping.shared_intake import CommitMode
from cassq.pushing.pusher import PUSH_TIMEOUT
from cassq.queue import Queue as SyncQueue
from cassq.store import Store as SyncStore
from cassq.urls import StoreOptions

#: So many dead letters are read at a time.
PAGE = 100

#: A push that finds no room tries again after so long, and at most.
ROOM_PAUSE_S = 0.01
ROOM_PAUSE_MAX_S = 0.2


def connect(
    url: str,
    *,
    observer: Observer | None = None,
    tracer: Tracer | None = None,
    **options: Unpack[StoreOptions],
) -> "Opening[SyncStore, Store]":
    """Open a store as `cassq.connect` does.

    Use it as `async with connect(URL) as store`, or `store = await connect(URL)`, which is to be closed.
    """
    opening = functools.partial(connect_sync, url, observer=observer, tracer=tracer, **options)
    return Opening(opening, Store)


class Store(ClosingTwin[SyncStore]):
    """An open store; see `cassq.Store`.

    Attributes:
        sync: the store that this one calls.
        url: see `cassq.Store`.
    """

    def __init__(self, sync: SyncStore) -> None:
        super().__init__(sync)
        self.url = sync.url

    async def queue(self, name: str, **settings: Unpack[QueueOptions]) -> "Queue":
        """See `cassq.Store.queue`."""
        return Queue(await call_in_thread(self.sync.queue, name, **settings))

    async def find_queue(self, name: str) -> "Queue":
        """See `cassq.Store.find_queue`."""
        return Queue(await call_in_thread(self.sync.find_queue, name))

    async def topic(self, name: str, **settings: Unpack[TopicOptions]) -> Topic:
        """See `cassq.Store.topic`."""
        return Topic(await call_in_thread(self.sync.topic, name, **settings))

    async def find_topic(self, name: str) -> Topic:
        """See `cassq.Store.find_topic`."""
        return Topic(await call_in_thread(self.sync.find_topic, name))

    alter_topic = in_thread(SyncStore.alter_topic)
    topics = in_thread(SyncStore.topics)
    delete_topic = in_thread(SyncStore.delete_topic)
    history = in_thread(SyncStore.history)
    alter_queue = in_thread(SyncStore.alter_queue)
    queues = in_thread(SyncStore.queues)
    delete_queue = in_thread(SyncStore.delete_queue)
    reap = in_thread(SyncStore.reap)


class Queue(ClosingTwin[SyncQueue]):
    """One queue; see `cassq.Queue`.

    Attributes:
        sync: the queue that this one calls, for what has no twin, as `run_reader` and `staging`.
        name: its name.
        dead: its dead letters.
        schedules: what is pushed into it again and again.
    """

    def __init__(self, sync: SyncQueue) -> None:
        super().__init__(sync)
        self.name = sync.name
        self.dead = DeadLetters(sync.dead)
        self.schedules = Schedules(sync.schedules)
        self._has_pushed = False

    @property
    def settings(self) -> QueueSettings:
        """See `cassq.Queue.settings`."""
        return self.sync.settings

    async def push(
        self,
        body: bytes,
        headers: Headers | None = None,
        *,
        timeout: float | timedelta = PUSH_TIMEOUT,
        **options: Unpack[PushOptions],
    ) -> MessageId:
        """Push one message, together with those of other tasks; see `cassq.Queue.push`.

        A push that is cancelled goes on: nobody knows whether the message will be stored.

        Raises: OverloadedError: there was no room for it in time; it is not stored.
        """
        deadline = asyncio.get_running_loop().time() + to_seconds(timeout)
        left_s, pause_s = to_seconds(timeout), ROOM_PAUSE_S
        while True:
            try:
                return await landed(await self._push_soon(body, headers, left_s, options))
            except OverloadedError:
                left_s = deadline - asyncio.get_running_loop().time()
                if left_s <= 0:
                    raise
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, ROOM_PAUSE_MAX_S)

    async def _push_soon(
        self, body: bytes, headers: Headers | None, left_s: float, options: PushOptions
    ) -> "Future[MessageId]":
        settings = self.sync.settings
        push = functools.partial(
            self.sync.push_soon, body, headers, timeout=left_s, is_patient=False, **options
        )
        is_large = isinstance(body, bytes) and len(body) > settings.body_bytes_max
        is_new = bool(options) and not self.sync._may_push_at_once(options)  # noqa: SLF001 - our own
        if self._has_pushed and not (is_new or is_large):
            return push()
        future = await call_in_thread(push)  # it may read, or change, the queue's record
        self._has_pushed = True
        return future

    push_many = in_thread(SyncQueue.push_many)

    def popper(
        self, *, commit: CommitMode = "each", types: Iterable[str] | None = None
    ) -> "Opening[SyncPopper, Popper]":
        """Open a popper: `async with queue.popper() as popper`, or `popper = await queue.popper()`.

        See `cassq.Queue.popper`.
        """
        make = functools.partial(self.sync.popper, commit=commit, types=types)
        return Opening(make, functools.partial(Popper, is_grouped=commit == "grouped"))

    @property
    def leases(self) -> Leases:
        """See `cassq.Queue.leases`."""
        return Leases(self.sync.leases)

    def lessor(self, *, types: Iterable[str] | None = None) -> "Opening[SyncLessor, Lessor]":
        """Open a lessor: `async with queue.lessor() as lessor`; see `cassq.Queue.lessor`."""
        return Opening(functools.partial(self.sync.lessor, types=types), Lessor)

    pause = in_thread(SyncQueue.pause)
    resume = in_thread(SyncQueue.resume)
    stats = in_thread(SyncQueue.stats)
    pipes = in_thread(SyncQueue.pipes)
    rollups = in_thread(SyncQueue.rollups)
    peek = in_thread(SyncQueue.peek)
    runs = in_thread(SyncQueue.runs)
    has = in_thread(SyncQueue.has)
    status = in_thread(SyncQueue.status)
    cancel = in_thread(SyncQueue.cancel)
    reschedule = in_thread(SyncQueue.reschedule)
    reprioritise = in_thread(SyncQueue.reprioritise)
    purge = in_thread(SyncQueue.purge)
    reap = in_thread(SyncQueue.reap)


class DeadLetters(TwinOf[SyncDeadLetters]):
    """The dead letters of one queue; see `cassq.DeadLetters`.

    Attributes:
        sync: the letters that this one calls.
    """

    async def __aiter__(self) -> AsyncIterator[DeadMessage]:
        """Yield all dead letters, in the order of their ids."""
        letters = iter(self.sync)
        while page := await call_in_thread(lambda: list(islice(letters, PAGE))):
            for letter in page:
                yield letter

    peek = in_thread(SyncDeadLetters.peek)
    count = in_thread(SyncDeadLetters.count)
    put_back = in_thread(SyncDeadLetters.put_back)
    redrive = in_thread(SyncDeadLetters.redrive)
    discard = in_thread(SyncDeadLetters.discard)


class Schedules(TwinOf[SyncSchedules]):
    """The schedules of one queue; see `cassq.Schedules`.

    Attributes:
        sync: the schedules that this one calls.
    """

    async def __aiter__(self) -> AsyncIterator[Schedule]:
        """Yield all schedules, in the order of their names."""
        for schedule in await call_in_thread(lambda: list(self.sync)):
            yield schedule

    set = in_thread(SyncSchedules.set)
    get = in_thread(SyncSchedules.get)
    delete = in_thread(SyncSchedules.delete)
