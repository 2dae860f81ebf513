"""Marks that commit leases, at home or away: those of one pipe in one write.

Owns when marks are written again, and what is told of each. What must not break: a mark is begun, and
believed, only while its lease runs by the own clock; marks of two leases are never one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import OutcomeUnknownError, StorageUnavailableError
from cassq.model.lease import Lease, Settled
from cassq.model.ranges import Ranges
from cassq.pipes.lent_rows import LentRow, to_marks
from cassq.popping.timing import PAUSE_MAX_S, PAUSE_S
from cassq.runtime.clock import rest
from cassq.runtime.deadline import Deadline


@dataclass(slots=True, eq=False)
class LeaseCommit:
    """Messages of a lease on their way to be committed."""

    lease: Lease
    lent: LentRow
    parts: Ranges

    @property
    def count(self) -> int:
        """How many messages they are."""
        return sum(part.size for part in self.parts)


class LeaseMarks:
    """Writes the marks of one queue's leases."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._storage = context.storage
        self._clock = context.clock

    def write(self, commits: Sequence[LeaseCommit], told: dict[Lease, Settled]) -> list[LeaseCommit]:
        """Write marks, again while leases run; return those of which nothing was sent in time.

        What was sent, and is not known to be written in time, is noted as unknown.
        """
        pause_s, late = PAUSE_S, list[LeaseCommit]()
        left = list(commits)
        while left:
            living = [each for each in left if self._clock.latest() < each.lent.ends_at]
            late += [each for each in left if each not in living and each.lease not in told]
            by_pipe: dict[UUID, list[LeaseCommit]] = {}
            for each in living:
                by_pipe.setdefault(each.lease.pipe, []).append(each)
            left = [each for own in by_pipe.values() for each in self._write_together(own, told)]
            if left:
                least_s = min(each.lent.ends_at for each in left) - self._clock.latest()
                rest(self._clock, max(0.0, min(pause_s, least_s)))
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
        return late

    def _write_together(self, commits: list[LeaseCommit], told: dict[Lease, Settled]) -> list[LeaseCommit]:
        """Write the marks of one pipe once; return the commits to try again."""
        marks = [to_marks(each.lent, each.parts) for each in commits]
        left_s = min(each.lent.ends_at for each in commits) - self._clock.latest()
        try:
            with Deadline(self._clock.now() + left_s):
                together = self._context.timed([mark for own in marks for mark in own])
                self._storage.mark(commits[0].lease.pipe, together)
        except OutcomeUnknownError:
            told.update((each.lease, Settled.UNKNOWN) for each in commits)
            return commits
        except StorageUnavailableError:
            return commits
        for each, own in zip(commits, marks, strict=True):
            is_in_time = self._clock.latest() < each.lent.ends_at
            told[each.lease] = Settled.COMMITTED if is_in_time else Settled.UNKNOWN
            if is_in_time and each.lent.note:
                each.lent.note(*own)
        return []
