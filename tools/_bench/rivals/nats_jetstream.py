"""A NATS JetStream work queue, through nats-py.

Owns what one process does with it: asynchronous publishes, and a durable pull consumer whose messages are
each acknowledged. nats-py lives in an event loop, which runs as long as a call does.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from _bench.rivals.ahead import due_together
from _bench.rivals.nats_server import NatsServer
from _bench.rivals.program import LOOPBACK

# It makes nats-py faster where it is installed.
uvloop: Any = import_module("uvloop") if find_spec("uvloop") else None

_STREAM = "bench"
_SUBJECT = "bench.push"
_CONSUMER = "poppers"
_PATIENCE_S = 5.0
# What a server that syncs always may need for all that is on its way.
_CONFIRM_S = 120.0
_LOOK_S = 0.2


class JetStream:
    """A stream on file, whose messages go when they are acknowledged.

    Args:
        sync: the server's `sync_interval`: always, or None for what it comes with.
        is_kept: whether what was acknowledged stays, as in a log.
    """

    def __init__(self, sync: str | None, *, is_kept: bool = False) -> None:
        self._server = NatsServer(sync)
        self._retention = RetentionPolicy.LIMITS if is_kept else RetentionPolicy.WORK_QUEUE
        self.name = f"NATS JetStream, fsync {sync or 'every 2 minutes'}"
        self.durability = "power cuts" if sync else "process crashes; the disk has it within 2 minutes"

    def start(self, folder: Path) -> None:
        """Start the server, and make the stream and its consumer."""
        self._server.start(folder)
        asyncio.run(self._make())

    async def _make(self) -> None:
        connection = await nats.connect(f"nats://{LOOPBACK}:{self._server.port}")
        jetstream = connection.jetstream()
        stream = StreamConfig(
            _STREAM, subjects=[_SUBJECT], retention=self._retention, storage=StorageType.FILE
        )
        await jetstream.add_stream(stream)
        consumer = ConsumerConfig(
            durable_name=_CONSUMER, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=100_000
        )
        await jetstream.add_consumer(_STREAM, consumer)
        await connection.close()

    def stop(self) -> None:
        """End the server."""
        self._server.stop()

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client."""
        client = metadata.version("nats-py") + (" with uvloop" if uvloop else "")
        return {"NATS": self._server.version, "nats-py": client}

    def opener(self) -> "Callable[[], JetStreamClient]":
        """Return what opens a connection."""
        return partial(JetStreamClient, self._server.port)


class JetStreamClient:
    """One connection, in an event loop of its own."""

    def __init__(self, port: int) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop else None)
        self._runner.run(self._open(port))

    async def _open(self, port: int) -> None:
        self._connection = await nats.connect(f"nats://{LOOPBACK}:{port}")
        self._jetstream = self._connection.jetstream(timeout=_CONFIRM_S)
        self._pull = await self._jetstream.pull_subscribe_bind(_CONSUMER, stream=_STREAM)

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Publish one by one without waiting; the client's own limit of 4000 bounds what is under way."""
        del batch
        self._runner.run(self._push_all(bodies))

    async def _push_all(self, bodies: Sequence[bytes]) -> None:
        confirms = [await self._jetstream.publish_async(_SUBJECT, body) for body in bodies]
        await self._jetstream.publish_async_completed()
        for confirm in confirms:
            confirm.result()

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Publish one by one."""
        self._runner.run(self._push_each(bodies))

    async def _push_each(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await self._jetstream.publish(_SUBJECT, body)

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """Publish what is due without waiting, then wait for all of it."""
        for together in due_together(bodies):
            self.push_batches(together, len(together))

    def pop_batches(self, count: int, batch: int) -> int:
        """Fetch `batch` at a time, acknowledge each; the server works acknowledgements off in order."""
        return self._runner.run(self._pop_batches(count, batch))

    async def _pop_batches(self, count: int, batch: int) -> int:
        popped, last_at = 0, time.monotonic()
        while popped < count and time.monotonic() - last_at < _PATIENCE_S:
            messages = await self._fetch(min(batch, count - popped), _PATIENCE_S)
            popped += len(messages)
            for message in messages[:-1]:
                await message.ack()
            if messages:
                # The last one waits for its answer where it is the last of all, and so for those before it.
                await (messages[-1].ack_sync(_CONFIRM_S) if popped == count else messages[-1].ack())
                last_at = time.monotonic()
        return popped

    def replay(self, count: int, batch: int) -> int:
        """Fetch `count` messages from the beginning, by a consumer that acknowledges none and goes away."""
        return self._runner.run(self._replay(count, batch))

    async def _replay(self, count: int, batch: int) -> int:
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=_CONFIRM_S)
        reader = await self._jetstream.pull_subscribe(_SUBJECT, stream=_STREAM, config=config)
        popped = 0
        while popped < count:
            try:
                popped += len(await reader.fetch(min(batch, count - popped), _PATIENCE_S))
            except NatsTimeoutError:
                break
        await reader.unsubscribe()
        return popped

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Fetch and acknowledge as they come: a larger fetch would wait until it is full."""
        self._runner.run(self._pop_each(seen, until))

    async def _pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        while not until():
            for message in await self._fetch(1, _LOOK_S):
                seen(message.data)
                await message.ack()
        await self._connection.flush()

    async def _fetch(self, count: int, seconds: float) -> list[Msg]:
        try:
            return list(await self._pull.fetch(count, seconds))
        except NatsTimeoutError:
            return []

    def close(self) -> None:
        """Close the connection and its loop."""
        self._runner.run(self._connection.close())
        self._runner.close()
