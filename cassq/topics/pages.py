"""One page of one partition, read once.

Owns which offsets it has. Keeps no state: where to read on stands in the page.
"""

from typing import NamedTuple

from cassq.errors import InvalidOptionError
from cassq.model.arguments import check_count
from cassq.model.ids import shorten
from cassq.model.topic import TopicMessage
from cassq.topics.log_reader import BATCHES, LogReader
from cassq.topics.publisher import check_partition
from cassq.topics.segments import Segments
from cassq.topics.topic_context import TopicContext
from cassq.topics.topic_reader import check_offset


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
    begin = max(oldest, end - limit + 1)
    messages = _stretch(context, partition, begin, end)[::-1]
    return Page(messages, begin - 1 if begin > oldest else None, oldest, latest)


def _stretch(context: TopicContext, partition: int, first: int, last: int) -> list[TopicMessage]:
    reader = LogReader(context, partition, first)
    found: list[TopicMessage] = []
    while reader.next <= last and (more := reader.read(min(BATCHES, last - reader.next + 1))):
        found += more
    return [each for each in found if each.offset <= last]
