"""The contract between topics and a database: a part of `cassq.storage.port`, whose rules hold here.

A partition is read and written by segments. Everything in a segment goes with it, for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from cassq.model.offer import Offer
from cassq.model.topic import (
    LogBatch,
    LogHead,
    PartitionKey,
    Progress,
    SegmentKey,
    SegmentList,
    TopicRecord,
    WriterRow,
)


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which batches of a segment to read.

    Attributes:
        since: an offset: the batch that holds it comes first.
        limit: at most so many batches.
        is_edge: a batch begins at `since`, or nothing is there yet: that is cheaper to look for.
        is_outline: leave bodies and headers out.
    """

    since: int
    limit: int = 1
    is_edge: bool = False
    is_outline: bool = False


class TopicStorage(Protocol):
    """Topics: their records, the segments of their partitions, and the progress of their groups."""

    def read_topics(self, name: str | None = None) -> Sequence[TopicRecord]:
        """Return the record of one topic (or nothing), or of all topics ordered by name.

        Guarantees: linearizable for one name: every applied `change_topic` before the call is seen.
        """
        ...

    def list_topics(self) -> Sequence[str]:
        """Return the names of all topics that are not deleted, in order, as `list_queues` does."""
        ...

    def glance_topic(self, name: str) -> TopicRecord | None:
        """Return the record of a topic without settling what is under way; None where there is none.

        Guarantees: every `change_topic` that had returned True before the call is seen.
        """
        ...

    def change_topic(self, seen: TopicRecord | None, wanted: TopicRecord) -> bool:
        """Write `wanted` if the record still has `seen.op`, or none exists where `seen` is None.

        Deleted records stay as rows in state `deleted`; a new topic of the name replaces one as it was seen.

        Returns: whether it was applied.
        Guarantees: compare-and-set; exactly one of two racing calls with the same `seen` applies.
        Idempotent: no. After a time-out (`OutcomeUnknownError`): read the record; `wanted.op` tells.
        """
        ...

    def create_segment(self, place: SegmentKey, head: LogHead, writers: Sequence[WriterRow] = ()) -> None:
        """Create a segment: the head and the rows of writers first, acknowledged, and then its line.

        Guarantees: nobody can see the line before the head. The creation time is filled in. A segment
        that was deleted is not brought back within a day, nor is one that exists changed.
        Idempotent: yes, with the same values. After a time-out: call it again.
        """
        ...

    def list_segments(self, key: PartitionKey) -> SegmentList:
        """Return the segments of a partition, oldest first, and the database's clock.

        Guarantees: every segment is listed whose `create_segment` had returned, and whose `delete_segment`
        was not called.
        """
        ...

    def delete_segment(self, place: SegmentKey) -> None:
        """Delete for ever what is in a segment, and then its line.

        Guarantees: nothing that arrives later for it comes back, whatever its timestamp.
        Idempotent: yes; also for one that is partly deleted already. After a time-out: call it again.
        """
        ...

    def load_head(self, place: SegmentKey) -> LogHead | None:
        """Return the head of a segment; None when the segment is gone.

        Guarantees: linearizable with `link`: every applied one before the call is seen.
        """
        ...

    def glance_head(self, place: SegmentKey) -> LogHead | None:
        """Return the head of a segment without settling what is under way; None when the segment is gone.

        Guarantees: every `link` that had returned True before the call is seen.
        """
        ...

    def link(
        self,
        place: SegmentKey,
        seen: LogHead,
        wanted: LogHead,
        batches: Sequence[LogBatch] = (),
        writers: Sequence[WriterRow] = (),
    ) -> bool:
        """Write a head, and with it batches and rows of writers, if the head still has `seen.op`.

        Args:
            batches: the first begins at `seen.next`, each other one where the one before ends; the `link_id`
                of each is `wanted.op`; `published_at_ms` is filled in.

        Returns: whether it was applied: all of it or nothing.
        Guarantees: atomic and linearizable with every other `link` into the segment. A segment that is gone
        refuses every one.
        Idempotent: no. After a time-out (`OutcomeUnknownError`): `load_head` tells whether it was applied so
        far; it may still be applied later, until another one on the op that was read was applied.
        """
        ...

    def read_log(self, place: SegmentKey, query: LogQuery) -> Sequence[LogBatch]:
        """Return batches of a segment, in order.

        Guarantees: every batch is there whose `link` had returned True before the call, or which the head
        counts that a `load_head` before the call returned; a batch that one call
        returned every later call returns, with its bodies. In a segment that is being deleted batches may be
        missing: the head decides then.
        """
        ...

    def read_writers(self, place: SegmentKey) -> Sequence[WriterRow]:
        """Return the rows of all writers in a segment.

        Guarantees: every `link` that had returned True before the call is seen, and whatever a `load_head`
        before the call saw.
        """
        ...

    def offer(self, place: SegmentKey, offer: Offer) -> bool:
        """Write what a source offers, in place of what it offered with a lower number.

        Returns: False where nobody links offers, as a link waits for nobody there: nothing was written.
        Guarantees: nothing of two offers is ever mixed; the one with the higher number stands.
        Idempotent: yes. After a time-out: it may be there later.
        """
        ...

    def read_offers(self, place: SegmentKey) -> Sequence[Offer] | None:
        """Return what each source offers in a segment, or offered last, linked or not; None: as `offer`.

        Guarantees: every offer whose `offer` had returned before the call, unless a later one of its source.
        """
        ...

    def glance_writer(self, place: SegmentKey, writer: str) -> tuple[LogHead | None, WriterRow | None]:
        """Return the head of a segment and the row of one writer, without settling what is under way.

        Guarantees: what it shows is decided, and every later call shows it; a row never without the head of
        its link, or a later one. Every `link` that had returned True before the call is seen, and whatever a
        `load_head` before the call saw.
        """
        ...

    def read_progress(self, group: UUID, partition: int) -> Progress | None:
        """Return the progress of a group in one partition; None where it has none.

        Guarantees: linearizable: every applied `change_progress` before the call is seen.
        """
        ...

    def list_progress(self, group: UUID, partitions: int) -> Sequence[Progress]:
        """Return the progress of a group in the partitions from 0 on, as far as it has some, in their order.

        Guarantees: every `change_progress` that had returned True before the call is seen.
        """
        ...

    def change_progress(self, group: UUID, seen: Progress | None, wanted: Progress) -> bool:
        """Write `wanted` if epoch and next are still those of `seen`, or there is none where it is None.

        Returns: whether it was applied.
        Guarantees: compare-and-set; exactly one of two racing calls with the same `seen` applies.
        Idempotent: no. After a time-out (`OutcomeUnknownError`): read it; it may still be applied later,
        until another change on what was read was applied.
        """
        ...

    def delete_progress(self, group: UUID, partitions: int) -> None:
        """Delete the progress of a group in the partitions from 0 on, for ever.

        Idempotent: yes. After a time-out: call it again.
        """
        ...
