"""What is deleted of a topic: segments that are over, all that is closed, or everything.

Owns the order. What must not break: a segment is retired before anything of it is deleted, so that a reader
that misses something hears why; it goes only while its successor stands, so that offsets never begin again;
and a deleted topic's last head is retired, so that no publish into it is acknowledged from then on.

    publisher                   segment 7                    who deletes the topic
    |                           |                            | record: deleted
    | link at 90, IF op = x --->| applied: published           |
    |                           | <-- retired, IF op = a ---- | refused at first, then applied
    | link at 91, IF op = a --->| refused: it looks: deleted   |
"""

from collections.abc import Sequence
from datetime import timedelta

from cassq.errors import OutcomeUnknownError
from cassq.model.topic import LogHead, Segment, SegmentKey, SegmentState, closed
from cassq.runtime.clock import rest
from cassq.topics.log_end import LogEnd, open_next
from cassq.topics.topic_context import LOOK_PAUSE_S, LOOKS_MAX, TopicContext

_MS = timedelta(milliseconds=1)


class Retention:
    """Deletes segments of one partition; safe to run any number of at once."""

    def __init__(self, context: TopicContext, partition: int) -> None:
        self._storage = context.storage
        self._context = context
        self._partition = partition
        self._key = context.key(partition)

    def run_once(self) -> int:
        """Close the open segment if it is old, and delete segments that are over; return how many."""
        settings = self._context.settings
        listed = self._storage.list_segments(self._key)
        if not listed.segments:
            return 0
        age_ms = listed.now_ms - listed.segments[-1].created_at_ms
        if age_ms >= settings.segment_age // _MS:
            LogEnd(self._context, self._partition).close_segment()
            listed = self._storage.list_segments(self._key)
        over: list[int] = []
        sizes = self._sizes(listed.segments) if settings.retention_bytes else {}
        # The last one stays: its successor does not stand.
        for segment, successor in zip(listed.segments, listed.segments[1:], strict=False):
            # All that is in it was published before its successor was created, but for the nodes' clocks.
            kept_ms = settings.retention // _MS + settings.clock_skew_max // _MS
            is_old = settings.retention and successor.created_at_ms + kept_ms <= listed.now_ms
            behind = sum(size for number, size in sizes.items() if number > segment.number)
            is_over = is_old or (settings.retention_bytes and behind >= settings.retention_bytes)
            if not is_over and not self._is_retired(segment.number):
                break
            over.append(segment.number)
        return self._delete(over)

    def clear(self) -> int:
        """Delete all that was published until now; return how many segments went."""
        LogEnd(self._context, self._partition).close_segment()
        listed = self._storage.list_segments(self._key).segments
        return self._delete([each.number for each in listed[:-1]])

    def end(self) -> int:
        """Delete everything, for ever; the record says that the topic is deleted."""
        deleted, last = 0, None
        while listed := self._storage.list_segments(self._key).segments:
            place = self._key.segment(listed[-1].number)
            if place == last:  # no other one came while it was retired
                deleted += self._delete([each.number for each in listed])
            elif self._retire_last(place):
                last = place
        return deleted

    def _retire_last(self, place: SegmentKey) -> bool:
        """Retire the last segment; False where it is not the last one any more."""
        for _ in range(LOOKS_MAX):
            head = self._storage.load_head(place)
            if head is None or head.state is SegmentState.RETIRED:
                return True
            if head.state is SegmentState.CLOSED:
                open_next(self._context, place, head)
                return False
            if self._change(place, head, SegmentState.RETIRED):
                return True
            rest(self._context.clock, LOOK_PAUSE_S)
        raise OutcomeUnknownError(
            f"topic {self._context.name!r}: others kept publishing while it was deleted"
        )

    def _delete(self, numbers: list[int]) -> int:
        """Retire and delete segments, the oldest first."""
        for number in numbers:
            place = self._key.segment(number)
            for _ in range(LOOKS_MAX):
                head = self._storage.load_head(place)
                if head is None or head.state is SegmentState.RETIRED:
                    break
                self._change(place, head, SegmentState.RETIRED)
            else:
                raise OutcomeUnknownError(
                    f"topic {self._context.name!r}: segment {number} could not be retired; try again"
                )
            self._storage.delete_segment(place)
        return len(numbers)

    def _change(self, place: SegmentKey, head: LogHead, state: SegmentState) -> bool:
        try:
            return self._storage.link(place, head, closed(head, state))
        except OutcomeUnknownError:
            return False  # what is there tells

    def _is_retired(self, number: int) -> bool:
        """Tell whether somebody began to delete a segment, and did not come to the end."""
        head = self._storage.glance_head(self._key.segment(number))
        return head is None or head.is_retired

    def _sizes(self, segments: Sequence[Segment]) -> dict[int, int]:
        heads = {each.number: self._storage.glance_head(self._key.segment(each.number)) for each in segments}
        return {number: head.size for number, head in heads.items() if head}
