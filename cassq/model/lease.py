"""What a client of a service holds instead of a delivery: a lease, as a text that any process understands.

Owns the text, how it is checked, and the words for what became of a lease. Refuses to know whether it stands:
the database tells. What must not break: the lease id is shown nowhere but in the text that its client gets.
"""

import base64
import binascii
import struct
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Self
from uuid import UUID

from cassq.errors import InvalidOptionError
from cassq.limits import SEQ_MAX, TAKE_MESSAGES_MAX

#: Version, incarnation of the queue, pipe, first number, how many, lease id, attempt; a checksum follows.
_FORM = struct.Struct(">B4s16sQH16sI")
_VERSION = 1
_CHECKSUM = struct.Struct(">I")

#: Bytes of a queue's incarnation that a lease has.
INCARNATION_BYTES = 4

#: So much of a lease's text may be shown.
_SHOWN = 12


class Settled(Enum):
    """What a commit of a lease came to."""

    #: It is durable, and was in time: what was committed is never delivered again.
    COMMITTED = "committed"
    #: All that was to be committed had ended before, by this client or by another, by whatever end.
    ENDED = "ended"
    #: The lease had ended, or nobody knows it: what has not ended is delivered again.
    EXPIRED = "expired"
    #: It may have happened, and nobody knows; call again.
    UNKNOWN = "unknown"


class Extension(Enum):
    """What an extension of a lease came to."""

    #: It runs for the queue's lease from before the call on, at least.
    EXTENDED = "extended"
    #: All of its messages have ended.
    ENDED = "ended"
    #: The lease had ended, or nobody knows it: what has not ended is delivered again.
    EXPIRED = "expired"
    #: It may have happened, and nobody knows; call again.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rollback:
    """How a message goes back.

    Attributes:
        delay: it is delivered `delay` from now at the earliest, 7 days at most. None: as long as the queue's
            retry settings say.
        reason: why, for people; it stands in the dead letter. Cut to 1 KiB.
    """

    delay: timedelta | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """Some messages of one pipe that one client has until they are settled, or its time is over.

    Attributes:
        incarnation: the first bytes of the queue's, which a later queue of the name does not have.
        pipe, first, last: the messages.
        lease_id: who knows it may settle the lease.
        attempt: how many times its messages were handed out, this time included.
    """

    incarnation: bytes
    pipe: UUID
    first: int
    last: int
    lease_id: UUID = field(repr=False)
    attempt: int

    @property
    def count(self) -> int:
        """How many numbers it has; of some the messages may have ended before it was leased."""
        return self.last - self.first + 1

    def to_text(self) -> str:
        """Return it as a text of 76 characters that stand in any URL."""
        place = self.pipe.bytes, self.first, self.count
        body = _FORM.pack(_VERSION, self.incarnation, *place, self.lease_id.bytes, self.attempt)
        return base64.urlsafe_b64encode(body + _CHECKSUM.pack(binascii.crc32(body))).decode("ascii")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a text of `to_text`.

        Raises: InvalidOptionError: it is none, or was altered; it says in which way.
        """
        length = 4 * -(-(_FORM.size + _CHECKSUM.size) // 3)
        if not isinstance(text, str) or not text.isascii():
            raise _not_one(text, "it is no text of letters, digits, '-', '_' and '='")
        if len(text) != length:
            raise _not_one(text, f"it has {len(text)} characters, not {length}")
        try:
            packed = base64.b64decode(text, altchars=b"-_", validate=True)
        except binascii.Error:
            raise _not_one(text, "it has other characters than letters, digits, '-', '_' and '='") from None
        body, checksum = packed[: _FORM.size], packed[_FORM.size :]
        if checksum != _CHECKSUM.pack(binascii.crc32(body)):
            raise _not_one(text, "its checksum does not fit: it was altered on its way")
        version, incarnation, pipe, first, count, lease_id, attempt = _FORM.unpack(body)
        if version != _VERSION:
            raise _not_one(text, f"it is of version {version}, and this cassq knows version {_VERSION} only")
        if not (1 <= count <= TAKE_MESSAGES_MAX and 1 <= first <= SEQ_MAX - count and attempt >= 1):
            raise _not_one(text, f"it names {count} numbers from {first} on in attempt {attempt}")
        return cls(incarnation, UUID(bytes=pipe), first, first + count - 1, UUID(bytes=lease_id), attempt)

    def __str__(self) -> str:
        return f"lease {self.to_text()[:_SHOWN]}…"


def _not_one(text: object, why: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"{str(text)[:_SHOWN]!r}… is not a lease as lease() gave it: {why}; send the whole text, as it came"
    )


def holder_of(queue: str) -> str:
    """Return what stands as the holder in the runs that tokens name."""
    return f"lease {queue}"
