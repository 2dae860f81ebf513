"""How the messages of a pipe ended, as far as its rows tell.

Owns which mark counts, and what a run adds. Pure. What must not break: each message is told once, and nothing
is told of one of which no row tells.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from cassq.model.past import Attempt, shortened
from cassq.model.pipe import End, Mark, PipeState, Run
from cassq.model.ranges import Ranges

#: What counts where several marks cover one message, first.
_ORDER = (End.DEAD, End.PURGED, End.MOVED, End.EXPIRED, End.COMMITTED)


class Stretch(NamedTuple):
    """Messages of a pipe with one fate.

    Attributes:
        attempts: how often the run was handed out that they lay in; 0: they were in none. A message that was
            cancelled before may lie in a run, too.
        reason: why they came back last.
        target: the pipe that they were moved to.
        ended_at_s: when they ended, by the database's clock, in seconds since 1970; None: nobody knows.
        holder: who had them last; "" where nobody did.
        past: the attempts before the last one, as far as they are kept.
    """

    first: int
    last: int
    end: End
    attempts: int = 0
    reason: str = ""
    target: UUID | None = None
    ended_at_s: int | None = None
    holder: str = ""
    past: tuple[Attempt, ...] = ()


def stretches_of(state: PipeState) -> Iterator[Stretch]:
    """Yield how the messages of a pipe ended, as far as its rows tell; neighbours with one fate are one."""
    before: Stretch | None = None
    for each in _cut_by_runs(_ended(state.marks, state.head.last), state.runs):
        if before and before.last + 1 == each.first and before[2:] == each[2:]:
            before = before._replace(last=each.last)
            continue
        if before:
            yield before
        before = each
    if before:
        yield before


def _ended(marks: Iterable[Mark], last: int) -> list[Stretch]:
    """Return the stretches that marks cover, each message once."""
    covered, found = Ranges(), []
    for mark in sorted(marks, key=lambda mark: (_ORDER.index(mark.end), mark.first)):
        end = min(mark.last, last)
        parts = covered.missing(mark.first, end) if mark.first <= end else ()
        at_s = None if mark.ended_at_ms is None else mark.ended_at_ms // 1000
        found += [Stretch(*part, mark.end, target=mark.target, ended_at_s=at_s) for part in parts]
        covered.add(mark.first, mark.last)
    return sorted(found, key=lambda each: each.first)


def _cut_by_runs(ended: Sequence[Stretch], runs: Iterable[Run]) -> Iterator[Stretch]:
    """Cut stretches at the edges of the runs in which they were handed out, and tell what those know."""
    known, place = sorted(runs, key=lambda run: run.first), 0
    for each in ended:
        at = each.first
        while place < len(known) and known[place].last < at:
            place += 1
        following = place
        while following < len(known) and known[following].first <= each.last:
            run, following = known[following], following + 1
            if run.last < at:
                continue
            if at < run.first:
                yield each._replace(first=at, last=run.first - 1)
            at, end = max(at, run.first), min(run.last, each.last)
            yield each._replace(
                first=at,
                last=end,
                attempts=run.attempts,
                reason=shortened(run.reason),
                holder=run.holder,
                past=run.past,
            )
            at = end + 1
        if at <= each.last:
            yield each._replace(first=at)
