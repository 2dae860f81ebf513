"""Messages, and the batches they travel in.

A batch is what one write carried: immutable once sent, numbered from `first` without a gap. The rule that
must not break: a number that was once sent never names another body.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple, overload
from uuid import UUID

from cassq.errors import BodyTooLargeError, InvalidOptionError
from cassq.limits import HEADERS_BYTES_MAX
from cassq.model.ids import MessageId, shorten
from cassq.model.ranges import Range

Headers = Mapping[str, str]
NO_HEADERS: Headers = {}

_ENDS_A_LINE = re.compile("[\0\r\n]")


class Origin(NamedTuple):
    """What a message was before it was written again.

    Attributes:
        message_id: its first id, which people know it by.
        pushed_at_ms: when it was pushed, by the database's clock.
    """

    message_id: MessageId
    pushed_at_ms: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One entry of a pipe's waiting row.

    Attributes:
        first: number of the first message.
        bodies: the bodies, in order; empty where only the outline was read.
        headers: one mapping for each body, or None when no message of the batch has any.
        count: number of messages, also in an outline.
        pushed_at_ms: database's clock at the write, milliseconds since 1970; None before it is written.
        ttl_ms: how long its messages may wait for their consumers; 0 for as long as their queue says.
        dues: when each message may be delivered, by the database's clock; None for at once.
        origins: what each message was first, where it was written again in another pipe; else None.
        keys: the key of each message, also in an outline; None where they have none.
    """

    first: int
    bodies: tuple[bytes, ...]
    headers: tuple[Headers, ...] | None
    count: int
    pushed_at_ms: int | None = None
    ttl_ms: int = 0
    dues: tuple[int, ...] | None = None
    origins: tuple[Origin, ...] | None = None
    keys: tuple[str, ...] | None = None

    @property
    def last(self) -> int:
        """Number of the last message."""
        return self.first + self.count - 1

    @property
    def size(self) -> int:
        """What its messages weigh, in bytes."""
        size = sum(map(len, self.bodies))
        return size + sum(size_of(b"", headers) for headers in self.headers) if self.headers else size

    @property
    def outline(self) -> "Batch":
        """The batch without its bodies and headers."""
        return replace(self, bodies=(), headers=None)

    def origin(self, pipe: UUID, seq: int) -> Origin:
        """Return what message `seq` of a pipe, which must be in the batch, was first."""
        if self.origins:
            return self.origins[seq - self.first]
        return Origin(MessageId(pipe, seq), self.pushed_at_ms or 0)

    def due_ms(self, seq: int) -> int:
        """Return when message `seq`, which must be in the batch, is due; 0 for at once.

        One that was moved, and had no due time, has that of its push.
        """
        due_ms = self.dues[seq - self.first] if self.dues else 0
        return 0 if self.origins and due_ms == self.origins[seq - self.first].pushed_at_ms else due_ms

    def message(self, seq: int) -> tuple[bytes, Headers]:
        """Return body and headers of message `seq`, which must be in the batch."""
        place = seq - self.first
        return self.bodies[place], self.headers[place] if self.headers else {}

    def part(self, first: int, last: int) -> "Batch":
        """Return the messages first … last, which must be in the batch, as a batch of their own."""
        if first == self.first and last == self.last:
            return self
        place = slice(first - self.first, last - self.first + 1)
        headers = self.headers[place] if self.headers else None
        count = last - first + 1
        own = Batch(first, self.bodies[place], headers, count, self.pushed_at_ms, self.ttl_ms)
        if self.dues is None and self.origins is None and self.keys is None:
            return own
        return replace(
            own,
            dues=None if self.dues is None else self.dues[place],
            origins=None if self.origins is None else self.origins[place],
            keys=None if self.keys is None else self.keys[place],
        )


@dataclass(frozen=True, slots=True)
class Message:
    """A message as `peek` and the dead letters show it.

    Attributes:
        message_id: its id, as push returned it.
        body: the bytes that were pushed.
        headers: str to str.
        pushed_at: when it became durable, by the database's clock (UTC).
        priority, type, key: as it was pushed; None for no type, and for no key.
    """

    message_id: MessageId
    body: bytes
    headers: Headers
    pushed_at: datetime
    priority: int = field(default=0, kw_only=True)
    type: str | None = field(default=None, kw_only=True)
    key: str | None = field(default=None, kw_only=True)


