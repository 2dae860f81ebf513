"""What the requests of one process share: the store, the gate, and the queues and topics that are in use.

Owns when a queue is opened and closed again, and that the gate's knowledge is fresh. What must not break:
what is in use is not closed; and what nobody asked for in a while holds no threads.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from cassq import aio
from cassq.aio.landing import landed
from cassq.errors import (
    CassqError,
    ClosedError,
    QueueNotFoundError,
    StorageUnavailableError,
    TopicNotFoundError,
    UnavailableError,
)
from cassq.gate.addresses import Proxies
from cassq.gate.gate import KNOWN_S, LOOK_S, Admitted, Asked
from cassq.http.bodies import Budget
from cassq.http.lending import LendingQueue, Waits
from cassq.http.lending_topic import LendingTopic
from cassq.http.sending import Answers
from cassq.http.tails import Tails
from cassq.runtime.background_thread import BackgroundThread

if TYPE_CHECKING:
    from cassq.metrics.service import ServiceMetrics

#: So long a request waits until it is known who may come in.
PATIENCE_S = 5.0

#: A request waits for so many looks at most: for one that was under way, and for one of its own.
LOOKS = 2

#: So many parts of many messages are on their way at once: each holds a thread, and other calls need some.
PARTS_MAX = 8

#: So many requests without a key read at once: whoever has one needs threads, too.
KEYLESS_MAX = 4

#: A queue that nobody asked for in so long is closed.
IDLE_S = 60.0


class AnyGate(Protocol):
    """Who lets requests in."""

    @property
    def age_s(self) -> float:
        """How old is what it knows."""
        ...

    def look(self) -> None:
        """Read the applications."""
        ...

    def admit(self, asked: Asked, *, is_counted: bool = True) -> Admitted:
        """Return who asks; see `Gate.admit`."""
        ...


class _Closable(Protocol):
    @property
    def is_busy(self) -> bool: ...

    async def close_idle(self, idle_s: float) -> None: ...

    async def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closable)


class _Entry(Generic[Opened]):
    def __init__(self, opened: Opened, now: float) -> None:
        self.opened = opened
        self.users = 0
        self.used_at = now


class InUse(Generic[Opened]):
    """The queues, or the topics, that requests use.

    Args:
        find: opens one that exists.
    """

    def __init__(self, find: Callable[[str], Awaitable[Opened]]) -> None:
        self._find = find
        self._entries: dict[str, _Entry[Opened]] = {}
        self._opening: dict[str, asyncio.Future[Opened]] = {}
        self._finding: Counter[str] = Counter()
        self._closing: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def get(self, name: str) -> AsyncIterator[Opened]:
        """Open one, if need be, and keep it for the block.

        Raises: QueueNotFoundError, TopicNotFoundError: there is none of this name.
        """
        clock = asyncio.get_running_loop().time
        entry = self._entries.get(name)
        if entry is None:
            opened = await self._open(name)
            entry = self._entries.get(name) or _Entry(opened, clock())
            self._entries[name] = entry
        entry.users += 1
        try:
            yield entry.opened
        except (QueueNotFoundError, TopicNotFoundError):
            self.forget(name, entry)  # one that was made anew is found by the next request
            raise
        except ClosedError as error:  # another request deleted it
            self.forget(name, entry)
            raise UnavailableError("it was closed meanwhile, and nothing happened: try again") from error
        finally:
            entry.users -= 1
            entry.used_at = clock()

    async def _open(self, name: str) -> Opened:
        """Open one; thousands that come at once wait for the same."""
        opening = self._opening.get(name)
        if opening is None:
            opening = self._opening[name] = asyncio.ensure_future(self._find_open(name))
            opening.add_done_callback(partial(self._note_opened, name))
        return await asyncio.shield(opening)

    async def _find_open(self, name: str) -> Opened:
        # Whoever opens a name has what everybody has who opened it: it is closed for all, or for nobody.
        while closing := self._closing.get(name):
            await closing.wait()
        self._finding[name] += 1
        try:
            return await self._find(name)
        finally:
            self._finding[name] -= 1
            if not self._finding[name]:
                del self._finding[name]

    def _note_opened(self, name: str, opening: "asyncio.Future[Opened]") -> None:
        if self._opening.get(name) is opening:
            del self._opening[name]
        _hear(opening)

    @property
    def opened(self) -> list[Opened]:
        """What is open."""
        return [entry.opened for entry in self._entries.values()]

    def forget(self, name: str, entry: "_Entry[Opened] | None" = None) -> None:
        """Have the next request open it anew."""
        if entry is None or self._entries.get(name) is entry:
            self._entries.pop(name, None)
            self._opening.pop(name, None)

    async def close_idle(self) -> None:
        """Close what nobody uses, nor has lately, nor has something of."""
        now = asyncio.get_running_loop().time()
        for name, entry in list(self._entries.items()):
            await entry.opened.close_idle(IDLE_S)
            # Looked at anew: one closes while this waits, and another may be asked for meanwhile.
            is_there = self._entries.get(name) is entry and name not in self._finding
            is_idle = not entry.users and now - entry.used_at >= IDLE_S and not entry.opened.is_busy
            if is_there and is_idle:
                self.forget(name, entry)
                closed = self._closing[name] = asyncio.Event()
                try:
                    with suppress(CassqError):
                        await entry.opened.close()
                finally:
                    del self._closing[name]
                    closed.set()


class Service:
    """What the requests of one process share.

    Attributes:
        is_open: whether everybody is let in, without a key.
        metrics: what is noted for Prometheus; None for nothing.
        is_leaving: whether the process is about to end: it says that it is not ready.
        draining: set once it ends: streams end.
        waits: clients that wait for leases, until then.
        budget: what is held of requests.
        answers: what is held of large answers that clients have not taken.
        parts: who sends a part of many messages holds it.
        keyless: who reads without a key holds it.
        redrives: those that run.
    """

    def __init__(
        self,
        store: aio.Store,
        gate: AnyGate,
        proxies: Proxies,
        *,
        is_open: bool = False,
        metrics: "ServiceMetrics | None" = None,
    ) -> None:
        self.store = store
        self.metrics = metrics
        self.is_leaving = False
        self.is_open = is_open
        self.gate = gate
        self.proxies = proxies
        self.budget = Budget()
        self.answers = Answers()
        self.queues = InUse(self._find_queue)
        self.topics = InUse(self._find_topic)
        self.tails = Tails()
        self.draining = asyncio.Event()
        self.waits = Waits()
        self.parts = asyncio.Semaphore(PARTS_MAX)
        self.keyless = asyncio.Semaphore(KEYLESS_MAX)
        self.redrives: set[asyncio.Task[Any]] = set()
        # Its own: where slow writes hold all others, it is still known who may come in.
        self._looker = BackgroundThread("cassq-gate")
        self._looking: asyncio.Task[None] | None = None

    async def _find_queue(self, name: str) -> LendingQueue:
        return LendingQueue((await self.store.find_queue(name)).sync)

    async def _find_topic(self, name: str) -> LendingTopic:
        return LendingTopic((await self.store.find_topic(name)).sync)

    async def admit(self, asked: Asked, *, is_counted: bool = True) -> Admitted:
        """Return who asks; see `Gate.admit`.

        Raises: StorageUnavailableError: what is known is too old, and cannot be read anew.
        """
        await self.know(KNOWN_S)
        return self.gate.admit(asked, is_counted=is_counted)

    async def know(self, age_s: float) -> None:
        """Have what is known of the applications be younger than this.

        Raises: StorageUnavailableError: it cannot be read.
        """
        known_s = self.gate.age_s
        if known_s >= LOOK_S:
            self._look_soon()
        if known_s < age_s:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(LOOKS):
                    await asyncio.shield(self._look_soon())
                    if self.gate.age_s < age_s:
                        return
        raise StorageUnavailableError(
            "the applications cannot be read in time, so nobody is let in, and nothing happened: try again"
        )

    def _look_soon(self) -> "asyncio.Task[None]":
        # One that is done may not have been noted yet, and waiting for it would not let the loop turn.
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(_hear)
        return self._looking

    async def _look(self) -> None:
        await landed(self._looker.submit(self.gate.look))

    async def tend(self) -> None:
        """Close what is idle, again and again."""
        while True:
            await asyncio.sleep(IDLE_S / 4)
            await self.queues.close_idle()
            await self.topics.close_idle()

    def drain(self) -> None:
        """Have streams and waits end, and tell that the process is not ready."""
        self.is_leaving = True
        self.draining.set()
        self.waits.end_all()

    def close(self) -> None:
        """End the thread of looks, after the one that is under way."""
        self._looker.shutdown(wait=False)


def _hear(ended: "asyncio.Future[Any]") -> None:
    if not ended.cancelled():
        ended.exception()  # who waits for it hears of it; else nobody does, and others go on without
