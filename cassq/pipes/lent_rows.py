"""The row of a lease that a token names, in the hands of any process that the token is sent to.

Owns how such a process finds out whether the lease stands and how long it may mark, how the lease begins
anew, and how a part of it goes back. Refuses to know clients. What must not break:

- who acts by a token has read the row, unless it leased it and its own clock still runs;
- what is left of a lease is told by one reading of the database's clock, and counts from before the question;
- a plain read will do: what it may miss is under way, and while what it shows runs nobody can take the row;
- the row changes only on the lease id and the leased_at that were read, and what is settled keeps no part
  under the id: so a row under it always has all of the lease.

    process B                                  database                       a taker
    | t0 := own clock                          |                              |
    | read_stretch --------------------------> | leased_at 100, now 130       |
    | lease 60: may mark until t0 + 30         |                              |
    | mark 1..9, acknowledged before that ---> |                              |
    |                                          | now 160 + skew: it has ended | takes what has no mark
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from cassq.catalog.queue_context import QueueContext
from cassq.limits import RETURN_PARTS_MAX, TAKE_MESSAGES_MAX
from cassq.model.ids import new_token
from cassq.model.lease import Lease, holder_of
from cassq.model.pipe import BURIAL, End, Mark, Run, RunState
from cassq.model.ranges import Range, Ranges
from cassq.model.transaction import RunChange, Transaction
from cassq.pipes.run_rows import Return
from cassq.storage.forms import PipeStretch

#: A lease with less left, or less than a quarter of its time, begins anew before anything is marked under it.
LEFT_MIN_S = 1.0

#: Leases with more numbers between them are read by themselves: each of those may be a row.
APART_MAX = 64


@dataclass(slots=True, eq=False)
class LentRow:
    """A lease that this process may act under.

    Attributes:
        row: as it was read, or taken; who took it does not know its leased_at.
        parts: the messages of it that had not ended.
        ends_at: the clock's latest reading from which on nothing is marked under it here.
        note: tells the owner of the pipe of marks and rows; None where another process leased it.
    """

    row: Run
    parts: Ranges
    ends_at: float
    note: Callable[..., None] | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one read showed of a lease.

    Attributes:
        row: None where nothing stands under the lease.
        left: what has not ended of its messages; where nobody knows the lease, all of them.
        buried: what of its numbers stands in rows that are to become dead letters, or to be dropped.
        now_ms: the database's clock.
        asked_at: the own clock's latest reading before that was asked for.
    """

    row: Run | None
    left: Ranges
    now_ms: int
    asked_at: float
    buried: Ranges = field(default_factory=Ranges)

    @property
    def ends_at(self) -> float:
        """Until when who read it may mark; in the past where it has to begin anew."""
        if self.row is None:
            return float("-inf")
        return self.asked_at + left_ms(self.row, self.now_ms) / 1000

    @property
    def is_short(self) -> bool:
        """Whether little or nothing is left of it."""
        lease_ms = self.row.lease_ms if self.row else 0
        return (self.ends_at - self.asked_at) * 1000 <= min(1000 * LEFT_MIN_S, lease_ms / 4)


def left_ms(row: Run, now_ms: int) -> int:
    """Return how much is left of a lease by the database's clock.

    No margin comes off: whoever takes the row again waits for `clock_skew_max` longer than any node's clock,
    and the node that answered is one of them.
    """
    return row.leased_at_ms + row.lease_ms - now_ms


