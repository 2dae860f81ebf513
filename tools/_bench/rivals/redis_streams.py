"""Redis Streams, through redis-py.

Owns what one process does with a stream and its consumer group: XADD, XREADGROUP and XACK in pipelines.
A pipeline is one round trip; redis-py offers no second one under way on the same connection.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.utils import HIREDIS_AVAILABLE

from _bench.rivals.ahead import due_together
from _bench.rivals.program import LOOPBACK
from _bench.rivals.redis_server import DURABILITY, RedisServer

_STREAM = "bench"
_GROUP = "poppers"
_FIELD = b"body"
_PATIENCE_MS = 5000
_LOOK_MS = 200


class RedisStreams:
    """A stream with one consumer group.

    Args:
        fsync: Redis's `appendfsync`: always or everysec.
        is_kept: whether what was acknowledged stays, as in a log.
    """

    def __init__(self, fsync: str, *, is_kept: bool = False) -> None:
        self._server = RedisServer(fsync)
        self._is_kept = is_kept
        self.name = f"Redis Streams, fsync {'always' if fsync == 'always' else 'each second'}"
        self.durability = DURABILITY[fsync]

    def start(self, folder: Path) -> None:
        """Start the server and make the group."""
        self._server.start(folder)
        with redis.Redis(host=LOOPBACK, port=self._server.port) as connection:
            connection.xgroup_create(_STREAM, _GROUP, id="0", mkstream=True)

    def stop(self) -> None:
        """End the server."""
        self._server.stop()

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client."""
        client = metadata.version("redis") + (" with hiredis" if HIREDIS_AVAILABLE else "")
        return {"Redis": self._server.version, "redis-py": client}

    def opener(self) -> "Callable[[], StreamClient]":
        """Return what opens a connection."""
        return partial(StreamClient, self._server.port, is_kept=self._is_kept)


class StreamClient:
    """One connection, and one consumer of the group."""

    def __init__(self, port: int, *, is_kept: bool) -> None:
        self._is_kept = is_kept
        # The second version of the protocol: its answers have one shape in every version of redis-py.
        self._redis = redis.Redis(
            host=LOOPBACK,
            port=port,
            protocol=2,
            single_connection_client=True,
            # Its own patience is as long as that of a read here, and what it sends again may happen twice.
            socket_timeout=None,
            retry=Retry(NoBackoff(), 0),
        )

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Add `batch` entries by one pipeline, one pipeline after the other.

        The command is told as `xadd` would tell it; that method looks at each of its arguments first, and a
        third of the rate is lost with that.
        """
        for first in range(0, len(bodies), batch):
            with self._redis.pipeline(transaction=False) as pipe:
                for body in bodies[first : first + batch]:
                    pipe.execute_command("XADD", _STREAM, "*", _FIELD, body)
                pipe.execute()

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Add one by one."""
        for body in bodies:
            self._redis.xadd(_STREAM, {_FIELD: body})

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """Add what is due by one pipeline, one after the other."""
        for together in due_together(bodies):
            self.push_batches(together, len(together))

    def pop_batches(self, count: int, batch: int) -> int:
        """Read and acknowledge `batch` entries at a time; an acknowledgement travels with the next read."""
        popped = 0
        ids: list[bytes] = []
        while popped < count:
            entries = self._acknowledge_and_read(ids, min(batch, count - popped), _PATIENCE_MS)
            if not entries:
                return popped
            ids = [entry_id for entry_id, _ in entries]
            popped += len(ids)
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.xack(_STREAM, _GROUP, *ids)
            # A stream keeps what was acknowledged until somebody cuts it off. One cut behind all of them is
            # the cheapest there is.
            if not self._is_kept:
                pipe.xtrim(_STREAM, minid=ids[-1])
            pipe.execute()
        return popped

    def replay(self, count: int, batch: int) -> int:
        """Read `count` entries from the beginning, without the group."""
        popped, after = 0, b"0"
        while popped < count:
            answer = self._redis.xread({_STREAM: after}, min(batch, count - popped))
            if not answer:
                break
            entries = answer[0][1]
            popped, after = popped + len(entries), entries[-1][0]
        return popped

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Read what has come; an acknowledgement travels with the next read."""
        ids: list[bytes] = []
        while not until():
            entries = self._acknowledge_and_read(ids, 100, _LOOK_MS)
            for _, fields in entries:
                seen(fields[_FIELD])
            ids = [entry_id for entry_id, _ in entries]
        if ids:
            self._redis.xack(_STREAM, _GROUP, *ids)

    def _acknowledge_and_read(
        self, ids: Sequence[bytes], count: int, wait_ms: int
    ) -> Sequence[tuple[bytes, dict[bytes, bytes]]]:
        with self._redis.pipeline(transaction=False) as pipe:
            if ids:
                pipe.xack(_STREAM, _GROUP, *ids)
            pipe.xreadgroup(_GROUP, "popper", {_STREAM: ">"}, count=count, block=wait_ms)
            answer = pipe.execute()[-1]
        # Of the one stream that was asked: its name and its entries. None came: no stream.
        return answer[0][1] if answer else ()

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()
