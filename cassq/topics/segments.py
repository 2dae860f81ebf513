"""Which segment of a partition holds an offset, and what a reader is told that asks for what is gone.

Owns nothing that is stored. What must not break: no head means that a segment is gone, never that it is new;
what is gone is told with the oldest offset that is left, never skipped.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from cassq.errors import CorruptError, InvalidOptionError, OffsetGoneError
from cassq.model.ids import shorten
from cassq.model.topic import LogBatch, LogHead, Segment, SegmentKey
from cassq.runtime.clock import rest
from cassq.storage.topic_port import LogQuery
from cassq.topics.topic_context import LOOK_PAUSE_S, LOOKS_MAX, TopicContext

#: Outlines are read so many at a time where a time is looked for.
_OUTLINES = 1000

_EPOCH_MS = timedelta(milliseconds=1)


class Segments:
    """The segments of one partition, as they are read each time."""

    def __init__(self, context: TopicContext, partition: int) -> None:
        self._storage = context.storage
        self._context = context
        self._key = context.key(partition)

    def place(self, number: int) -> SegmentKey:
        """Return the key of a segment."""
        return self._key.segment(number)

    def standing(self) -> list[tuple[Segment, LogHead]]:
        """Return the segments that are not being deleted, oldest first, each with its head.

        Raises: TopicNotFoundError: the topic was deleted.
        """
        for _ in range(LOOKS_MAX):
            listed = self._storage.list_segments(self._key).segments
            found = [(each, self._storage.glance_head(self.place(each.number))) for each in listed]
            standing = [(each, head) for each, head in found if head and not head.is_retired]
            if standing:
                return standing
            self._await_news()
        raise self._headless()

    def earliest(self) -> int:
        """Return the oldest offset that is left; the next one where nothing is."""
        for _ in range(LOOKS_MAX):
            listed = self._storage.list_segments(self._key).segments
            for each in listed:
                head = self._storage.glance_head(self.place(each.number))
                if head and not head.is_retired:
                    return each.first
            self._await_news()
        raise self._headless()

    def latest(self) -> int:
        """Return the offset that the next message gets."""
        for _ in range(LOOKS_MAX):
            listed = self._storage.list_segments(self._key).segments
            if listed and (head := self._storage.glance_head(self.place(listed[-1].number))):
                return head.next
            self._await_news()
        raise self._headless()

    def _await_news(self) -> None:
        """Wait a moment where all that was listed went: others stand by now, or the topic was deleted."""
        self._context.known.look()
        rest(self._context.clock, LOOK_PAUSE_S)

    def _headless(self) -> CorruptError:
        return CorruptError(
            f"topic {self._context.name!r}, partition {self._key.partition}: its segments are listed, and "
            "have no heads"
        )

    def holder(self, offset: int) -> SegmentKey | None:
        """Return the segment that holds an offset, or will; None where none is there by now.

        Raises:
            OffsetGoneError: it was deleted.
            TopicNotFoundError: the topic was.
        """
        listed = self._storage.list_segments(self._key).segments
        holders = [each for each in listed if each.first <= offset]
        if holders:
            return self.place(holders[-1].number)
        if listed:
            raise self.gone(offset)
        self._context.known.look()
        return None

    def gone(self, offset: int) -> OffsetGoneError:
        """Return the error for an offset that was deleted.

        Raises: TopicNotFoundError: the topic was.
        """
        self._context.known.look()
        oldest = max(self.earliest(), offset + 1)
        return OffsetGoneError(
            f"topic {self._context.name!r}, partition {self._key.partition}: offset {offset} is gone by "
            f"retention or clear; the oldest that is left is {oldest}: read on from there, or open the "
            'reader with on_gone="oldest"',
            self._key.partition,
            offset,
            oldest,
        )

    def offset_at(self, when: datetime) -> int:
        """Return the first offset that was published at a time or later; the next one where none was.

        By the database's clock, whose nodes may differ by `clock_skew_max`.
        """
        at_ms = to_ms(when)
        while (found := self._first_since(at_ms)) is None:
            pass  # a segment went while it was looked through
        return found

    def _first_since(self, at_ms: int) -> int | None:
        skew_ms = self._context.settings.clock_skew_max // _EPOCH_MS
        standing = self.standing()
        begun = [place for place, (each, _) in enumerate(standing) if each.created_at_ms + skew_ms < at_ms]
        for segment, head in standing[max(begun, default=0) :]:
            since = segment.first
            while since < head.next:
                batches = self._outlines(self.place(segment.number), since)
                for batch in batches:
                    if batch.published_at_ms >= at_ms:
                        return batch.first
                if not batches:
                    return None
                since = batches[-1].next
        return standing[-1][1].next if standing else 1

    def _outlines(self, place: SegmentKey, since: int) -> Sequence[LogBatch]:
        """Return the outlines of batches that a head counts; nothing where the segment went."""
        query = LogQuery(since, _OUTLINES, is_edge=True, is_outline=True)
        if found := self._storage.read_log(place, query):
            return found
        self._storage.load_head(place)  # what is on its way to all replicas is there from now on
        if found := self._storage.read_log(place, query):
            return found
        head = self._storage.glance_head(place)
        if head and not head.is_retired:
            raise CorruptError(
                f"topic {self._context.name!r}, partition {self._key.partition}: offset {since} is missing, "
                f"and segment {place.number} counts it"
            )
        return ()


def to_ms(when: object) -> int:
    """Return a time in milliseconds since 1970.

    Raises: InvalidOptionError: it is no datetime, or one without a timezone.
    """
    if not isinstance(when, datetime) or when.tzinfo is None:
        raise InvalidOptionError(
            f"{shorten(when)} is no time: give a datetime with a timezone, as datetime.now(UTC)"
        )
    return int(when.timestamp() * 1000)
