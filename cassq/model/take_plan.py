"""What one take asks for: pure plans over what is known and what was read.

Owns which messages make a run, where a run is split, and what the rows then say. The rule that must not
break: a message that has ended is never handed out, and one that is handed out lies in exactly one run.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, repeat

from cassq.limits import NO_LIMIT, TAKE_BYTES_MAX
from cassq.model.ids import MessageId, new_token
from cassq.model.message import NO_HEADERS, Batch, Headers
from cassq.model.past import Attempt, grown
from cassq.model.pipe import BURIAL, EXPIRY, End, Head, Mark, Run, RunState
from cassq.model.progress import Progress
from cassq.model.ranges import Range
from cassq.model.retrying import LEASE_ENDED, to_reason
from cassq.model.transaction import RunChange

#: On its way to a consumer: number, body, headers, pushed_at_ms, and its id; None: that of pipe and number.
Handout = tuple[int, bytes, Headers, int, MessageId | None]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who leases, for how long, and whether earlier attempts are kept."""

    name: str
    lease_ms: int
    keeps_past: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """A run that was taken, with the messages of it that are handed out.

    Attributes:
        run: the run as it was written (`leased_at_ms` is not known to its holder).
        parts: the messages that have not ended, in order: whole batches where they can be, because a
            stretch costs the same whether it has one message or a thousand.
        batch_firsts: first numbers of the batches the run lies in, ascending.
    """

    run: Run
    parts: tuple[Batch, ...]
    batch_firsts: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many messages are handed out."""
        return sum(part.count for part in self.parts)

    def count_due(self, now_ms: int) -> int:
        """Return how many of them may be handed out at once."""
        return sum(
            part.count if part.dues is None else sum(due <= now_ms for due in part.dues)
            for part in self.parts
        )

    @property
    def size(self) -> int:
        """How many bytes their bodies have."""
        return sum(sum(map(len, part.bodies)) for part in self.parts)

    @property
    def messages(self) -> Iterator[Handout]:
        """The messages one by one, in order."""
        for part in self.parts:
            first_ids, pushed_at_ms = zip(*part.origins, strict=True) if part.origins else (None, None)
            yield from zip(
                range(part.first, part.last + 1),
                part.bodies,
                part.headers or repeat(NO_HEADERS),
                pushed_at_ms or repeat(part.pushed_at_ms or 0),
                first_ids or repeat(None),
                strict=False,
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """One run to take: the row changes, and what is handed out once they are applied."""

    taken: Taken
    changes: tuple[RunChange, ...]
    rest: Run | None = None
    marks: tuple[Mark, ...] = ()


class Room:
    """What one take may still carry: so many messages, and so many bytes, but one message in any case.

    Attributes:
        until: nothing behind this number.
    """

    def __init__(self, messages: int, size: int = TAKE_BYTES_MAX, until: int = NO_LIMIT) -> None:
        self._messages = messages
        self._bytes = size
        self.until = until
        self._is_fresh = True

    def fit(self, part: Batch) -> Batch | None:
        """Return as much of the beginning of `part` as there is room for."""
        # A part that fits whole is the common case in a flow: it needs no sum for each of its beginnings.
        if part.count <= self._messages and (size := sum(map(len, part.bodies))) <= self._bytes:
            self._is_fresh = False
            self._messages -= part.count
            self._bytes -= size
            return part
        most = max(self._messages, int(self._is_fresh))
        sizes = list(accumulate(map(len, part.bodies[:most])))
        # An outline weighs nothing: whoever takes by it does not carry the bodies.
        count = max(bisect_right(sizes, self._bytes), int(self._is_fresh)) if sizes else min(most, part.count)
        if not count:
            return None
        self._is_fresh = False
        self._messages -= count
        self._bytes -= sizes[count - 1] if sizes else 0
        return part.part(part.first, part.first + count - 1)


def plan_fresh(
    progress: Progress, batches: Sequence[Batch], room: Room, holder: Holder, head: Head | None = None
) -> tuple[Head, Plan | None]:
    """Plan to take what was never handed out: the messages behind the cursor for which there is room.

    Args:
        head: as other plans of the same take leave it; None: as it stands.

    Returns: the head with cursor, read_from and skipped moved on, and the run; None for the run where
        everything up to the new cursor was cancelled.
    """
    head = head or progress.head
    parts: list[Batch] = []
    firsts: list[int] = []
    cursor, read_from = head.cursor, head.read_from
    for batch in batches:
        last = min(batch.last, head.last, room.until)
        if last < batch.first:
            break
        fitting, reached = _fill(room, progress, batch, Range(max(batch.first, head.cursor + 1), last))
        parts += fitting
        cursor = max(cursor, reached)
        if reached < batch.last:
            if cursor >= batch.first:
                firsts.append(batch.first)
                read_from = batch.first
            break
        firsts.append(batch.first)
        read_from = batch.last + 1
    count = sum(part.count for part in parts)
    moved = replace(
        head, cursor=cursor, read_from=read_from, skipped=head.skipped + (cursor - head.cursor) - count
    )
    if not parts:
        return moved, None
    run = Run(
        first=head.cursor + 1,
        last=cursor,
        read_from=firsts[0],
        state=RunState.LEASED,
        attempt=1,
        lease_id=new_token(),
        leased_at_ms=0,
        lease_ms=holder.lease_ms,
        not_before_ms=0,
        holder=holder.name,
    )
    return moved, Plan(Taken(run, tuple(parts), tuple(firsts)), (RunChange(run, is_leased_now=True),))


def _fill(room: Room, progress: Progress, batch: Batch, stretch: Range) -> tuple[list[Batch], int]:
    """Return what of a stretch of a batch is to be handed out now, and the last number decided on."""
    parts: list[Batch] = []
    for left in progress.missing(*stretch):
        part = room.fit(batch.part(*left))
        if part:
            parts.append(part)
        reached = part.last if part else left.first - 1
        if reached < left.last:
            return parts, reached
    return parts, stretch.last


def portion_of(progress: Progress, run: Run, wanted: int) -> int:
    """Return the last number to take of a run so that at most `wanted` messages are taken again."""
    for part in progress.left_of(run):
        if part.size >= wanted:
            return part.first + wanted - 1
        wanted -= part.size
    return run.last


def plan_again(progress: Progress, run: Run, batches: Sequence[Batch], wanted: int, holder: Holder) -> Plan:
    """Plan to take again up to `wanted` messages of a run that was returned or whose lease ran out.

    The rest of the run, if any, becomes a returned run of its own. Messages whose lease ran out count as
    rolled back now; returned ones were counted when they came back.

    Args:
        batches: those that hold the messages up to `portion_of(progress, run, wanted)`.
    """
    last = portion_of(progress, run, wanted)
    parts = tuple(
        batch.part(*left)
        for batch in batches
        for left in progress.missing(max(batch.first, run.first), min(batch.last, last))
    )
    count, reason = sum(part.count for part in parts), _reason_now(run)
    before = Attempt(run.attempts, run.holder, run.leased_at_ms, reason)
    taken = replace(
        run,
        last=last,
        state=RunState.LEASED,
        attempt=run.attempt + 1,
        lease_id=new_token(),
        lease_ms=holder.lease_ms,
        not_before_ms=0,
        holder=holder.name,
        rolled_back=run.rolled_back + (count if _comes_back(run) else 0),
        reason=reason,
        past=grown(run.past, before) if holder.keeps_past else run.past,
    )
    changes = [RunChange(taken, run.lease_id, run.leased_at_ms, is_leased_now=True)]
    rest = None
    if last < run.last:
        cut = batches[-1]
        rest = returned(progress, run, Range(last + 1, run.last), cut.first if cut.last > last else last + 1)
        changes.append(RunChange(rest))
    firsts = tuple(batch.first for batch in batches if batch.first <= last)
    # What has ended is not handed out, and so not busy in this attempt.
    marks = tuple(Mark(*part, End.COMMITTED, attempt=taken.attempt) for part in progress.ended_before(taken))
    return Plan(Taken(taken, parts, firsts), tuple(changes), rest, marks)


def leading(
    progress: Progress, batches: Sequence[Batch], stretch: Range, is_over: Callable[[Batch], bool]
) -> tuple[list[Batch], bool]:
    """Return the first of the batches that are alike, and whether what is left of them has expired.

    Args:
        stretch: the numbers that count.
        is_over: tells whether the messages of a batch have expired.
    """
    alike: list[Batch] = []
    has_expired: bool | None = None
    for batch in batches:
        first, last = max(batch.first, stretch.first), min(batch.last, stretch.last)
        if first <= last and progress.count_left(first, last):
            is_old = is_over(batch.part(first, last) if batch.dues else batch)
            if has_expired not in {None, is_old}:
                break
            has_expired = is_old
        alike.append(batch)
    return alike, bool(has_expired)


def as_burial(plan: Plan, least: int = BURIAL, reason: str = "") -> Plan:
    """Return the plan so that what is taken is buried or dropped, by whoever has it in the end.

    Args:
        least: BURIAL, or EXPIRY for what is dropped; it stays the latter once it was.
        reason: why, where that is not what it came back for.
    """
    taken, least = plan.taken.run, EXPIRY if plan.taken.run.is_expiry else least
    run = replace(taken, attempt=least + (taken.attempt - 1) % BURIAL, reason=reason or taken.reason)
    changes = (replace(plan.changes[0], run=run), *plan.changes[1:])
    return replace(plan, taken=replace(plan.taken, run=run), changes=changes)


def returned(progress: Progress, run: Run, part: Range, read_from: int) -> Run:
    """Return the row for a part of a run that nobody holds any more, to be taken again at once.

    It gets a lease id of its own, so that nothing the former holder sent can match it.
    """
    own = run.rolled_back if part.first == run.first else 0
    return replace(
        run,
        first=part.first,
        last=part.last,
        read_from=read_from,
        state=RunState.RETURNED,
        lease_id=new_token(),
        leased_at_ms=0,
        not_before_ms=0 if run.state is RunState.LEASED else run.not_before_ms,
        rolled_back=own + (progress.count_left(*part) if _comes_back(run) else 0),
        reason=_reason_now(run),
    )


def _comes_back(run: Run) -> bool:
    """Tell whether it was in a consumer's hands until its lease ran out; who buries is no consumer."""
    return run.state is RunState.LEASED and not run.is_burial


def _reason_now(run: Run) -> str:
    return to_reason(f"{LEASE_ENDED} while {run.holder} had it") if _comes_back(run) else run.reason
