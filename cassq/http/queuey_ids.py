"""The ids of messages as Queuey has them: 32 hex digits of a time-UUID.

Owns which bits say what: the time is when the database published the message, and what a time-UUID has of its
machine and its sequence is the partition, in 10 bits, and the offset, in 52. What must not break: an id names
one message, and a message has one id; so who has the id reads from there on, exactly.
"""

import re
from typing import NamedTuple, Self
from uuid import UUID

from cassq.errors import CorruptError
from cassq.http.queuey_forms import refused
from cassq.model.ids import TICKS_BEFORE_1970, TICKS_PER_MS
from cassq.model.topic import TopicMessage

_OFFSET_BITS = 52
_NODE_BITS = 48
_VARIANT = 0x80  # of RFC 9562, in the upper two bits of the sequence
_TIME_UUID = 1

_ID = re.compile(r"[0-9a-fA-F]{32}")
_PLACED_ID = re.compile(rf"(?:([0-9]{{1,4}}):)?({_ID.pattern})")
_SECONDS = re.compile(r"([0-9]{1,11})(?:\.([0-9]{1,9}))?")

#: So many ids are asked for at once: each is a read of its own.
IDS_MAX = 100


class MessagePlace(NamedTuple):
    """What an id names.

    Attributes:
        partition: as the topic counts, from 0 on.
    """

    published_at_ms: int
    partition: int
    offset: int

    @classmethod
    def of(cls, message: TopicMessage) -> Self:
        """Return that of a message."""
        return cls(message.published_at_ms, message.partition, message.offset)

    @property
    def hex(self) -> str:
        """The id.

        Raises: CorruptError: no id has room for the offset: as many messages nobody publishes.
        """
        if self.offset >> _OFFSET_BITS:
            raise CorruptError(
                f"offset {self.offset} of partition {self.partition} has no id in Queuey's form"
            )
        ticks = self.published_at_ms * TICKS_PER_MS + TICKS_BEFORE_1970
        place = self.partition << _OFFSET_BITS | self.offset
        node, sequence = place & ((1 << _NODE_BITS) - 1), place >> _NODE_BITS
        fields = (
            *(ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48),
            *(sequence >> 8 | _VARIANT, sequence & 0xFF, node),
        )
        return UUID(fields=fields, version=_TIME_UUID).hex

    @property
    def timestamp(self) -> str:
        """Seconds since 1970, as Queuey tells them."""
        return f"{self.published_at_ms // 1000}.{self.published_at_ms % 1000:03d}"


class Since(NamedTuple):
    """Where reading begins.

    Attributes:
        ticks: tenths of microseconds since 1970.
        place: what the id names; None where a time was given, or an id that no message of a topic has.
    """

    ticks: int
    place: MessagePlace | None = None

    @property
    def first_ms(self) -> int:
        """The first millisecond that is not before it."""
        return -(-self.ticks // TICKS_PER_MS)

    @property
    def last_ms(self) -> int:
        """The last millisecond that is not behind it."""
        return self.ticks // TICKS_PER_MS


def parse_since(text: str) -> Since | None:
    """Read seconds since 1970, or an id; return None where it is neither."""
    if found := _SECONDS.fullmatch(text):
        return Since(int(found[1]) * 10_000_000 + int((found[2] or "").ljust(7, "0")[:7]))
    return _parse(text) if _ID.fullmatch(text) else None


def _parse(text: str) -> Since | None:
    named = UUID(hex=text)
    if named.version != _TIME_UUID:
        return None
    ticks = named.time - TICKS_BEFORE_1970
    if ticks % TICKS_PER_MS or ticks < 0:
        return Since(max(0, ticks))  # somebody else's: it says a time
    bits = named.clock_seq << _NODE_BITS | named.node
    place = MessagePlace(ticks // TICKS_PER_MS, bits >> _OFFSET_BITS, bits & ((1 << _OFFSET_BITS) - 1))
    return Since(ticks, place if place.offset else None)


def parse_ids(text: str) -> list[MessagePlace | None]:
    """Read ids as `PARTITION:HEX,…`; None for those that no message has.

    Raises: FieldsError: one has another form, or there are too many.
    """
    given = [_PLACED_ID.fullmatch(each.strip()) for each in text.split(",")]
    if not all(given):
        raise refused("InvalidMessageID", "ids have 32 hex digits, and may have PARTITION: before them")
    if len(given) > IDS_MAX:
        raise refused("InvalidMessageID", f"{IDS_MAX} ids at most: ask several times")
    return [_place_of(int(each[1] or 1), each[2]) for each in given if each]


def _place_of(partition: int, text: str) -> MessagePlace | None:
    found = _parse(text)
    place = found.place if found else None
    return place if place and place.partition == partition - 1 else None
