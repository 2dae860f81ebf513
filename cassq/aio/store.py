"""A store and its queues for a program that awaits.

Owns which call waits in a thread, and which by a future: a push by a future, so that those of many tasks are
written together. Decides nothing about messages. What must not break: each call takes the arguments of its
synchronous twin.
"""

import asyncio
import functools
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import islice
from typing import Unpack

import cassq
from cassq.aio.popper import Popper
from cassq.aio.twins import ClosingTwin, Opening, TwinOf, in_thread
from cassq.errors import OverloadedError
from cassq.model.message import Headers
from cassq.model.settings import QueueOptions
from cassq.popping.shared_intake import CommitMode
from cassq.pushing.pusher import PUSH_TIMEOUT
from cassq.urls import StoreOptions

#: So many dead letters are read at a time.
PAGE = 100


def connect(url: str, **options: Unpack[StoreOptions]) -> "Opening[cassq.Store, Store]":
    """Open a store as `cassq.connect` does.

    Use it as `async with connect(URL) as store`, or `store = await connect(URL)`, which is to be closed.
    """
    return Opening(functools.partial(cassq.connect, url, **options), Store)


class Store(ClosingTwin[cassq.Store]):
    """An open store; see `cassq.Store`.

    Attributes:
        sync: the store that this one calls.
        url: see `cassq.Store`.
    """

    def __init__(self, sync: cassq.Store) -> None:
        super().__init__(sync)
        self.url = sync.url

    async def queue(self, name: str, **settings: Unpack[QueueOptions]) -> "Queue":
        """See `cassq.Store.queue`."""
        return Queue(await asyncio.to_thread(self.sync.queue, name, **settings))

    async def find_queue(self, name: str) -> "Queue":
        """See `cassq.Store.find_queue`."""
        return Queue(await asyncio.to_thread(self.sync.find_queue, name))

    alter_queue = in_thread(cassq.Store.alter_queue)
    queues = in_thread(cassq.Store.queues)
    delete_queue = in_thread(cassq.Store.delete_queue)
    reap = in_thread(cassq.Store.reap)


class Queue(ClosingTwin[cassq.Queue]):
    """One queue; see `cassq.Queue`.

    Attributes:
        sync: the queue that this one calls, for what has no twin, as `run_reader` and `staging`.
        name: its name.
        dead: its dead letters.
    """

    def __init__(self, sync: cassq.Queue) -> None:
        super().__init__(sync)
        self.name = sync.name
        self.dead = DeadLetters(sync.dead)

    @property
    def settings(self) -> cassq.QueueSettings:
        """See `cassq.Queue.settings`."""
        return self.sync.settings

    async def push(
        self, body: bytes, headers: Headers | None = None, *, timeout: float | timedelta = PUSH_TIMEOUT
    ) -> cassq.MessageId:
        """Push one message, together with those of other tasks; see `cassq.Queue.push`.

        A push that is cancelled goes on: nobody knows whether the message will be stored.
        """
        try:
            future = self.sync.push_soon(body, headers, timeout=timeout, is_patient=False)
        except OverloadedError:  # wait for room, where that holds up nobody
            return await asyncio.to_thread(self.sync.push, body, headers, timeout=timeout)
        return await asyncio.wrap_future(future)

    push_many = in_thread(cassq.Queue.push_many)

    def popper(self, *, commit: CommitMode = "each") -> "Opening[cassq.Popper, Popper]":
        """Open a popper: `async with queue.popper() as popper`, or `popper = await queue.popper()`.

        See `cassq.Queue.popper`.
        """
        make = functools.partial(self.sync.popper, commit=commit)
        return Opening(make, functools.partial(Popper, is_grouped=commit == "grouped"))

    pause = in_thread(cassq.Queue.pause)
    resume = in_thread(cassq.Queue.resume)
    stats = in_thread(cassq.Queue.stats)
    pipes = in_thread(cassq.Queue.pipes)
    rollups = in_thread(cassq.Queue.rollups)
    peek = in_thread(cassq.Queue.peek)
    status = in_thread(cassq.Queue.status)
    cancel = in_thread(cassq.Queue.cancel)
    purge = in_thread(cassq.Queue.purge)
    reap = in_thread(cassq.Queue.reap)


class DeadLetters(TwinOf[cassq.DeadLetters]):
    """The dead letters of one queue; see `cassq.DeadLetters`.

    Attributes:
        sync: the letters that this one calls.
    """

    async def __aiter__(self) -> AsyncIterator[cassq.DeadMessage]:
        """Yield all dead letters, in the order of their ids."""
        letters = iter(self.sync)
        while page := await asyncio.to_thread(lambda: list(islice(letters, PAGE))):
            for letter in page:
                yield letter

    peek = in_thread(cassq.DeadLetters.peek)
    count = in_thread(cassq.DeadLetters.count)
    put_back = in_thread(cassq.DeadLetters.put_back)
    redrive = in_thread(cassq.DeadLetters.redrive)
    discard = in_thread(cassq.DeadLetters.discard)
