"""What clients send: read within bounds, as a whole or line by line.

Owns the bounds. What must not break: however much is sent, and however slowly, no more than `HELD_MAX`
bytes of all requests together are in memory.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from starlette.requests import Request

from cassq.errors import BodyTooLargeError, InvalidOptionError, OverloadedError
from cassq.http.problems import RefusedError
from cassq.limits import MIB

T = TypeVar("T")

#: Of all requests of a process together.
HELD_MAX = 64 * MIB

#: A body of JSON that is no message: a thousand leases, or reasons, and more.
JSON_MAX = 1 * MIB

#: One request with many messages.
LINES_BYTES_MAX = 64 * MIB
LINES_MAX = 100_000

#: One message and its headers as a line: in base64, or with each byte of a text escaped.
LINE_MAX = 12 * MIB

#: So many lines, or bytes, are pushed together.
PART_LINES = 1000
PART_BYTES = 1 * MIB


class Budget:
    """The bytes that a process holds for clients; half of them at most for one application.

    Attributes:
        most_each: for one application.
    """

    def __init__(self, most: int = HELD_MAX, most_each: int | None = None) -> None:
        self._left = most
        self.most_each = most // 2 if most_each is None else most_each
        self._held: Counter[str] = Counter()

    @contextmanager
    def share(self, owner: str) -> Iterator["Share"]:
        """Yield a share of an application that grows, and is given back in the end."""
        share = Share(self, owner)
        try:
            yield share
        finally:
            share.resize(0)

    def take(self, count: int, owner: str) -> None:
        """Take, or give back what is below 0.

        Raises: OverloadedError: there is not so much left.
        """
        if count > 0:
            self.check(count, owner)
        self._left -= count
        self._held[owner] += count
        if not self._held[owner]:
            del self._held[owner]

    def held(self, owner: str) -> int:
        """Return how much it holds."""
        return self._held[owner]

    def check(self, count: int, owner: str) -> None:
        """Raise where so much more may not be taken.

        Raises: OverloadedError: there is not so much left.
        """
        if self._held[owner] + count > self.most_each:
            raise OverloadedError("this process holds as much for this application as it may: try again")
        if count > self._left:
            raise OverloadedError("this process holds as much for clients as it may: try again")


class Share:
    """What one request holds."""

    def __init__(self, budget: Budget, owner: str) -> None:
        self._budget = budget
        self._owner = owner
        self._size = 0

    def resize(self, size: int) -> None:
        """Hold so many bytes.

        Raises: OverloadedError: there is no room.
        """
        self._budget.take(size - self._size, self._owner)
        self._size = size


def check_coding(request: Request) -> None:
    """Refuse a body that is compressed: how large it is nobody knows before it is unpacked.

    Raises: RefusedError: it is.
    """
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise RefusedError(
            415, "content-encoding", "Content-Encoding is not taken: send the body as it is", _CLOSE
        )


_CLOSE = {"Connection": "close"}


def _too_large(most: int, what: str) -> RefusedError:
    return RefusedError(413, BodyTooLargeError.code, f"{what} may have {most} bytes at most", _CLOSE)


async def _chunks(request: Request, most: int, what: str) -> AsyncIterator[bytes]:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most, what)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise _too_large(most, what)
        yield chunk


async def read_body(request: Request, share: Share, most: int, what: str = "the body") -> bytes:
    """Return the whole body.

    Raises:
        RefusedError: it is too large, or compressed.
        OverloadedError: there is no room for it.
        ClientDisconnect: the client left before it was all there.
    """
    check_coding(request)
    held = bytearray()
    async for chunk in _chunks(request, most, what):
        share.resize(len(held) + len(chunk))
        held += chunk
    return bytes(held)


def decode(text: bytes, kind: type[T], where: str) -> T:
    """Return JSON as a type.

    Raises: InvalidOptionError: it is none, or not of the type; names the field.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidOptionError(f"{where}: {error}") from None


def convert(words: dict[str, str], kind: type[T], where: str) -> T:
    """Return words of a query as a type.

    Raises: InvalidOptionError: one is unknown or of the wrong form; names it.
    """
    try:
        return msgspec.convert(words, kind, strict=False)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise InvalidOptionError(f"{where}: {error}") from None


class _Lines:
    """Cuts what comes into lines, and lines into parts.

    Attributes:
        held: the beginning of a line whose end has not come yet.
    """

    def __init__(self) -> None:
        self.held = bytearray()
        self._part: list[bytes] = []
        self._size = self._count = 0

    @property
    def size(self) -> int:
        """How many bytes are here."""
        return self._size + len(self.held)

    def cut(self, chunk: bytes) -> Iterator[list[bytes]]:
        """Take what came; yield the parts that are full."""
        # Only what is new is searched, or a long line would be searched again with each chunk.
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self.held += chunk
        else:
            lines = bytes(self.held + whole).split(b"\n")
            self.held = bytearray(rest)
            for line in lines:
                if self._add(line):
                    yield self.take()
        if len(self.held) > LINE_MAX:
            raise _too_large(LINE_MAX, "a line")

    def _add(self, line: bytes) -> bool:
        """Add a line, unless it is empty; tell whether the part is full."""
        if len(line) > LINE_MAX:
            raise _too_large(LINE_MAX, "a line")
        if line.strip():
            self._count += 1
            if self._count > LINES_MAX:
                words = f"a request may have {LINES_MAX} lines at most"
                raise RefusedError(413, BodyTooLargeError.code, words, _CLOSE)
            self._part.append(line)
            self._size += len(line)
        return len(self._part) >= PART_LINES or self._size >= PART_BYTES

    def take(self) -> list[bytes]:
        """Return the part, and begin another one."""
        part, self._part, self._size = self._part, [], 0
        return part

    def end(self) -> list[bytes]:
        """Return the last part; the last line needs no end."""
        self._add(bytes(self.held))
        return self.take()


async def read_lines(request: Request, share: Share) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a body in parts, as they come; empty lines are left out.

    Raises: as `read_body`; RefusedError also where a line, or their number, is too large.
    """
    check_coding(request)
    lines = _Lines()
    async for chunk in _chunks(request, LINES_BYTES_MAX, "a request with many messages"):
        share.resize(lines.size + len(chunk))
        for part in lines.cut(chunk):
            yield part
            del part  # whoever has it counts it
        share.resize(lines.size)
    if part := lines.end():
        yield part