class MessageIds(Sequence[MessageId]):
    """The ids of one `push_many`, in the order of the bodies; a million take a few hundred bytes."""

    __slots__ = ("_count", "_parts")

    def __init__(self) -> None:
        self._parts: list[tuple[UUID, Range]] = []
        self._count = 0

    def add(self, pipe: UUID, first: int, last: int) -> None:
        """Append the ids first … last of one pipe."""
        if self._parts and self._parts[-1][0] == pipe and self._parts[-1][1].last == first - 1:
            before = self._parts.pop()[1]
            self._count -= before.size
            first = before.first
        self._parts.append((pipe, Range(first, last)))
        self._count += last - first + 1

    def extend(self, other: "MessageIds") -> None:
        """Append the ids of `other`."""
        for pipe, part in other._parts:  # noqa: SLF001 - another of our own
            self.add(pipe, part.first, part.last)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[MessageId]:
        for pipe, part in self._parts:
            for seq in range(part.first, part.last + 1):
                yield MessageId(pipe, seq)

    @overload
    def __getitem__(self, index: int) -> MessageId: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MessageId]: ...
    def __getitem__(self, index: int | slice) -> MessageId | Sequence[MessageId]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"message id {index} of {len(self)}")
        for pipe, part in self._parts:
            if place < part.size:
                return MessageId(pipe, part.first + place)
            place -= part.size
        raise IndexError(index)

    def __repr__(self) -> str:
        return f"<MessageIds: {len(self)} in {len({pipe for pipe, _ in self._parts})} pipes>"


def check_body(body: object, body_bytes_max: int) -> bytes:
    """Return the body as bytes.

    Raises:
        InvalidOptionError: it is not bytes, bytearray or memoryview.
        BodyTooLargeError: it is longer than the queue takes.
    """
    if not isinstance(body, bytes):
        if not isinstance(body, bytearray | memoryview):
            raise InvalidOptionError(
                f"a body is bytes, not {type(body).__name__}: {shorten(body)}; "
                "encode it first, for example with json.dumps(value).encode()"
            )
        try:
            body = bytes(body)
        except ValueError as error:
            raise InvalidOptionError(f"the body {shorten(body)} cannot be read: {error}") from error
    if len(body) > body_bytes_max:
        raise BodyTooLargeError(
            f"the body has {len(body)} bytes; the queue takes {body_bytes_max} (body_bytes_max): "
            "store large content elsewhere and push a reference to it"
        )
    return body


def check_headers(headers: object) -> Headers:
    """Return the headers as a dict of str to str, in the order of their names, as Cassandra keeps a map.

    Raises:
        InvalidOptionError: they are no mapping of str to str, or one has no name or more than one line.
        BodyTooLargeError: they are larger than HEADERS_BYTES_MAX.
    """
    if headers is None:
        return NO_HEADERS
    if not isinstance(headers, Mapping):
        raise InvalidOptionError(f"headers are a mapping, not {type(headers).__name__}")
    size = 0
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidOptionError(
                f"header {shorten(name)}: {shorten(value)} is not str to str; turn names and values into str"
            )
        if not name:
            raise InvalidOptionError(f"header {shorten(name)}: {shorten(value)} has no name: give it one")
        if name.isascii() and value.isascii() and name.isprintable() and value.isprintable():
            size += len(name) + len(value)  # what nearly all are costs little
            continue
        _check_one_line(name, value)
        try:
            size += len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            raise InvalidOptionError(
                f"header {shorten(name)}: {shorten(value)} cannot be written as UTF-8"
            ) from None
    if size > HEADERS_BYTES_MAX:
        raise BodyTooLargeError(f"the headers have {size} bytes; at most {HEADERS_BYTES_MAX} are taken")
    return dict(sorted(headers.items()))


def _check_one_line(name: str, value: str) -> None:
    """Refuse what ends a line or a string elsewhere: in an environment, a log, a protocol's headers."""
    for what, text in (("name", name), ("value", value)):
        if found := _ENDS_A_LINE.search(text):
            raise InvalidOptionError(
                f"header {shorten(name)}: its {what} {shorten(text)} has {found[0]!r} in it; NUL, CR and LF "
                "are refused: put such text into the body, or encode it"
            )


def size_of(body: bytes, headers: Headers) -> int:
    """Return what a message weighs in a batch: the bytes of its body, and roughly those of its headers."""
    return len(body) + (sum(len(name) + len(value) for name, value in headers.items()) if headers else 0)


def pack_headers(headers: Iterable[Headers]) -> tuple[Headers, ...] | None:
    """Return one mapping per message, or None when all are empty (nothing is stored then)."""
    packed = tuple(headers)
    return packed if any(packed) else None


@lru_cache(1024)  # many messages were pushed together, and this takes longer than all else of a time
def to_datetime(ms: int) -> datetime:
    """Return milliseconds since 1970 as an aware datetime in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)
