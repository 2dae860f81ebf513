"""What an owner knows of its pipe between two reads: the head, what is out, what has ended.

Pure bookkeeping over what was read or acknowledged; nothing here is a guess. The rule that must not break:
a message counts as ended only when its mark was acknowledged or read.

In a pipe of a slot a mark may land late, while a consumer has its message again: the message has ended then,
and is handed out no more, but its key is busy. So the run is not over, and the floor does not pass it.

    consumer C (attempt 1)       database                      consumer D (attempt 2)
    | commit 1: mark, attempt 1 -.                             |
    | (the lease ends)            |<-- take 1 again ---------- | works on 1
    |                             '-> lands                    |
    |                              1 has ended, its key is busy until D's mark, or the end of D's lease
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from uuid import UUID

from cassq.model.pipe import End, Head, Mark, PipeState, Run, RunState
from cassq.model.ranges import Range, Ranges
from cassq.model.tally import Tally


class Progress:
    """The head of a pipe, its runs that are not over, and the stretches that ended above its floor.

    While a window is out, it is none of the runs, and the cursor of the head here is where it begins; for its
    holder, how far it was handed out.
    """

    __slots__ = (
        *("_committed", "_dead", "_ended", "_expired", "_moved", "_purged", "_rolled_back", "head", "runs"),
        *("targets", "window"),
    )

    def __init__(self, state: PipeState) -> None:
        self.window = state.window
        self.head = replace(state.head, cursor=self.window.first - 1) if self.window else state.head
        self.runs: dict[int, Run] = {}
        self._ended = Ranges()
        self._dead = Ranges()
        self._purged = Ranges()
        self._expired = Ranges()
        self._moved = Ranges()
        # In a slot's pipe: what was committed, by the attempt.
        self._committed: dict[int, Ranges] = {}
        self.targets: set[UUID] = set()
        # How often messages of runs that are over came back; moves into the head with the floor.
        self._rolled_back: dict[int, int] = {}
        self.note_marks(state.marks)
        for run in state.runs:
            if run is not self.window:
                self.note_run(run)

    def note_marks(self, marks: Iterable[Mark]) -> None:
        """Note stretches that ended; runs without anything left are over."""
        for mark in marks:
            if mark.last <= self.head.floor:
                continue
            self._ended.add(mark.first, mark.last)
            if mark.end is End.DEAD:
                self._dead.add(mark.first, mark.last)
            elif mark.end is End.PURGED:
                self._purged.add(mark.first, mark.last)
            elif mark.end is End.EXPIRED:
                self._expired.add(mark.first, mark.last)
            elif mark.end is End.MOVED and mark.target:
                self._moved.add(mark.first, mark.last)
                self.targets.add(mark.target)
            elif mark.end is End.COMMITTED and mark.attempt:
                self._committed.setdefault(mark.attempt, Ranges()).add(mark.first, mark.last)
            for run in [
                run for run in self.runs.values() if run.first <= mark.last and mark.first <= run.last
            ]:
                self._close_if_over(run)

    def note_run(self, run: Run) -> None:
        """Note a run as it stands in the database."""
        self.runs[run.first] = run
        self._close_if_over(run)

    def left_of(self, run: Run) -> Iterator[Range]:
        """Yield the parts of a run that have not ended."""
        return self._ended.missing(run.first, run.last)

    def ended_before(self, run: Run) -> Iterator[Range]:
        """Yield the parts of a run that a commit of another attempt ended: who has the run may work on them.

        Not so of a run that came back, or is to be buried, which no consumer has. And all that ends otherwise
        does in nobody's hands.
        """
        if not self._committed or run.state is not RunState.LEASED or run.is_burial:
            return
        by_attempt = self._committed.items()
        others = Ranges(
            part for n, ended in by_attempt if n != run.attempt for part in ended.within(run.first, run.last)
        )
        own = self._committed.get(run.attempt, Ranges())
        settled = Ranges(
            part
            for ended in (own, self._dead, self._purged, self._expired)
            for part in ended.within(run.first, run.last)
        )
        for part in others:
            yield from settled.missing(*part)

    def missing(self, first: int, last: int) -> Iterator[Range]:
        """Yield the parts of first … last that have not ended."""
        return self._ended.missing(first, last)

    def count_left(self, first: int, last: int) -> int:
        """Return how many messages of first … last have not ended."""
        return last - first + 1 - self._ended.count_within(first, last)

    def count_cancelled(self, first: int, last: int) -> int:
        """Return how many messages of first … last, numbers of a window that is out, were purged or moved.

        All of them were before it began: while it is out nothing in it is purged or moved.
        """
        return self._purged_within(first, last) + self._moved.count_within(first, last)

    def is_ended(self, seq: int) -> bool:
        """Tell whether message `seq` has ended."""
        return seq <= self.head.floor or seq in self._ended

    def ending_of(self, seq: int) -> End | None:
        """Return how message `seq` ended; None when it has not, or when that is below the floor."""
        if seq not in self._ended:
            return None
        if seq in self._dead:
            return End.DEAD
        if seq in self._purged:
            return End.PURGED
        if seq in self._moved:
            return End.MOVED
        return End.EXPIRED if seq in self._expired else End.COMMITTED

    @property
    def is_exhausted(self) -> bool:
        """Whether everything this pipe will ever deliver was handed out."""
        return self.window is None and self.head.is_decided and self.head.cursor >= self.head.last

    @property
    def is_over(self) -> bool:
        """Whether the pipe may retire: exhausted, and everything in it has ended."""
        return self.is_exhausted and not self.runs and self._ended.covers(self.head.floor + 1, self.head.last)

    def reach(self, first: int) -> int:
        """Return the last number of first … that has ended without a gap; the one before where none has."""
        return self._ended.reach(first)

    @property
    def first_left(self) -> int:
        """Number of the oldest message that has not ended (one past the cursor when all have)."""
        return self._ended.reach(self.head.floor + 1) + 1

    def raise_floor(self) -> Head:
        """Return the head with the highest floor it may have, and with the counts up to there.

        The floor never cuts a run that is not over, and never passes the cursor: every run, also one that
        is yet to come, and every mark is either wholly above it or wholly at or below it. Nor does it pass
        what was moved: the marks tell where to.
        """
        head = self.head
        floor = min(self._ended.reach(head.floor + 1), head.cursor)
        if self._moved:
            floor = min(floor, next(iter(self._moved)).first - 1)
        for first in self.runs:
            if first <= floor:
                floor = first - 1
        if floor <= head.floor:
            return head
        return replace(
            head,
            floor=floor,
            dead=head.dead + self._dead.count_within(head.floor + 1, floor),
            purged=head.purged + self._purged_within(head.floor + 1, floor),
            rolled_back=head.rolled_back
            + sum(times for first, times in self._rolled_back.items() if first <= floor),
            expired=head.expired + self._expired_within(head.floor + 1, floor),
        )

    def note_head(self, head: Head) -> None:
        """Note the head as it was written, and forget what is below its floor."""
        self.head = head
        for ended in (self._ended, self._dead, self._purged, self._expired, *self._committed.values()):
            ended.forget_below(head.floor + 1)
        for first in [first for first in self._rolled_back if first <= head.floor]:
            del self._rolled_back[first]

    def tally(self, pushed: int) -> Tally:
        """Count what became of the pipe's messages so far, of which `pushed` were pushed.

        What was moved counts where it is now.
        """
        head = self.head
        first, last = head.floor + 1, max(head.cursor, pushed)
        dead = head.dead + self._dead.count_within(first, last)
        purged = head.purged + self._purged_within(first, last)
        expired = head.expired + self._expired_within(first, last)
        moved = self._moved.count_within(first, last)
        return Tally(
            pushed=pushed - moved,
            popped=head.cursor - head.skipped,
            committed=head.floor + self._ended.count_within(first, last) - dead - purged - expired - moved,
            dead=dead,
            purged=purged,
            rolled_back=head.rolled_back
            + sum(self._rolled_back.values())
            + sum(run.rolled_back for run in self.runs.values()),
            expired=expired,
        )

    def _purged_within(self, first: int, last: int) -> int:
        return sum(
            part.size - self._dead.count_within(part.first, part.last)
            for part in self._purged.within(first, last)
        )

    def _expired_within(self, first: int, last: int) -> int:
        return sum(
            left.size
            for part in self._expired.within(first, last)
            for living in self._dead.missing(*part)
            for left in self._purged.missing(*living)
        )

    def _close_if_over(self, run: Run) -> None:
        if self._ended.covers(run.first, run.last) and not any(self.ended_before(run)):
            self.runs.pop(run.first, None)
            if run.rolled_back:
                self._rolled_back[run.first] = run.rolled_back
