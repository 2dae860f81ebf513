"""What a pass of a reaper did, counted.

Owns the figures that operators read. Decides nothing.
"""

from dataclasses import dataclass, field

from cassq.errors import AccessDeniedError, CassqError
from cassq.model.pipe import Run


@dataclass(slots=True)
class ReapReport:
    """What one pass did.

    Attributes:
        examined: pipes that were read.
        sealed: pipes of dead pushers that were sealed.
        returned: messages whose lease had run out and that came back.
        buried: messages that are dead letters now: they came back from their last attempt, or expired.
        expired: messages that expired, and that were dropped.
        retired: pipes that were retired and deleted.
        moved: messages that come due soon and were moved to a pipe in which they are sorted.
        recurred: occurrences of schedules that were pushed.
        missed: those that never will be.
        busy: pipes that needed something but are in a popper's hands.
        published: bulk writes that were decided and whose pipes were published for somebody who died.
        removed: staged pipes of failed bulk writes that were deleted.
        segments: of topics, that were over and deleted.
        failed: what could not be done, in words.
        refused: for how many of those the role lacks a permission.
    """

    examined: int = 0
    sealed: int = 0
    returned: int = 0
    buried: int = 0
    expired: int = 0
    retired: int = 0
    moved: int = 0
    recurred: int = 0
    missed: int = 0
    busy: int = 0
    published: int = 0
    removed: int = 0
    segments: int = 0
    failed: list[str] = field(default_factory=list)
    refused: int = 0

    def note_failure(self, words: str, error: CassqError) -> None:
        """Note what could not be done."""
        self.failed.append(words)
        self.refused += isinstance(error, AccessDeniedError)

    def note_ended(self, run: Run, count: int) -> None:
        """Note how many messages of a run are delivered to nobody."""
        if run.is_expiry:
            self.expired += count
        else:
            self.buried += count

    def add(self, other: "ReapReport") -> None:
        """Add another pass to this one."""
        self.examined += other.examined
        self.sealed += other.sealed
        self.returned += other.returned
        self.buried += other.buried
        self.expired += other.expired
        self.retired += other.retired
        self.moved += other.moved
        self.recurred += other.recurred
        self.missed += other.missed
        self.busy += other.busy
        self.published += other.published
        self.removed += other.removed
        self.segments += other.segments
        self.failed += other.failed
        self.refused += other.refused
