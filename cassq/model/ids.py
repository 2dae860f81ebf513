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
        pipe, _, seq = str(text).rpartition(":")
        try:
            message_id = cls(UUID(pipe), int(seq))
        except ValueError:
            raise InvalidOptionError(
                f"{text!r} is not a message id: expected PIPE:SEQ, as push returns it, "
                "for example 5b0e4a1e-c6b5-11f0-8de9-0242ac120002:17"
            ) from None
        if not 1 <= message_id.seq < SEQ_MAX or message_id.pipe.version != 1:
            raise InvalidOptionError(
                f"{text!r} is not a message id: its pipe is a time-UUID, its number 1 or more"
            )
        return message_id


def to_message_id(given: object) -> MessageId:
    """Return a message id from one, or from its str.

    Raises:
        InvalidOptionError: it is neither.
    """
    return MessageId.parse(str(given))


def new_pipe_id() -> UUID:
    """Return a fresh time-UUID.

    Node and clock sequence are random for each id (62 random bits beside the time): a clock that was set
    back, a cloned machine or a forked process cannot make the same id again.
    """
    return uuid1(node=secrets.randbits(48) | (1 << 40), clock_seq=secrets.randbits(14))


def new_token() -> UUID:
    """Return a fresh random UUID for an op (the fence) or a lease."""
    return uuid4()


def time_key(pipe: UUID) -> bytes:
    """Return the id's bytes with the time in front: keys sort by time."""
    raw = pipe.bytes
    return raw[6:8] + raw[4:6] + raw[0:4] + raw[8:]


def from_time_key(key: bytes) -> UUID:
    """Undo `time_key`."""
    return UUID(bytes=key[4:8] + key[2:4] + key[0:2] + key[8:])


def check_name(name: object, what: str = "queue name") -> str:
    """Return `name` when it is a valid name.

    Raises:
        InvalidNameError: it is not a str, is empty or over-long, or has other characters.
    """
    if not isinstance(name, str):
        raise InvalidNameError(f"a {what} is a str, not {type(name).__name__}: {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidNameError(
            f"the {what} {name[:40]!r}… has {len(name)} characters; at most {NAME_LENGTH_MAX} are allowed"
        )
    if not _NAME.fullmatch(name):
        raise InvalidNameError(
            f"{name!r} is not a {what}: use ASCII letters, digits, '.', '_' and '-', "
            "starting with a letter or digit"
        )
    return name
