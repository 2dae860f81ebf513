"""A RabbitMQ quorum queue, through pika.

Owns what one process does with it. Everything runs on pika's asynchronous connection, whose loop is turned
here: its blocking one waits for the confirm of each message by itself, so that nothing can be under way.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import pika
from pika.adapters.select_connection import IOLoop

from _bench.rivals.program import LOOPBACK
from _bench.rivals.rabbitmq_server import RabbitNode

_QUEUE = "bench"
_PATIENCE_S = 5.0
_LOOK_S = 0.02
# So many batches may wait for their confirms at once, and so many may be delivered ahead.
_AHEAD = 4
_PERSISTENT = pika.BasicProperties(delivery_mode=2)


class RabbitQuorumQueue:
    """A quorum queue of one member, on one node."""

    name = "RabbitMQ, quorum queue"
    durability = "power cuts"

    def __init__(self) -> None:
        self._node = RabbitNode()
        self._version = ""

    def start(self, folder: Path) -> None:
        """Start the node and declare the queue."""
        self._node.start(folder, self._declare)

    def _declare(self) -> None:
        client = RabbitClient(self._node.port)
        try:
            client.declare()
            self._version = client.server_version
        finally:
            client.close()

    def stop(self) -> None:
        """End the node."""
        self._node.stop()

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client."""
        return {"RabbitMQ": self._version, "pika": metadata.version("pika")}

    def opener(self) -> "Callable[[], RabbitClient]":
        """Return what opens a connection."""
        return partial(RabbitClient, self._node.port)


class RabbitClient:
    """One connection, with one channel to push, and one to pop as long as that lasts."""

    def __init__(self, port: int) -> None:
        self._failure: object = None
        self._is_closing = False
        self._sent = self._confirmed_to = 0
        self._confirmed: set[int] = set()
        self._loop = IOLoop()
        self._loop.activate_poller()
        parameters = pika.ConnectionParameters(LOOPBACK, port, heartbeat=0)
        self._connection = pika.SelectConnection(
            parameters,
            on_open_error_callback=self._fail,
            on_close_callback=self._fail,
            custom_ioloop=self._loop,
        )
        try:
            self._turn_until(lambda: self._connection.is_open)
            self._channel = self._open_channel()
            self._channel.confirm_delivery(self._on_confirm)
        except BaseException:
            self._loop.deactivate_poller()
            raise

    @property
    def server_version(self) -> str:
        """What the server says of itself."""
        return str(self._connection.server_properties["version"])

    def declare(self) -> None:
        """Make the queue."""
        answers: list[object] = []
        self._channel.queue_declare(
            _QUEUE, durable=True, arguments={"x-queue-type": "quorum"}, callback=answers.append
        )
        self._turn_until(lambda: answers)

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Publish batch after batch; a few of them may wait for their confirms at once."""
        for first in range(0, len(bodies), batch):
            for body in bodies[first : first + batch]:
                self._publish(body)
            self._turn_until(lambda: self._unconfirmed <= batch * (_AHEAD - 1))
        self._turn_until(lambda: not self._unconfirmed)

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Publish one by one, and wait for each confirm."""
        for body in bodies:
            self._publish(body)
            self._turn_until(lambda: not self._unconfirmed)

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """Publish each when it is due, whatever is not confirmed yet."""
        for body in bodies:
            self._publish(body)
            self._turn()  # writes it, since the socket has room
        self._turn_until(lambda: not self._unconfirmed)

    def pop_batches(self, count: int, batch: int) -> int:
        """Consume; each `batch` of messages is acknowledged by one frame."""
        popped, last_at = 0, time.monotonic()

        def take(channel: Any, method: Any, _properties: object, _body: bytes) -> None:  # noqa: ANN401
            nonlocal popped, last_at
            if popped == count:
                return  # goes back when the channel closes
            popped += 1
            if popped % batch == 0 or popped == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
                last_at = time.monotonic()

        channel = self._consume(take, prefetch=_AHEAD * batch)
        self._turn_until(lambda: popped == count or time.monotonic() - last_at > _PATIENCE_S)
        self._end(channel)
        return popped

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Consume; what has come in one turn of the loop is acknowledged by one frame."""
        last_tag = acknowledged = 0

        def take(_channel: object, method: Any, _properties: object, body: bytes) -> None:  # noqa: ANN401
            nonlocal last_tag
            seen(body)
            last_tag = method.delivery_tag

        channel = self._consume(take, prefetch=1000)
        while not until():
            self._turn()
            if last_tag > acknowledged:
                channel.basic_ack(last_tag, multiple=True)
                acknowledged = last_tag
        self._end(channel)

    def close(self) -> None:
        """Close the connection."""
        self._is_closing = True
        if self._connection.is_open:
            self._connection.close()
            while not self._connection.is_closed:
                self._turn()
        self._loop.deactivate_poller()
        self._loop.close()

    @property
    def _unconfirmed(self) -> int:
        return self._sent - self._confirmed_to - len(self._confirmed)

    def _publish(self, body: bytes) -> None:
        self._channel.basic_publish("", _QUEUE, body, _PERSISTENT)
        self._sent += 1

    def _on_confirm(self, frame: Any) -> None:  # noqa: ANN401 - pika's frame
        method = frame.method
        if isinstance(method, pika.spec.Basic.Nack):
            self._failure = "the server refused a message"
        elif method.multiple:
            self._confirmed_to = max(self._confirmed_to, method.delivery_tag)
            self._confirmed = {tag for tag in self._confirmed if tag > self._confirmed_to}
        else:
            self._confirmed.add(method.delivery_tag)
        # Confirms come out of order; what is without a gap needs no set.
        while self._confirmed_to + 1 in self._confirmed:
            self._confirmed_to += 1
            self._confirmed.remove(self._confirmed_to)

    def _consume(self, take: Callable[..., None], prefetch: int) -> Any:  # noqa: ANN401 - pika's channel
        channel = self._open_channel()
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume(_QUEUE, take)
        return channel

    def _end(self, channel: Any) -> None:  # noqa: ANN401 - pika's channel
        # AMQP confirms no acknowledgement. The channel and the queue work off what they get in order, so an
        # answer about the queue tells that they had them.
        answers: list[object] = []
        channel.queue_declare(_QUEUE, passive=True, callback=answers.append)
        self._turn_until(lambda: answers)
        channel.close()
        self._turn_until(lambda: channel.is_closed)

    def _open_channel(self) -> Any:  # noqa: ANN401 - pika's channel
        opened: list[Any] = []
        self._connection.channel(on_open_callback=opened.append)
        self._turn_until(lambda: opened)
        return opened[0]

    def _turn_until(self, is_done: Callable[[], object]) -> None:
        while not is_done():
            self._turn()

    def _turn(self) -> None:
        """Let the loop work off what is there; with nothing there, wait a moment."""
        look = self._loop.call_later(_LOOK_S, _nothing)
        self._loop.poll()
        self._loop.process_timeouts()
        self._loop.remove_timeout(look)
        if self._failure:
            raise ConnectionError(self._failure)

    def _fail(self, _connection: object, reason: object) -> None:
        if not self._is_closing:
            self._failure = reason


def _nothing() -> None:
    pass
