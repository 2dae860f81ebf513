"""The rows of one leased run, as its holder knows them.

Owns how they are split where a part goes back, and cut where a part ends. Pure. What must not break: a mark
never reaches over the edge of a row, and what goes back has a lease id that nobody has used.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cassq.model.ids import new_token
from cassq.model.pipe import BURIAL, End, Mark, PipeState, Run, RunState
from cassq.model.ranges import Range, Ranges
from cassq.model.take_plan import Taken
from cassq.model.transaction import RunChange


@dataclass(frozen=True, slots=True)
class Return:
    """How messages go back.

    Attributes:
        delay_ms: how long they rest before they are delivered again.
        is_counted: whether it counts as an attempt and as a rollback; not so for what was never handed out.
        reason: why, for people to read; "" leaves what stands.
        is_last: they are delivered to nobody any more, but buried: leased anew, for that alone.
    """

    delay_ms: int = 0
    is_counted: bool = True
    reason: str = ""
    is_last: bool = False


class RunRows:
    """The rows under one lease.

    Args:
        taken: what the take brought.
        attempt: what marks in them carry; see `PipeEntry.attempt_of`.

    Attributes:
        lease_id: what they are leased by.
    """

    def __init__(self, taken: Taken, attempt: int = 0) -> None:
        self.lease_id = taken.run.lease_id
        self._attempt = attempt
        self._batch_firsts = list(taken.batch_firsts)
        self._rows = [taken.run]

    def grow(self, taken: Taken) -> None:
        """Add the batches of what was handed out of the same window since."""
        self._batch_firsts.extend(first for first in taken.batch_firsts if first > self._batch_firsts[-1])

    def end_window(self, last: int) -> None:
        """Note where the window ended that the only row was of."""
        self._rows = [replace(self._rows[0], last=last, window_ms=0)]

    def keep(self, rows: list[Run]) -> None:
        """Go on with those of these rows that are leased still."""
        self._rows = [row for row in rows if row.state is RunState.LEASED and not row.is_burial]

    def standing(self, state: PipeState) -> list[Run]:
        """Return the rows as they stand; those below the floor are missing, for all in them has ended."""
        stand: Mapping[int, Run] = {run.first: run for run in state.runs}
        return [stand[row.first] for row in self._rows if row.first in stand]

    def is_leased(self, standing: list[Run]) -> bool:
        """Tell whether all that stands is under this lease; a part that others took ends it."""
        return bool(standing) and all(row.lease_id == self.lease_id for row in standing)

    def cut(self, parts: Ranges) -> Iterator[Mark]:
        """Cut stretches at the edges of the rows."""
        for part in parts:
            for row in self._rows:
                first, last = max(part.first, row.first), min(part.last, row.last)
                if first <= last:
                    yield Mark(first, last, End.COMMITTED, attempt=self._attempt)

    def split(self, returned: Ranges, not_before_ms: int, how: Return) -> tuple[list[Run], list[RunChange]]:
        """Return the rows as they shall be, and the changes that make them so."""
        rows: list[Run] = []
        changes: list[RunChange] = []
        for row in self._rows:
            back = list(returned.within(row.first, row.last))
            if not back:
                rows.append(row)
                continue
            kept = list(returned.missing(row.first, row.last))
            for part in sorted(back + kept):
                is_back = part in back
                new = self._row(row, part, is_back=is_back, not_before_ms=not_before_ms, how=how)
                # What stays leased is leased from now on: the holder does not know since when it was, and
                # counts by the earlier beginning itself.
                if_lease_id = self.lease_id if part.first == row.first else None
                is_leased_now = new.state is RunState.LEASED
                changes.append(RunChange(new, if_lease_id, is_leased_now=is_leased_now))
                rows.append(new)
        return rows, changes

    def _row(self, row: Run, part: Range, *, is_back: bool, not_before_ms: int, how: Return) -> Run:
        place = max(0, bisect_right(self._batch_firsts, part.first) - 1)
        rolled_back = row.rolled_back if part.first == row.first else 0
        new = replace(
            row,
            first=part.first,
            last=part.last,
            read_from=min(part.first, max(row.read_from, self._batch_firsts[place])),
            rolled_back=rolled_back,
        )
        if not is_back:
            return new
        back = replace(
            new,
            state=RunState.RETURNED,
            lease_id=new_token(),
            leased_at_ms=0,
            not_before_ms=not_before_ms,
            attempt=row.attempt if how.is_counted else row.attempt - 1,
            rolled_back=rolled_back + (part.size if how.is_counted else 0),
            reason=how.reason or row.reason,
        )
        if how.is_last:
            return replace(back, state=RunState.LEASED, attempt=BURIAL + row.attempt)
        return back
