"""cassq as a contestant, on Cassandra and on SQLite.

Owns how cassq is used where it is compared with others: its public interface, default settings, and nothing
that an application could not write.
"""

import platform
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cassq
from _bench.clients.contestant import Client
from _bench.errors import BenchError
from _bench.servers import CassandraServer

QUEUE = "bench"

#: So many calls of `push_many`, or of `publish_many`, are under way at once where the batches are given.
_CALLS_AT_ONCE = 4
_PATIENCE_S = 10.0
_LOOK_S = 0.25
#: Latency runs acknowledge at once what is there at once, and no more than this.
_TOGETHER = 100


def call_in_parts(call: Callable[[Sequence[bytes]], object], bodies: Sequence[bytes], batch: int) -> None:
    """Call with `batch` bodies each; a few threads do, so several calls are under way at once."""
    parts = [bodies[begin : begin + batch] for begin in range(0, len(bodies), batch)]
    with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
        for _ in pool.map(call, parts):
            pass


class CassqClient:
    """One process that uses a store.

    Args:
        store: an open one.
        name: of the queue.

    Attributes:
        store: for work that only cassq can do.
    """

    def __init__(self, store: cassq.Store, name: str = QUEUE) -> None:
        self.store = store
        self._name = name
        self._queues: dict[int, cassq.Queue] = {}

    @property
    def queue(self) -> cassq.Queue:
        """The queue that is pushed to and popped from, with default settings."""
        return self.queue_of(1)

    def queue_of(self, lanes: int) -> cassq.Queue:
        """Return the queue whose pushers fill so many pipes side by side, opened when it is first needed."""
        queue = self._queues.get(lanes)
        if queue is None or queue.is_closed:
            name = self._name if lanes == 1 else f"{self._name}-{lanes}"
            queue = self._queues[lanes] = self.store.queue(name, push_width=lanes)
        return queue

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """See `Client.push_batches`; a few threads call `push_many`, so several calls are under way at once.

        What meets in the buffer meanwhile leaves as one write: that is the library's doing, not this code's.
        """
        call_in_parts(self.queue.push_many, bodies, batch)

    def pop_batches(self, count: int, batch: int) -> int:
        """See `Client.pop_batches`.

        The popper is opened and closed here: one that stays open would take from the pushes that are measured
        between two calls.
        """
        popped = 0
        with self.queue.popper() as popper:
            while popped < count:
                deliveries = popper.pop_many(min(batch, count - popped), timeout=_PATIENCE_S)
                if not deliveries:
                    break
                popper.commit_many(deliveries)
                popped += len(deliveries)
        return popped

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """See `Client.push_each`."""
        for body in bodies:
            self.queue.push(body)

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """See `SendsAhead.push_ahead`."""
        futures: list[Future[cassq.MessageId]] = [self.queue.push_soon(body) for body in bodies]
        for future in futures:
            future.result()

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """See `Client.pop_each`; commits go out every few milliseconds, beside the pops."""
        with self.queue.popper(commit="grouped") as popper:
            while not until():
                deliveries = popper.pop_many(_TOGETHER, timeout=_LOOK_S)
                for delivery in deliveries:
                    seen(delivery.body)
                if deliveries:
                    popper.commit_many(deliveries)

    def close(self) -> None:
        """See `Client.close`."""
        self.store.close()

    def settle(self) -> None:
        """Clear away what was consumed and end every thread, so that no other measurement pays for it."""
        for queue in self._queues.values():
            if not queue.is_closed:
                while queue.reap().retired:
                    pass
                queue.close()


@dataclass(frozen=True, slots=True)
class CassqOpener:
    """Opens a client in whichever process calls it.

    Args:
        watch: makes what watches the client there, as keywords of `connect`.
        queue: its name.
    """

    url: str
    watch: Callable[[], Mapping[str, Any]] = dict
    queue: str = QUEUE

    def __call__(self) -> CassqClient:
        """Connect and open the queue."""
        return CassqClient(cassq.connect(self.url, **self.watch()), self.queue)


class CassqOnCassandra:
    """cassq on Cassandra and ZooKeeper.

    Args:
        server: shared with other contestants, or this one's own.
    """

    name = "cassq on Cassandra"

    def __init__(self, server: CassandraServer | None = None) -> None:
        self.server = server or CassandraServer()
        is_synced = self.server.commitlog_sync != "periodic"
        crash = "power cuts" if is_synced else "process crashes; the disk has it within 10 s"
        nodes = "a quorum of three nodes" if self.server.is_ring else "one node"
        self.durability = f"{crash}, on {nodes}"

    def versions(self) -> Mapping[str, str]:
        """See `Contestant.versions`."""
        return self.server.versions()

    def start(self, folder: Path) -> None:
        """See `Contestant.start`."""
        self.server.start(folder)
        self.server.prepare()

    def stop(self) -> None:
        """See `Contestant.stop`."""
        self.server.stop()

    def opener(self) -> Callable[[], Client]:
        """See `Contestant.opener`."""
        return CassqOpener(self.server.store_url())


class CassqOnSqlite:
    """cassq on one file.

    Args:
        durability: as in the URL, "full" or "normal".
    """

    def __init__(self, durability: str = "full") -> None:
        self.name = "cassq on SQLite" if durability == "full" else f"cassq on SQLite, {durability}"
        self.durability = "power cuts" if durability == "full" else "process crashes"
        self._synced = durability
        self.path: Path | None = None

    def versions(self) -> Mapping[str, str]:
        """See `Contestant.versions`."""
        return {
            "cassq": cassq.__version__,
            "SQLite": sqlite3.sqlite_version,
            "Python": platform.python_version(),
        }

    def start(self, folder: Path) -> None:
        """See `Contestant.start`; the file is made by whoever opens it first."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"queue-{self._synced}.db"

    def stop(self) -> None:
        """See `Contestant.stop`."""

    def url(self) -> str:
        """Return the URL of the store."""
        if self.path is None:
            raise BenchError("the store has no folder yet")
        return f"sqlite:///{self.path}?durability={self._synced}"

    def opener(self) -> Callable[[], Client]:
        """See `Contestant.opener`."""
        return CassqOpener(self.url())
