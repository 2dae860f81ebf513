"""What the requests of a queue behind HTTP look like: the service's own, and each rival's.

Owns the protocol that they keep, and the service's. Requests are bytes that are ready to be sent, so that
making them is not measured where it can be done before.
"""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from _bench.http.connection import Answer, Connection, to_request

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
_PATIENCE_S = 5.0


def ask_once(port: int, request: bytes) -> Answer:
    """Send a request over a connection of its own; return its answer."""

    async def ask() -> Answer:
        connection = Connection(port)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await connection.ask(request)
        finally:
            connection.close()

    return asyncio.run(ask())


class Popped(NamedTuple):
    """What an answer had.

    Attributes:
        ack: the request that acknowledges it; None where nothing is left to be acknowledged.
    """

    bodies: list[bytes]
    ack: bytes | None


class Dialect(Protocol):
    """Makes requests and reads answers.

    Attributes:
        push_max, pop_max: messages that one request may have.
        setup: requests that make the queue.
    """

    @property
    def push_max(self) -> int:
        """See above."""
        ...

    @property
    def pop_max(self) -> int:
        """See above."""
        ...

    @property
    def setup(self) -> Sequence[bytes]:
        """See above."""
        ...

    def push_one(self, body: bytes) -> bytes:
        """Return the request that pushes a message."""
        ...

    def push_many(self, bodies: Sequence[bytes]) -> bytes:
        """Return the request that pushes several."""
        ...

    def check(self, answer: bytes) -> None:
        """Raise where what was pushed is not stored, or acknowledged, though the status says so."""
        ...

    def pop(self, count: int, wait_s: float) -> bytes:
        """Return the request that takes messages."""
        ...

    def read(self, answer: bytes) -> Popped:
        """Read the answer to that."""
        ...


class _Message(msgspec.Struct):
    body: str
    encoding: str


class _Lease(msgspec.Struct):
    lease: str
    messages: list[_Message]


class _Leases(msgspec.Struct):
    leases: list[_Lease]


_leases = msgspec.json.Decoder(_Leases)


@dataclass(frozen=True, slots=True)
class CassqDialect:
    """The service's.

    Args:
        queue: its name.
        key: of an application.
    """

    queue: str
    key: str
    push_max: int = 1000
    pop_max: int = 1000

    @property
    def setup(self) -> Sequence[bytes]:
        """Make the queue, or open it."""
        return [self.request("PUT", "")]

    def request(
        self, method: str, call: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return a request about the queue."""
        own = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        return to_request(method, f"/v1/queues/{self.queue}{call}", body, own)

    def push_one(self, body: bytes) -> bytes:
        """Push its bytes."""
        return self.request("POST", "/messages", body)

    def push_many(self, bodies: Sequence[bytes]) -> bytes:
        """Push lines."""
        lines = b"".join(msgspec.json.encode({"body": body.decode()}) + b"\n" for body in bodies)
        return self.request("POST", "/messages", lines, NDJSON)

    def check(self, answer: bytes) -> None:
        """The status says it all."""

    def pop(self, count: int, wait_s: float) -> bytes:
        """Lease."""
        wanted = msgspec.json.encode({"count": count, "wait_s": wait_s})
        return self.request("POST", "/lease", wanted, JSON)

    def read(self, answer: bytes) -> Popped:
        """Read leases; committing them is one request."""
        if not answer:
            return Popped([], None)
        leases = _leases.decode(answer).leases
        bodies = [_to_bytes(each) for lease in leases for each in lease.messages]
        tokens = msgspec.json.encode({"leases": [each.lease for each in leases]})
        return Popped(bodies, self.request("POST", "/commit", tokens, JSON))


def _to_bytes(message: _Message) -> bytes:
    return message.body.encode() if message.encoding == "utf-8" else base64.b64decode(message.body)
