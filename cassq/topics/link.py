"""One link, as it is sent and sent again, and how messages are cut into its batches.

Owns values alone. What must not break: no batch is larger than it may be, and they follow each other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

from cassq.errors import InvalidOptionError
from cassq.model.ids import shorten
from cassq.model.offer import is_source
from cassq.model.topic import LogBatch, LogHead, SegmentKey, WriterRow
from cassq.topics.publish_request import PublishRequest, batches_of, in_batches


@dataclass(frozen=True, slots=True)
class Link:
    """The head that was seen, and what comes in its place."""

    place: SegmentKey
    head: LogHead
    wanted: LogHead
    batches: Sequence[LogBatch]
    writers: Sequence[WriterRow]


def cut(requests: Sequence[PublishRequest], first: int, link_id: UUID) -> list[LogBatch]:
    """Return the messages of requests in batches, none of which is larger than it may be."""
    batches: list[LogBatch] = []
    for bodies, headers in chain.from_iterable(map(batches_of, in_batches(requests))):
        batches.append(LogBatch(first, len(bodies), bodies, headers if any(headers) else None, link_id))
        first += len(bodies)
    return batches


def count_named(writers: Collection[str]) -> int:
    """Return how many writers have a name that a caller gave."""
    return sum(not is_source(each) for each in writers)


def too_many_writers(writer: str, most: int) -> InvalidOptionError:
    """Return the error for one writer too many."""
    return InvalidOptionError(
        f"writer {shorten(writer)} would be one more than {most} in its partition: use a name again, "
        "or publish without a writer"
    )
