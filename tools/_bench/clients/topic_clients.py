"""cassq's topics as a contestant, on Cassandra.

Owns how a topic is used where it is compared with others: its public interface, default settings, one
partition, and nothing that an application could not write.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cassq
from _bench.clients.cassq_clients import CassqOnCassandra, call_in_parts
from _bench.clients.contestant import Client

_TOPIC, _GROUP = "bench", "readers"

_PATIENCE_S = 10.0
_LOOK_S = 0.25
_TOGETHER = 100


class TopicClient:
    """One process that uses a topic of one partition.

    Args:
        store: an open one.
    """

    def __init__(self, store: cassq.Store) -> None:
        self._store = store
        self._opened: cassq.Topic | None = None

    @property
    def _topic(self) -> cassq.Topic:
        if self._opened is None or self._opened.is_closed:
            self._opened = self._store.topic(_TOPIC, partitions=1)
        return self._opened

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """See `Client.push_batches`; a few threads call `publish_many`, so several calls are under way."""
        call_in_parts(self._topic.publish_many, bodies, batch)

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """See `Client.push_each`."""
        for body in bodies:
            self._topic.publish(body)

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """See `SendsAhead.push_ahead`."""
        futures = [self._topic.publish_soon(body) for body in bodies]
        for future in futures:
            future.result()

    def pop_batches(self, count: int, batch: int) -> int:
        """See `Client.pop_batches`; progress is written each 100 ms, and at the end."""
        popped = 0
        with self._topic.consumer(_GROUP) as member:
            while popped < count:
                found = member.poll(min(batch, count - popped), timeout=_PATIENCE_S)
                if not found:
                    break
                for each in found:
                    each.done()
                popped += len(found)
        return popped

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """See `Client.pop_each`; progress is written each 100 ms."""
        with self._topic.consumer(_GROUP) as member:
            while not until():
                for each in member.poll(_TOGETHER, timeout=_LOOK_S):
                    seen(each.body)
                    each.done()

    def replay(self, count: int, batch: int) -> int:
        """See `Replays.replay`."""
        popped = 0
        with self._topic.reader() as reader:
            while popped < count and (found := reader.read_many(min(batch, count - popped), _PATIENCE_S)):
                popped += len(found)
        return popped

    def settle(self) -> None:
        """End every thread, so that no other measurement pays for it."""
        if self._opened:
            self._opened.close()

    def close(self) -> None:
        """See `Client.close`."""
        self._store.close()


@dataclass(frozen=True, slots=True)
class TopicOpener:
    """Opens a client in whichever process calls it."""

    url: str

    def __call__(self) -> TopicClient:
        """Connect."""
        return TopicClient(cassq.connect(self.url))


class TopicOnCassandra(CassqOnCassandra):
    """A topic on Cassandra and ZooKeeper."""

    name = "a topic of cassq on Cassandra"

    def opener(self) -> Callable[[], Client]:
        """See `Contestant.opener`."""
        return TopicOpener(self.server.store_url())
