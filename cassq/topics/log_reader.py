"""Reads one partition from an offset on, batch by batch, over the edges of segments.

Owns where it is. Refuses to wait. What must not break: a reader stops at the first gap; where fewer messages
are there than the head counts, the head decides between gone and damaged.

    slow reader                 segment 3                        reaper
    | links 1 to 64             |                                |
    |                           | <------ retired ---------------| over retention
    |                           | <------ deleted ---------------|
    | link 65: nothing          |                                |
    | head: retired, or none -> list: the oldest is segment 5, first 88001 -> OffsetGoneError
"""

import logging
from collections.abc import Sequence

from cassq.errors import CorruptError, OffsetGoneError
from cassq.model.topic import LogBatch, LogHead, SegmentKey, SegmentState, TopicMessage, to_messages
from cassq.storage.topic_port import LogQuery
from cassq.topics.segments import Segments
from cassq.topics.topic_context import TopicContext

_log = logging.getLogger("cassq.consumer")

#: So many batches are asked for at once.
BATCHES = 16


class LogReader:
    """One reading of one partition; used by one thread at a time.

    Args:
        skips_gone: go on at the oldest offset where the next one was deleted, instead of an error.

    Attributes:
        next: the offset that is read next.
        skipped: how many offsets were gone.
    """

    def __init__(
        self, context: TopicContext, partition: int, since: int, *, skips_gone: bool = False
    ) -> None:
        self._storage = context.storage
        self._context = context
        self._partition = partition
        self._segments = Segments(context, partition)
        self._place: SegmentKey | None = None
        self._is_edge = self._is_idle = False
        self._skips_gone = skips_gone
        self.next = since
        self.skipped = 0

    def seek(self, offset: int) -> None:
        """Go on at another offset."""
        self.next = offset
        self._place, self._is_edge, self._is_idle = None, False, False

    def read(self, batches: int = BATCHES) -> list[TopicMessage]:
        """Return what is there, of so many batches at most; nothing at the end of the log.

        Raises:
            OffsetGoneError: the next offset was deleted.
            TopicNotFoundError: the topic was.
            CorruptError: the log is damaged.
        """
        while True:
            try:
                return self._read(batches)
            except OffsetGoneError as error:
                if not self._skips_gone:
                    raise
                self._skip_to(error.oldest)

    def _skip_to(self, oldest: int) -> None:
        _log.warning(
            "topic %s, partition %d: offsets %d to %d were deleted by retention or clear, and are skipped",
            *(self._context.name, self._partition, self.next, oldest - 1),
        )
        self.skipped += oldest - self.next
        self.seek(oldest)

    def _read(self, batches: int) -> list[TopicMessage]:
        while True:
            self._place = self._place or self._segments.holder(self.next)
            if self._place is None:
                return []
            if self._is_idle and not self._has_news(self._place):
                return []
            query = LogQuery(self.next, batches, is_edge=self._is_edge)
            if found := self._accept(self._storage.read_log(self._place, query)):
                self._is_idle = False
                return found
            if not self._may_have_more(self._place):
                self._is_idle = True
                return []

    def _has_news(self, place: SegmentKey) -> bool:
        """Ask the head alone, where the look before found nothing: most looks find nothing again."""
        head = self._storage.glance_head(place)
        return head is None or head.state is not SegmentState.OPEN or head.next > self.next

    def _accept(self, batches: Sequence[LogBatch]) -> list[TopicMessage]:
        """Return the messages up to the first gap, and go on behind them."""
        accepted: list[TopicMessage] = []
        for batch in batches:
            if not batch.first <= self.next < batch.next:
                break
            accepted += to_messages(self._partition, batch, self.next)
            self.next, self._is_edge = batch.next, True
        return accepted

    def _may_have_more(self, place: SegmentKey) -> bool:
        """Ask the head, where a read showed nothing; tell whether to read again at once."""
        head = self._storage.glance_head(place)
        if head is None or self._is_gone(head):
            self._place = self._segments.holder(self.next)
            if self._place == place:  # its line goes last
                raise self._segments.gone(self.next)
            return True
        if self.next < head.next:
            # Linked between the two reads; or on its way to all replicas still, until the head is settled; or
            # what the head counts is not there.
            if self._is_there(place) or self._is_gone(self._storage.load_head(place)):
                return True
            if self._is_there(place) or self._is_gone(self._storage.glance_head(place)):
                return True
            raise CorruptError(
                f"topic {self._context.name!r}, partition {self._partition}: offset {self.next} is missing, "
                f"and segment {place.number} counts it"
            )
        if head.state is SegmentState.CLOSED and self._has(place.successor):
            self._place = place.successor
            return True
        return False

    def _is_there(self, place: SegmentKey) -> bool:
        found = self._storage.read_log(place, LogQuery(self.next, 1, is_edge=self._is_edge))
        return any(each.first <= self.next < each.next for each in found)

    @staticmethod
    def _is_gone(head: LogHead | None) -> bool:
        return head is None or head.is_retired

    def _has(self, place: SegmentKey) -> bool:
        return self._storage.glance_head(place) is not None
