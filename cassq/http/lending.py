"""A queue of whose messages clients have leases: its lessor in this process, and how clients wait for it.

Owns when the lessor is opened and closed. What must not break: a client that left, or whose key is good no
more, gets no lease; what was on its way to it goes to others at once, and counts as no attempt.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

from starlette.requests import ClientDisconnect, Request

import cassq
from cassq import aio
from cassq.aio.landing import landed
from cassq.aio.twins import call_in_thread
from cassq.errors import CassqError, ClosedError, InvalidOptionError, QueueNotFoundError
from cassq.popping.lessor import LeaseFuture, Lessor
from cassq.popping.timing import LOOK_TIMEOUT_S
from cassq.topics.group_line import GroupFuture

_G = TypeVar("_G")

#: What a client waits with; its list is empty where nothing came.
AnyFuture = LeaseFuture | GroupFuture


class LendingQueue(aio.Queue):
    """A queue, and its lessor while somebody leases."""

    def __init__(self, sync: cassq.Queue) -> None:
        super().__init__(sync)
        self._lessor: Lessor | None = None
        self._opening = asyncio.Lock()
        self._clients = 0
        self._used_at = 0.0
        self._looking = asyncio.Lock()
        self._seen: Any = None
        self._seen_at = float("-inf")

    @property
    def is_busy(self) -> bool:
        """Whether it has to stay open: no, what is leased the database has."""
        return False

    @asynccontextmanager
    async def lending(self) -> AsyncIterator[Lessor]:
        """Open the lessor, if need be, and keep it for the block.

        Raises: as `cassq.Queue.lessor`.
        """
        async with self._opening:
            if self._lessor is None or self._lessor.is_closed:
                self._lessor = await call_in_thread(self.sync.lessor)
        lessor = self._lessor
        self._clients += 1
        try:
            yield lessor
        except (QueueNotFoundError, ClosedError):
            await call_in_thread(lessor.close)
            raise
        finally:
            self._clients -= 1
            self._used_at = asyncio.get_running_loop().time()

    async def glance(self, look: Callable[[Self], Awaitable[_G]], age_s: float) -> _G:
        """Return what a look at the queue shows, or showed lately: one look is for all who ask meanwhile."""
        clock = asyncio.get_running_loop().time
        async with self._looking:
            if clock() - self._seen_at >= age_s / 2:
                self._seen = await look(self)
                self._seen_at = clock()
            seen: _G = self._seen
        return seen

    async def close_idle(self, idle_s: float) -> None:
        """Close the lessor where nobody leases, nor has for so long; leases run on."""
        lessor = self._lessor
        is_idle = not self._clients and asyncio.get_running_loop().time() - self._used_at >= idle_s
        if lessor and is_idle and not self._opening.locked():
            self._lessor = None
            with suppress(CassqError):
                await call_in_thread(lessor.close)


class OtherQueueError(InvalidOptionError):
    """Raised where a token is of another queue than the one that is open."""


def parse(queue: LendingQueue, text: str) -> cassq.Lease:
    """Read a token.

    Raises: InvalidOptionError: it is none, or another queue's: no row is looked at.
    """
    lease = cassq.Lease.parse(text)
    if lease.incarnation != queue.sync.leases.incarnation:
        raise OtherQueueError(
            f"{lease} is of another queue, or of an earlier one of this name: send it where it was leased"
        )
    return lease


class Waits:
    """The clients of a process that wait: one task for each, which ends when its client leaves."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    def add(self, task: "asyncio.Task[None]") -> None:
        """Have it cancelled once the process is about to end."""
        self._tasks.add(task)
        if self._is_over:
            task.cancel()

    def end(self, task: "asyncio.Task[None]") -> None:
        """Let one end for which nobody waits any more."""
        self._tasks.discard(task)
        task.cancel()

    def end_all(self) -> None:
        """Let nobody wait any more: the process is about to end."""
        self._is_over = True
        while self._tasks:
            self._tasks.pop().cancel()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A client that waits for leases.

    Attributes:
        count, seconds: of messages; for the first of them.
        waits: those of the process.
        check: gets what it is about to have; raises where it may have nothing.
    """

    request: Request
    count: int
    seconds: float
    waits: Waits
    check: Callable[[list[Any]], Awaitable[object]]

    async def lease(self, begin: Callable[[int], AnyFuture]) -> list[Any]:
        """Return what it gets; empty when nothing came in time, or the process is about to end.

        Args:
            begin: stands in line, for so many messages.

        The body of the request has been read: what is received now is that the client left.

        Raises:
            ClientDisconnect: it left.
            As `cassq.Lessor.lease`, and `check`.
        """
        future = begin(self.count)
        ended = landed(cast("Future[list[Any]]", future))
        gone = asyncio.create_task(_disconnected(self.request))
        self.waits.add(gone)
        try:
            await self._wait(future, ended, gone)
            leased = [] if ended.cancelled() else ended.result()
            if leased:
                await self.check(leased)
            if _has_left(gone):
                raise ClientDisconnect
        except BaseException:
            future.give_back()
            if not ended.cancel() and not ended.cancelled():
                ended.exception()  # nobody else hears of it
            raise
        finally:
            self.waits.end(gone)
        return leased

    async def _wait(
        self, future: AnyFuture, ended: "asyncio.Future[list[Any]]", gone: "asyncio.Task[None]"
    ) -> None:
        """Wait until the future has ended, or was cancelled; raise where the client left."""
        timeout = self.seconds
        while not ended.done():
            await asyncio.wait((ended, gone), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if _has_left(gone):
                raise ClientDisconnect
            if ended.done():
                return
            if gone.done():  # nobody waits any more
                if future.cancel():
                    ended.cancel()
                else:  # messages are on their way
                    await asyncio.wait((ended,))
                return
            future.hurry(is_looking=not self.seconds)
            timeout = LOOK_TIMEOUT_S


def _has_left(gone: "asyncio.Task[None]") -> bool:
    return gone.done() and not gone.cancelled()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
