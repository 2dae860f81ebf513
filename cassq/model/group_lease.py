"""What a client of a service has of a group: the next messages of one partition, in one epoch, as a text.

Owns the text and how it is checked. Refuses to know whether it stands: the row of progress tells. What must
not break: nobody makes one that this group did not give, nor moves its edges.
"""

import base64
import binascii
import hmac
import struct
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from cassq.errors import InvalidOptionError
from cassq.model.ids import shorten
from cassq.model.topic import Progress

#: Version, partition, epoch, the first offset, the one behind the last; the member's name and a seal follow.
_FORM = struct.Struct(">BHQQQ")
_VERSION = 1
_SEAL_BYTES = 16

#: So much of a text may be shown.
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class GroupLease:
    """The messages of one partition that one client has until it commits them, or its time is over.

    Attributes:
        epoch: how often the partition changed hands.
        first, next: the group's offset when they were handed out, and the one behind the last of them.
        owner: the member that handed them out.
    """

    partition: int
    epoch: int
    first: int
    next: int
    owner: str

    @property
    def before(self) -> Progress:
        """The progress that it was handed out of."""
        return Progress(self.partition, self.epoch, self.owner, self.first)

    @property
    def after(self) -> Progress:
        """The progress once it is committed."""
        return Progress(self.partition, self.epoch, self.owner, self.next)

    def to_text(self, group: UUID) -> str:
        """Return it as a text of letters, digits, '-' and '_'.

        Args:
            group: the group's id, which no client sees, and which seals the text.
        """
        body = _FORM.pack(_VERSION, self.partition, self.epoch, self.first, self.next) + self.owner.encode()
        return base64.urlsafe_b64encode(body + _seal(group, body)).decode("ascii").rstrip("=")

    @classmethod
    def parse(cls, text: str, group: UUID) -> Self:
        """Read a text of `to_text`.

        Raises: InvalidOptionError: it is none, or of another group, or was altered.
        """
        if not isinstance(text, str):
            raise InvalidOptionError(f"{shorten(text)} is no lease: send the text, as it came")
        try:
            packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            packed = b""
        body, seal = packed[:-_SEAL_BYTES], packed[-_SEAL_BYTES:]
        if len(body) < _FORM.size or not hmac.compare_digest(seal, _seal(group, body)):
            raise InvalidOptionError(
                f"{text[:_SHOWN]!r}… is no lease of this group: it was altered, or is of another "
                "group, or of an earlier one of its name; send the whole text, as it came"
            )
        version, partition, epoch, first, after = _FORM.unpack(body[: _FORM.size])
        if version != _VERSION:
            raise InvalidOptionError(
                f"{text[:_SHOWN]!r}… is of version {version}, which this cassq does not know"
            )
        return cls(partition, epoch, first, after, body[_FORM.size :].decode())


def _seal(group: UUID, body: bytes) -> bytes:
    return hmac.digest(group.bytes, body, "sha256")[:_SEAL_BYTES]
