"""Topics as they are stored: partitions, segments, heads, batches, progress.

A partition is an ordered log: its messages have the offsets 1, 2, 3 … It is stored in segments, each of which
has a head. A batch is in the log from the moment on in which the head was moved over it, and never before:

    publisher A                 head of segment 3                publisher B
    | link 5 at 17, IF op = x ->| op x, next 17                  |
    |                           | op a, next 22                  |
    |                           |<-- link 2 at 17, IF op = x --- | refused: it looks, and links at 22

What must not break: each change of a head sets a fresh op, and is conditional on the op that was seen. No
head means that the segment is gone, never that it is new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID, uuid5

from cassq.model.ids import new_token
from cassq.model.message import Headers, to_datetime
from cassq.model.subscription import Subscription
from cassq.model.topic_settings import TopicSettings

#: The headers that a topic looks at: which partition a message goes to, and which readers get it.
KEY_HEADER = "key"
TYPE_HEADER = "type"

#: The header by which a message in a queue tells where it was published: `PARTITION:OFFSET`.
OFFSET_HEADER = "cassq-offset"


class TopicState(Enum):
    """Whether a topic stands."""

    ACTIVE = "active"
    DELETED = "deleted"
    CLEARED = "cleared"  # deleted, and nothing is left of it


#: What is stored of a topic that was deleted.
GONE = (TopicState.DELETED.value, TopicState.CLEARED.value)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One topic, as stored.

    Attributes:
        incarnation: tells a topic from an earlier one of the same name.
        op: changes with every write; what the next one is conditional on.
        groups: the id of each group that has progress here, by name; a later one of the name has another.
        subscriptions: which queues have its messages, by name; of each there is a group of that name.
        read_at_ms: the database's clock when it was glanced at, where it has one of its own; 0 if not.
    """

    name: str
    incarnation: UUID
    settings: TopicSettings
    op: UUID
    state: TopicState = TopicState.ACTIVE
    groups: Mapping[str, UUID] = field(default_factory=dict)
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    read_at_ms: int = field(default=0, compare=False)

    @property
    def is_deleted(self) -> bool:
        """Whether it was deleted, and is being cleared, or was."""
        return self.state is not TopicState.ACTIVE


class PartitionKey(NamedTuple):
    """One partition of one incarnation of a topic."""

    incarnation: UUID
    partition: int

    def segment(self, number: int) -> "SegmentKey":
        """Return one of its segments."""
        return SegmentKey(*self, number)


class SegmentKey(NamedTuple):
    """One segment of a partition: 1, 2, 3 … from the oldest on."""

    incarnation: UUID
    partition: int
    number: int

    @property
    def successor(self) -> "SegmentKey":
        """The segment after it."""
        return self._replace(number=self.number + 1)


class SegmentState(Enum):
    """Whether batches are linked into a segment, or no more, or it is being deleted."""

    OPEN = "open"
    CLOSED = "closed"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a partition that is stored and deleted as one: the line in the list of segments.

    Attributes:
        number: 1, 2, 3 …
        first: the offset that it begins with.
        created_at_ms: database's clock; filled in by the adapter.
    """

    number: int
    first: int
    created_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class SegmentList:
    """The segments of a partition, oldest first, and the database's clock when they were read."""

    segments: tuple[Segment, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class LogHead:
    """The head of a segment.

    Attributes:
        op: the fence: a fresh random id with each change.
        first: the offset that the segment begins with.
        next: the offset that the next message gets.
        size: bytes of bodies and headers in it.
    """

    op: UUID
    first: int
    next: int
    size: int = 0
    state: SegmentState = SegmentState.OPEN

    @property
    def is_retired(self) -> bool:
        """Whether the segment is being deleted."""
        return self.state is SegmentState.RETIRED


@dataclass(frozen=True, slots=True)
class LogBatch:
    """What one link brought into the log.

    Attributes:
        first: the offset of its first message.
        count: of its messages.
        bodies: none of them where only the outline was read.
        headers: one mapping for each body, or None where no message has any.
        link_id: the op that its link gave the head: tells whose link it was, for ever.
        published_at_ms: database's clock; filled in by the adapter.
    """

    first: int
    count: int
    bodies: tuple[bytes, ...]
    headers: tuple[Headers, ...] | None
    link_id: UUID
    published_at_ms: int = 0

    @property
    def next(self) -> int:
        """The offset behind its last message."""
        return self.first + self.count


class WriterRow(NamedTuple):
    """The last number of a named writer in a partition, and the offset that it has."""

    writer: str
    number: int
    offset: int


class ProgressKey(NamedTuple):
    """What the progress of a group in a partition is stored under."""

    group: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group is in one partition.

    Attributes:
        epoch: how often the partition changed hands.
        owner: who has it in this epoch.
        next: the offset that the group reads next.
        pipe: of a subscription: the pipe that is being filled; it holds what is before the offset that its
            last message names, where that is behind `next`.
        before: the pipe that was filled before, whose id is the smaller one.
    """

    partition: int
    epoch: int
    owner: str
    next: int
    pipe: UUID | None = None
    before: UUID | None = None


class Position(NamedTuple):
    """Where a message is in a topic.

    Attributes:
        is_repeat: whether its writer's number was published before: nothing was now, and `offset` is that of
            the last number of that writer.
    """

    partition: int
    offset: int
    is_repeat: bool = False

    def __str__(self) -> str:
        """Return `PARTITION:OFFSET`."""
        return f"{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """A message of a topic, as readers get it."""

    partition: int
    offset: int
    body: bytes
    headers: Headers
    published_at_ms: int

    @property
    def published_at(self) -> datetime:
        """When it was published, by the database's clock."""
        return to_datetime(self.published_at_ms)

    @property
    def type(self) -> str | None:
        """Its header `type`."""
        return self.headers.get(TYPE_HEADER)

    @property
    def key(self) -> str | None:
        """Its header `key`."""
        return self.headers.get(KEY_HEADER)


def first_head(place: SegmentKey, first: int) -> LogHead:
    """Return the head that a segment begins with: whoever creates it writes the same."""
    return LogHead(uuid5(place.incarnation, f"{place.partition}/{place.number}"), first, first)


def linked(head: LogHead, count: int, size: int) -> LogHead:
    """Return the head behind so many more messages."""
    return LogHead(new_token(), head.first, head.next + count, head.size + size, head.state)


def closed(head: LogHead, state: SegmentState = SegmentState.CLOSED) -> LogHead:
    """Return the head that takes no more links."""
    return LogHead(new_token(), head.first, head.next, head.size, state)


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key; the same one for ever."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") % partitions


def to_messages(partition: int, batch: LogBatch, since: int) -> Sequence[TopicMessage]:
    """Return the messages of a batch from an offset on."""
    headers = batch.headers or ({},) * batch.count
    skipped = max(0, since - batch.first)
    return [
        TopicMessage(
            partition, batch.first + place, batch.bodies[place], headers[place], batch.published_at_ms
        )
        for place in range(skipped, batch.count)
    ]
