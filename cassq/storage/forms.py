"""What storages are asked, and what they keep, besides what the model has words for."""

from dataclasses import dataclass, field

from cassq.limits import NO_LIMIT
from cassq.model.ids import MessageId
from cassq.model.message import Headers
from cassq.model.pipe import Mark, PipeEntry, Run


@dataclass(frozen=True, slots=True)
class Listing:
    """The pipes of a queue, oldest id first, and the database's clock when they were read."""

    entries: tuple[PipeEntry, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class PipeStretch:
    """What stands in a stretch of a pipe, and the database's clock; 0 for the clock where nothing does."""

    runs: tuple[Run, ...]
    marks: tuple[Mark, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """Which batches to read.

    Attributes:
        first: only batches that begin at this number or later.
        last: only batches that begin at this number or earlier.
        limit: at most so many.
        is_newest_first: descending by number, so that the limit keeps the newest.
        is_outline: leave the bodies and headers out.
        has_headers: of an outline: not the headers.
    """

    first: int = 1
    last: int = NO_LIMIT
    limit: int = 1
    is_newest_first: bool = False
    is_outline: bool = False
    has_headers: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was given up, kept under its own id.

    Attributes:
        reason: why, for people to read.
        attempts: how often it was handed out.
        died_at_ms: database's clock; filled in by the adapter.
        priority, type, key: what it was pushed with; "" for no type, and for no key.
    """

    message_id: MessageId
    body: bytes
    headers: Headers
    pushed_at_ms: int
    attempts: int
    reason: str
    died_at_ms: int = field(default=0)
    priority: int = 0
    type: str = ""
    key: str = ""
