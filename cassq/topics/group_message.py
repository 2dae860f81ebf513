"""A message that a member of a group has: what it may do with it.

Decides nothing: the partition that it was handed out of does.
"""

from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from cassq.model.message import Headers
from cassq.model.topic import TopicMessage


class Holder(Protocol):
    """What a message was handed out of: a partition, in one epoch.

    Attributes:
        is_lost: whether another member has it, or may have it.
    """

    is_lost: bool

    @property
    def epoch(self) -> int:
        """The epoch."""
        ...

    def has_read(self, offset: int) -> bool:
        """Tell whether it is past an offset."""
        ...

    def end(self, message: "GroupMessage") -> None:
        """See `GroupMessage.done`."""
        ...

    def rewind(self, offset: int) -> None:
        """See `GroupMessage.again`."""
        ...

    def commit_all(self) -> None:
        """Write how far all is done."""
        ...


class GroupMessage:
    """A message that a member of a group was handed out.

    Use it as a context manager: where the block ends the message is done, and where it raises, the partition
    goes back to it: it and what follows it come again.
    """

    __slots__ = ("_held", "_message", "is_done", "is_dropped")

    def __init__(self, message: TopicMessage, held: Holder) -> None:
        self._message = message
        self._held = held
        self.is_done = False
        self.is_dropped = False

    @property
    def is_out(self) -> bool:
        """Whether it may be handed out still: its partition is held, and did not go back meanwhile."""
        return not (self.is_dropped or self._held.is_lost) and self._held.has_read(self.offset)

    @property
    def held(self) -> Holder:
        """What it was handed out of: its partition, in one epoch."""
        return self._held

    @property
    def partition(self) -> int:
        """The partition."""
        return self._message.partition

    @property
    def offset(self) -> int:
        """The number in the partition."""
        return self._message.offset

    @property
    def body(self) -> bytes:
        """The bytes that were published."""
        return self._message.body

    @property
    def headers(self) -> Headers:
        """The message's headers."""
        return self._message.headers

    @property
    def type(self) -> str | None:
        """Its header `type`."""
        return self._message.type

    @property
    def key(self) -> str | None:
        """Its header `key`."""
        return self._message.key

    @property
    def published_at(self) -> datetime:
        """When it was published, by the database's clock."""
        return self._message.published_at

    @property
    def epoch(self) -> int:
        """How often the partition changed hands: a fencing token, which only rises, for other stores."""
        return self._held.epoch

    def done(self) -> None:
        """Say that it was worked on; the group's progress moves past it once all before it are done.

        Raises:
            PartitionLostError: another member has the partition now, and may get the message again.
            UnavailableError, OutcomeUnknownError: with `commit="each"`: the progress may not have moved yet.
        """
        self._held.end(self)

    def again(self) -> None:
        """Have it, and what follows it in its partition, handed out again.

        Nothing happens where it comes again already, as one before it went back.
        """
        self._held.rewind(self.offset)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: object,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.done()
        else:
            self.again()

    def __repr__(self) -> str:
        return f"<GroupMessage {self.partition}:{self.offset}>"
