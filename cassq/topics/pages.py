"""One page of one partition, read once.

Owns which offsets it has, and how much that may be. Keeps no state: where to read on stands in the page.
"""

from typing import NamedTuple

from cassq.errors import InvalidOptionError
from cassq.limits import MIB
from cassq.model.arguments import check_count
from cassq.model.ids import shorten
from cassq.model.message import size_of
from cassq.model.topic import TopicMessage
from cassq.topics.log_reader import BATCHES, LogReader
from cassq.topics.publisher import check_partition
from cassq.topics.segments import Segments
from cassq.topics.topic_context import TopicContext
from cassq.topics.topic_reader import check_offset

#: Bodies and headers of one page together, unless its only message has more.
PAGE_BYTES = 4 * MIB

#: So many batches are asked for at first, and so many offsets on the way back.
BATCHES_FIRST = 4
WIDTH_FIRST = 64


class Page(NamedTuple):
    """What `Topic.read` returns.

    Attributes:
        messages: in the order that was asked for.
        next: where to read on in that order; None where nothing follows by now.
        oldest: the oldest offset that is left in the partition.
        latest: the offset that its next message gets.
    """

    messages: list[TopicMessage]
    next: int | None
    oldest: int
    latest: int


def read_page(context: TopicContext, partition: int, since: int | None, limit: int, order: str) -> Page:
    """Read a page; see `Topic.read`."""
    check_partition(partition, context)
    check_count(limit)
    if order not in {"ascending", "descending"}:
        raise InvalidOptionError(f"order={shorten(order)} must be 'ascending' or 'descending'")
    segments = Segments(context, partition)
    oldest, latest = segments.earliest(), segments.latest()
    if since is not None and check_offset(since) < oldest:
        raise segments.gone(since)
    if order == "ascending":
        begin = oldest if since is None else since
        messages = _stretch(context, partition, begin, begin + limit - 1)
        after = begin + len(messages)
        return Page(messages, after if after < latest else None, oldest, latest)
    end = latest - 1 if since is None else min(since, latest - 1)
    messages, before = _back(context, partition, max(oldest, end - limit + 1), end)
    return Page(messages, before if before >= oldest else None, oldest, latest)


def _stretch(context: TopicContext, partition: int, first: int, last: int) -> list[TopicMessage]:
    """Return those from `first` on, up to `last`, and no more bytes than a page may have."""
    reader = LogReader(context, partition, first)
    found: list[TopicMessage] = []
    size, batches = 0, BATCHES_FIRST
    while reader.next <= last and (more := reader.read(min(batches, last - reader.next + 1))):
        for each in more:
            size += size_of(each.body, each.headers)
            if each.offset > last or (found and size > PAGE_BYTES):
                return found
            found.append(each)
        # Large batches are read few at a time: what does not fit is read for nothing.
        batches = min(BATCHES, 2 * batches) if size < PAGE_BYTES // 4 else BATCHES_FIRST
    return found


def _back(context: TopicContext, partition: int, first: int, last: int) -> tuple[list[TopicMessage], int]:
    """Return those from `last` back to `first`, as a page may have, and the offset before them."""
    found: list[TopicMessage] = []
    size, width = 0, WIDTH_FIRST
    while last >= first:
        begin = max(first, last - width + 1)
        part = _stretch(context, partition, begin, last)
        if width > 1 and part and part[-1].offset < last and begin < last:  # too large, or not there yet
            width //= 4
            continue
        for each in reversed(part):
            size += size_of(each.body, each.headers)
            if found and size > PAGE_BYTES:
                return found, found[-1].offset - 1
            found.append(each)
        last, width = begin - 1, 4 * width
    return found, first - 1
