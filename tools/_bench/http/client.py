"""A client of a queue behind HTTP: many connections, one thread, as little as can be done besides.

Owns connections and which request goes over which. What each request looks like is the dialect's. The rule:
what was taken is acknowledged before it counts.
"""

import asyncio
import base64
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

from _bench.clients.bodies import make_bodies
from _bench.clients.client_process import Spent, timed
from _bench.http.connection import Connection
from _bench.http.dialect import Dialect

_T = TypeVar("_T")

#: A pop that finds nothing for so long has lost something.
PATIENCE_S = 10.0
_LOOK_S = 0.5
_TOGETHER = 100


def make_texts(count: int, body_bytes: int) -> list[bytes]:
    """Return bodies that every protocol can carry as they are."""
    return [base64.b64encode(each)[:body_bytes] for each in make_bodies(count, body_bytes)]


class HttpClient:
    """Connections to the processes of one service.

    Args:
        ports: of its processes; requests of a worker go to each in turn.

    Attributes:
        waiting: requests that nobody waits for yet.
    """

    def __init__(self, dialect: Dialect, ports: Sequence[int]) -> None:
        self.dialect = dialect
        self._ports = ports
        self._loop = uvloop.new_event_loop()
        self._open: list[tuple[Connection, ...]] = []
        self.waiting: list[asyncio.Future[None]] = []

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do it, to its end."""
        return self._loop.run_until_complete(work)

    def connect(self, count: int) -> list[tuple[Connection, ...]]:
        """Return so many workers' connections, of each one to every process."""
        while len(self._open) < count:
            self._open.append(tuple(map(Connection, self._ports)))
        return self._open[:count]

    def set_up(self) -> None:
        """Make the queue."""
        ((connection, *_),) = self.connect(1)
        for request in self.dialect.setup:
            self.run(connection.get(request))

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """See `Client.pop_each`: one client waits, and acknowledges by another connection meanwhile."""
        (connection, *_), (other, *_) = self.connect(2)
        wait = self.dialect.pop(_TOGETHER, _LOOK_S)

        async def pop() -> None:
            acknowledging: asyncio.Future[bytes] | None = None
            while not until():
                popped = self.dialect.read(await connection.get(wait))
                for body in popped.bodies:
                    seen(body)
                if popped.ack:
                    if acknowledging:
                        self.dialect.check(await acknowledging)
                    acknowledging = asyncio.ensure_future(other.get(popped.ack))
            if acknowledging:
                self.dialect.check(await acknowledging)

        self.run(pop())

    def close(self) -> None:
        """End all connections."""
        for waiting in self.waiting:
            waiting.cancel()
        for connections in self._open:
            for each in connections:
                each.close()
        self.run(asyncio.sleep(0))
        self._loop.close()


@dataclass(frozen=True, slots=True)
class HttpOpener:
    """Opens a client in whichever process calls it."""

    dialect: Dialect
    ports: Sequence[int]

    def __call__(self) -> HttpClient:
        """Connect when it is needed first."""
        return HttpClient(self.dialect, self.ports)


def push(client: HttpClient, count: int, body_bytes: int, batch: int, workers: int) -> Spent:
    """Push messages, `batch` a request, each worker's confirmed before its next."""
    connections = client.connect(workers)
    texts = make_texts(count, body_bytes)
    if batch == 1:
        requests = list(map(client.dialect.push_one, texts))
    else:
        requests = [client.dialect.push_many(texts[at : at + batch]) for at in range(0, count, batch)]
    left = iter(requests)

    async def work(own: tuple[Connection, ...]) -> None:
        for number, request in enumerate(left):
            client.dialect.check(await own[number % len(own)].get(request))

    async def push_all() -> None:
        await asyncio.gather(*map(work, connections))

    return timed(count, lambda: client.run(push_all()))


def pop(client: HttpClient, count: int, batch: int, workers: int) -> Spent:
    """Take and acknowledge messages, `batch` a request; of several processes the last one acknowledges.

    Raises: RuntimeError: nothing came for a while, and there should be more.
    """
    connections = client.connect(workers)
    request = client.dialect.pop(batch, 1.0)
    popped = 0

    async def work(own: tuple[Connection, ...]) -> None:
        nonlocal popped
        last_at = time.monotonic()
        while popped < count:
            told = client.dialect.read(await own[0].get(request))
            if told.ack:
                client.dialect.check(await own[-1].get(told.ack))
            if told.bodies:
                popped += len(told.bodies)
                last_at = time.monotonic()
            elif time.monotonic() - last_at > PATIENCE_S:
                raise RuntimeError(f"only {popped} of {count} messages came")

    async def pop_all() -> None:
        working = [asyncio.ensure_future(work(own)) for own in connections]
        # Who waits for what others have got already is not waited for.
        while popped < count and not any(each.done() and each.exception() for each in working):
            await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        for each in working:
            if each.done():
                each.result()

    spent = timed(count, lambda: client.run(pop_all()))
    client.run(_rest())
    return spent


async def _rest() -> None:
    """Let those end that wait for nothing any more."""
    for each in asyncio.all_tasks() - {asyncio.current_task()}:
        await each
