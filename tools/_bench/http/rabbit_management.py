"""RabbitMQ's management API: what it has for HTTP, of a quorum queue.

Owns its dialect and which plugin the node has. There is no call that publishes several messages, and what is
gotten is acknowledged as it is read: a client that dies loses it.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from _bench.errors import BenchError
from _bench.http.connection import to_request
from _bench.http.dialect import JSON, Popped, ask_once
from _bench.rivals.program import choose_port
from _bench.rivals.rabbitmq_server import RabbitNode

_QUEUE = "/api/queues/%2F/bench"
_KEY = {**JSON, "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
_READY = 200


class _Message(msgspec.Struct):
    payload: str


class _Published(msgspec.Struct):
    routed: bool


_messages = msgspec.json.Decoder(list[_Message])
_published = msgspec.json.Decoder(_Published)


@dataclass(frozen=True, slots=True)
class ManagementDialect:
    """Publish, and get."""

    push_max: int = 1
    pop_max: int = 1000

    @property
    def setup(self) -> Sequence[bytes]:
        """Make the queue."""
        return [_ask("PUT", _QUEUE, {"durable": True, "arguments": {"x-queue-type": "quorum"}})]

    def push_one(self, body: bytes) -> bytes:
        """Publish; answered once it is confirmed."""
        fields = {
            "properties": {"delivery_mode": 2},
            "routing_key": "bench",
            "payload": body.decode(),
            "payload_encoding": "string",
        }
        return _ask("POST", "/api/exchanges/%2F/amq.default/publish", fields)

    def push_many(self, bodies: Sequence[bytes]) -> bytes:
        """Publish one: there is nothing for more."""
        (body,) = bodies
        return self.push_one(body)

    def check(self, answer: bytes) -> None:
        """Raise where a message went nowhere."""
        if not _published.decode(answer).routed:
            raise BenchError("RabbitMQ took a message, and no queue had it")

    def pop(self, count: int, wait_s: float) -> bytes:  # noqa: ARG002 - there is no waiting
        """Get."""
        return _ask(
            "POST", f"{_QUEUE}/get", {"count": count, "ackmode": "ack_requeue_false", "encoding": "auto"}
        )

    def read(self, answer: bytes) -> Popped:
        """Read messages that are acknowledged."""
        return Popped([each.payload.encode() for each in _messages.decode(answer)], None)


def _ask(method: str, path: str, fields: object = None) -> bytes:
    return to_request(method, path, b"" if fields is None else msgspec.json.encode(fields), _KEY)


class RabbitManagement:
    """A node with that plugin."""

    name = "RabbitMQ, management API"
    durability = "power cuts; what a client has read is acknowledged"
    dialect = ManagementDialect()

    def __init__(self) -> None:
        self._node = RabbitNode()
        self.port = 0
        self._version = ""

    def version(self) -> str:
        """Tell which one it is."""
        return self._version

    def start(self, folder: Path) -> None:
        """Start the node."""
        self.port = choose_port()
        self._node.start(folder, self._look, management_port=self.port)

    def _look(self) -> None:
        told = ask_once(self.port, _ask("GET", "/api/overview"))
        if told.status != _READY:
            raise BenchError(f"RabbitMQ answers {told.status}")
        self._version = str(msgspec.json.decode(told.body)["rabbitmq_version"])

    def stop(self) -> None:
        """End it."""
        self._node.stop()
