"""What an observer is told: one value for each call, not for each message.

Owns which calls are told, and in which figures. Nothing of a body, a header or a reason is in them.
"""

from dataclasses import dataclass
from typing import Protocol

from cassq.errors import CassqError


@dataclass(frozen=True, slots=True)
class Pushed:
    """A push ended: of one message, or of many by `push_many`.

    Attributes:
        queue: the name of the queue.
        count: messages that are known to be stored.
        size: the bytes of the bodies and headers that were sent; 0 where nothing was stored.
        seconds: from the call until the end; of `push_soon` until its future ended.
        error: None, or the `code` of the error; the name of the class where it is none of cassq's.
    """

    queue: str
    count: int
    size: int
    seconds: float
    error: str | None


@dataclass(frozen=True, slots=True)
class Popped:
    """A pop ended with messages, or with an error. One that found nothing in its time is not told.

    Attributes:
        queue: the name of the queue.
        count: messages that were handed out.
        seconds: how long the consumer waited.
        age_s: how long ago the oldest of them was pushed, by the database's clock; None where nobody knows.
        error: as of `Pushed`. The end of a popper that was closed is none.
    """

    queue: str
    count: int
    seconds: float
    age_s: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit ended: of one message, or of many by `commit_many`.

    Attributes:
        queue: the name of the queue.
        count: the messages of the call.
        seconds: until it was written; of a grouped commit until it was taken over. See `CommitsFailed`.
        error: as of `Pushed`: some of the messages, or all, come again or may.
    """

    queue: str
    count: int
    seconds: float
    error: str | None


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Messages were rolled back, or given back.

    Attributes:
        queue: the name of the queue.
        count: the messages of the call.
        seconds: how long it took.
        is_counted: whether it counts as an attempt; False for what was given back.
        is_written: False where they come again only when their lease ends.
        error: as of `Pushed`.
    """

    queue: str
    count: int
    seconds: float
    is_counted: bool
    is_written: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message was given up by `reject`.

    Attributes:
        queue, count, seconds, is_written, error: as of `RolledBack`.
    """

    queue: str
    count: int
    seconds: float
    is_written: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class Extended:
    """A consumer extended a lease.

    Attributes:
        queue: the name of the queue.
        seconds: how long it took.
        error: as of `Pushed`.
    """

    queue: str
    seconds: float
    error: str | None


@dataclass(frozen=True, slots=True)
class CommitsFailed:
    """Grouped commits failed after `commit` had returned: the messages come again, or may.

    Attributes:
        queue: the name of the queue.
        count: messages.
        error: why, as of `Pushed`.
    """

    queue: str
    count: int
    error: str


@dataclass(frozen=True, slots=True)
class StorageCalled:
    """The library asked the database for something.

    Attributes:
        method: of `cassq.storage.port.Storage`.
        seconds: how long the call took.
        error: as of `Pushed`.
    """

    method: str
    seconds: float
    error: str | None


@dataclass(frozen=True, slots=True)
class Reaped:
    """A pass of the reaper over one queue ended.

    Attributes:
        queue: the name of the queue.
        seconds: how long it took.
        examined, sealed, returned, buried, expired, retired, busy: as of `cassq.ReapReport`.
        failed: how many things could not be done.
        error: as of `Pushed`, where the pass could not be made.
    """

    queue: str
    seconds: float
    examined: int
    sealed: int
    returned: int
    buried: int
    expired: int
    retired: int
    busy: int
    failed: int
    error: str | None


#: All that an observer may be told.
Event = (
    Pushed | Popped | Committed | RolledBack | Rejected | Extended | CommitsFailed | StorageCalled | Reaped
)


class Observer(Protocol):
    """What `cassq.connect(url, observer=…)` takes: it is told what this process asks of the store's queues.

    Events come in the order in which calls ended, within a second, on one thread of their own: an observer
    may take its time, lock, and call cassq. `Store.close` returns once it has heard the last one. One that
    raises is logged, and told nothing any more. Where more than 100 000 events wait, more are left out.

    Of run readers and bulk writes only the calls to the database are told.
    """

    def note(self, event: Event) -> None:
        """Hear of a call that ended."""
        ...


def code_of(error: BaseException | None) -> str | None:
    """Return what an event tells of an error."""
    if error is None:
        return None
    return error.code if isinstance(error, CassqError) else type(error).__name__
