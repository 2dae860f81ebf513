"""Names of pipes and messages.

A pipe is named by a version-1 UUID, whose embedded time orders pipes roughly by age. The rule that must
not break: a pipe id is never used twice, by anyone, whatever the clock does.
"""

import re
import secrets
from typing import NamedTuple, Self
from uuid import UUID, uuid1, uuid4

from cassq.errors import InvalidNameError, InvalidOptionError
from cassq.limits import NAME_LENGTH_MAX, SEQ_MAX

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_UUID = "-".join(f"[0-9a-fA-F]{{{length}}}" for length in (8, 4, 4, 4, 12))
_MESSAGE_ID = re.compile(rf"({_UUID}):([0-9]{{1,19}})")

#: Time-UUIDs count tenths of microseconds, since 1582.
TICKS_PER_MS = 10_000
TICKS_BEFORE_1970 = 0x01B21DD213814000

#: No id is older.
OLDEST = UUID("00000000-0000-1000-8080-808080808080")

#: An error shows at most so much of a value.
_SHOWN_MAX = 60


def shorten(value: object) -> str:
    """Return how an error names a value that somebody gave: its repr, cut short. Never fails."""
    try:
        # What is long is cut first: its repr may be longer by far.
        text = repr(value[: _SHOWN_MAX + 1] if isinstance(value, str | bytes) else value)
    except Exception:  # whatever the value's own code raises
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


class MessageId(NamedTuple):
    """The public id of a message: the pipe it was pushed into and its number there (from 1)."""

    pipe: UUID
    seq: int

    def __str__(self) -> str:
        """Return `PIPE:SEQ`, which `parse` reads back."""
        return f"{self.pipe}:{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an id written by `str()`.

        Raises:
            InvalidOptionError: the text is not `PIPE:SEQ`.
        """
        match = _MESSAGE_ID.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise InvalidOptionError(
                f"{shorten(text)} is not a message id: expected PIPE:SEQ, as push returns it, "
                "for example 5b0e4a1e-c6b5-11f0-8de9-0242ac120002:17"
            )
        message_id = cls(UUID(match[1]), int(match[2]))
        if not 1 <= message_id.seq < SEQ_MAX or message_id.pipe.version != 1:
            raise InvalidOptionError(
                f"{shorten(text)} is not a message id: its pipe is a time-UUID, its number 1 or more"
            )
        return message_id


#: What the journal may keep of a pipe.
JOURNAL_KINDS = ("outline", "headers")


class LogPlace(NamedTuple):
    """An offset in the journal's log of a pipe, from which on its events are looked for.

    Attributes:
        incarnation: of the topic: another one's offsets say nothing here.
        kind: what the events keep: where they are cut follows from it.
    """

    incarnation: UUID
    offset: int
    kind: str = "outline"


def to_message_id(given: object) -> MessageId:
    """Return a message id from one, or from its str.

    Raises:
        InvalidOptionError: it is neither.
    """
    if isinstance(given, MessageId):
        # Anybody can make one, also of what is no id.
        is_plain = isinstance(given.pipe, UUID) and type(given.seq) is int
        return MessageId.parse(str(given) if is_plain else shorten(tuple(given)))
    return MessageId.parse(given)  # type: ignore[arg-type]  # which refuses what is no str


def new_pipe_id(at_ms: int | None = None) -> UUID:
    """Return a fresh time-UUID.

    Node and clock sequence are random for each id (62 random bits beside the time): a clock that was set
    back, a cloned machine or a forked process cannot make the same id again.

    Args:
        at_ms: its time, in milliseconds since 1970; None: now.
    """
    made = uuid1(node=secrets.randbits(48) | (1 << 40), clock_seq=secrets.randbits(14))
    return made if at_ms is None else _at(made, at_ms * TICKS_PER_MS + TICKS_BEFORE_1970)


def id_time_ms(pipe: UUID) -> int:
    """Return the time of an id, in milliseconds since 1970."""
    return (pipe.time - TICKS_BEFORE_1970) // TICKS_PER_MS


def _at(pipe: UUID, ticks: int) -> UUID:
    """Return the id with another time."""
    parts = (ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000)
    return UUID(fields=(*parts, pipe.clock_seq_hi_variant, pipe.clock_seq_low, pipe.node))


def new_token() -> UUID:
    """Return a fresh random UUID for an op (the fence) or a lease."""
    return uuid4()


class Source(NamedTuple):
    """Whose pipes are handed out one after the other.

    Attributes:
        pusher: who pushes.
        priority: of the messages.
        lane: which of the pusher's side-by-side pipes.
        type: of the messages; "" where they have none.
        due_class: of the messages: see `cassq.model.schedule`.
        slot: of the keys of the messages: see `cassq.model.key`; -1 where they have none.
    """

    pusher: str
    priority: int = 0
    lane: int = 0
    type: str = ""
    due_class: int = 0
    slot: int = -1


def time_key(pipe: UUID) -> bytes:
    """Return the id's bytes with the time in front: keys sort by time."""
    raw = pipe.bytes
    return raw[6:8] + raw[4:6] + raw[0:4] + raw[8:]


def from_time_key(key: bytes) -> UUID:
    """Undo `time_key`."""
    return UUID(bytes=key[4:8] + key[2:4] + key[0:2] + key[8:])


def just_before(pipe: UUID, seconds: float = 0.0) -> UUID:
    """Return an id that lies before every id of this one's moment, or of one some seconds earlier.

    Of ids of one moment databases have orders of their own.
    """
    return _at(pipe, max(0, pipe.time - 1 - round(seconds * 1000 * TICKS_PER_MS)))


def check_name(name: object, what: str = "queue name") -> str:
    """Return `name` when it is a valid name.

    Raises:
        InvalidNameError: it is not a str, is empty or over-long, or has other characters.
    """
    if not isinstance(name, str):
        raise InvalidNameError(f"a {what} is a str, not {type(name).__name__}: {shorten(name)}")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidNameError(
            f"the {what} {name[:40]!r}… has {len(name)} characters; at most {NAME_LENGTH_MAX} are allowed"
        )
    if not _NAME.fullmatch(name):
        raise InvalidNameError(
            f"{shorten(name)} is not a {what}: use ASCII letters, digits, '.', '_' and '-', "
            "starting with a letter or digit"
        )
    return name
