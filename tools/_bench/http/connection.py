"""A connection that sends HTTP/1.1 requests as they are and cuts answers apart, and does nothing besides.

Owns the cutting, of answers with a length or in chunks. Refuses everything that a server under measurement
does not send. What must not break: an answer is that of the request before it, whole.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

LOOPBACK = "127.0.0.1"

_LENGTH = b"\r\ncontent-length:"
_LAST = b"\r\nconnection: close\r\n"
_CHUNKED = b"\r\ntransfer-encoding: chunked"
_ERROR = 400


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes


class AnsweredError(Exception):
    """Raised when a server refuses what was measured; the message is its answer."""


class Connection(asyncio.Protocol):
    """One connection; one request at a time. Made anew where the server has ended it after an answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._held = b""
        self._waiter: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Be open."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits."""
        if self._waiter and not self._waiter.done():
            self._waiter.set_exception(exc or ConnectionResetError("the server ended the connection"))

    async def ask(self, request: bytes) -> Answer:
        """Send a request; return its answer, whatever its status.

        Raises: ConnectionResetError: the connection ended before it.
        """
        if self._transport is None or self._transport.is_closing():
            self._held = b""
            await asyncio.get_running_loop().create_connection(lambda: self, LOOPBACK, self._port)
            assert self._transport  # noqa: S101 - for type checkers
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiter

    async def get(self, request: bytes) -> bytes:
        """Send a request; return the body of its answer.

        Raises: AnsweredError: it was refused.
        """
        answer = await self.ask(request)
        if answer.status >= _ERROR:
            raise AnsweredError(f"{answer.status} {answer.body[:500]!r} to {request[:200]!r}")
        return answer.body

    def data_received(self, data: bytes) -> None:
        """Take what came; answer once it is whole."""
        self._held += data
        if (answer := _cut(self._held)) and self._waiter and not self._waiter.done():
            if _LAST in self._held[: len(self._held) - len(answer.body)].lower():
                self.close()
            self._held = b""
            self._waiter.set_result(answer)

    def close(self) -> None:
        """End it."""
        if self._transport:
            self._transport.close()


def _cut(held: bytes) -> Answer | None:
    end = held.find(b"\r\n\r\n")
    if end < 0:
        return None
    status, head, body = int(held[9:12]), held[: end + 2].lower(), held[end + 4 :]
    at = head.find(_LENGTH)
    if at >= 0:
        length = int(head[at + len(_LENGTH) : head.index(b"\r\n", at + 2)])
        return Answer(status, body) if len(body) >= length else None
    if _CHUNKED in head:
        whole = _join(body)
        return None if whole is None else Answer(status, whole)
    return Answer(status, b"")


def _join(chunks: bytes) -> bytes | None:
    """Return what the chunks have together; None where the last one has not come."""
    parts: list[bytes] = []
    at = 0
    while (end := chunks.find(b"\r\n", at)) >= 0:
        size = int(chunks[at:end].partition(b";")[0], 16)
        if end + 2 + size + 2 > len(chunks):
            return None
        if not size:
            return b"".join(parts)
        parts.append(chunks[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return None


def to_request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """Return a request as it is sent."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