class LentRows:
    """Reads and changes the rows of one queue that tokens name."""

    def __init__(self, context: QueueContext) -> None:
        self._storage = context.storage
        self._clock = context.clock
        self._holder = holder_of(context.queue)

    def read(self, leases: Sequence[Lease]) -> dict[Lease, Seen]:
        """Read leases: those of a pipe that lie together by one slice.

        Raises: as `Storage.read_stretch`.
        """
        seen: dict[Lease, Seen] = {}
        together: list[Lease] = []
        reached = 0
        for lease in sorted(set(leases), key=lambda each: (each.pipe, each.first, each.last)):
            is_far = together and (lease.pipe != together[0].pipe or lease.first > reached + APART_MAX)
            if is_far or (together and lease.last - together[0].first >= TAKE_MESSAGES_MAX):
                seen.update(self._read(together))
                together = []
            together.append(lease)
            reached = max(reached, lease.last) if len(together) > 1 else lease.last
        seen.update(self._read(together) if together else {})
        return seen

    def _read(self, leases: Sequence[Lease]) -> dict[Lease, Seen]:
        pipe, last = leases[0].pipe, max(lease.last for lease in leases)
        asked_at = self._clock.latest()
        stretch = self._storage.read_stretch(pipe, leases[0].first, last)
        if not (stretch.runs or stretch.marks) and self._storage.load_pipe(pipe) is None:
            return {lease: Seen(None, Ranges(), 0, asked_at) for lease in leases}  # all in the pipe has ended
        ended = Ranges((mark.first, mark.last) for mark in stretch.marks)
        buried = Ranges((run.first, run.last) for run in stretch.runs if run.is_burial)
        return {
            lease: Seen(
                self._find(lease, stretch),
                Ranges(ended.missing(lease.first, lease.last)),
                stretch.now_ms,
                asked_at,
                buried,
            )
            for lease in leases
        }

    def _find(self, lease: Lease, stretch: PipeStretch) -> Run | None:
        """Return the row of a lease; what poppers and readers hold no token names, whoever learns its id."""
        for run in stretch.runs:
            is_meant = (run.first, run.last, run.attempt) == (lease.first, lease.last, lease.attempt)
            is_leased = run.state is RunState.LEASED and run.lease_id == lease.lease_id
            if is_meant and is_leased and run.holder == self._holder:
                return run
        return None

    def begin_anew(self, lease: Lease, row: Run) -> float | None:
        """Begin a lease anew; return until when it runs for this process, None where the row has changed.

        Raises: as `Storage.transact`.
        """
        sent_at = self._clock.latest()
        change = RunChange(row, row.lease_id, row.leased_at_ms, is_leased_now=True)
        if not self._storage.transact(lease.pipe, Transaction(runs=(change,))).is_applied:
            return None
        return sent_at + row.lease_ms / 1000

    def settle(self, lease: Lease, seen: Seen, back: Mapping[int, Return]) -> list[Run] | None:
        """Return messages, in one transaction; None where the row has changed, and nothing was written.

        Everything else of the lease has ended.

        Raises: as `Storage.transact`.
        """
        row = seen.row
        if row is None:
            return None
        own = Ranges((seq, seq) for seq in back)
        parts = [(part, how, own.count_within(*part)) for part, how in _parts(row, back)]
        rows = [_settled(row, *part, seen.now_ms) for part in parts]
        changes = RunChange(rows[0], row.lease_id, row.leased_at_ms), *map(RunChange, rows[1:])
        return rows if self._storage.transact(lease.pipe, Transaction(runs=changes)).is_applied else None


def count_ways(back: Mapping[int, Return]) -> int:
    """Return how many rows messages need that go back, where what has ended lies between them."""
    return sum(1 for _ in groupby(how for _, how in sorted(back.items())))


def to_marks(lent: LentRow, parts: Iterable[Range]) -> list[Mark]:
    """Return the marks that commit parts of a lease; each lies within its row, none reaches into another."""
    own = lent.row
    return [Mark(max(part.first, own.first), min(part.last, own.last), End.COMMITTED) for part in parts]


def _parts(row: Run, back: Mapping[int, Return]) -> list[tuple[Range, Return | None]]:
    """Return the stretches of a row that go the same way; None for how: it has ended.

    Where they are more than one transaction carries, what has ended goes with what is before it.
    """
    parts = _stretches(row, [back.get(seq) for seq in range(row.first, row.last + 1)])
    if len(parts) <= RETURN_PARTS_MAX:
        return parts
    how, hows = back[min(back)], list[Return | None]()
    for seq in range(row.first, row.last + 1):
        how = back.get(seq, how)
        hows.append(how)
    return _stretches(row, hows)


def _stretches(row: Run, hows: Iterable[Return | None]) -> list[tuple[Range, Return | None]]:
    parts: list[tuple[Range, Return | None]] = []
    first = row.first
    for how, own in groupby(hows):
        last = first + sum(1 for _ in own) - 1
        parts.append((Range(first, last), how))
        first = last + 1
    return parts


def _settled(row: Run, part: Range, how: Return | None, count: int, now_ms: int) -> Run:
    """Return a part of a row as it stands afterwards: returned, under an id that nobody has used.

    Args:
        count: how many of its messages go back.
    """
    own = row.rolled_back if part.first == row.first else 0
    settled = replace(
        row,
        first=part.first,
        last=part.last,
        state=RunState.RETURNED,
        lease_id=new_token(),
        leased_at_ms=0,
        rolled_back=own,
    )
    if how is None:
        return settled
    if not how.is_counted:
        return replace(settled, attempt=row.attempt - 1)
    return replace(
        settled,
        not_before_ms=now_ms + how.delay_ms if how.delay_ms else 0,
        attempt=BURIAL + row.attempt if how.is_last else row.attempt,
        rolled_back=own + count,
        reason=how.reason or row.reason,
    )
