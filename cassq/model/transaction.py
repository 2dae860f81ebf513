"""What one conditional write on a pipe asks for.

A transaction changes the head, some runs, and inserts marks, all or nothing, on one pipe. The head changes
are a closed set, so that an adapter can prepare every statement ahead. What must not break: a condition
never compares with an absent value, and an owner's change always names the op it saw.
"""

from dataclasses import dataclass
from uuid import UUID

from cassq.model.ids import LogPlace
from cassq.model.pipe import Head, Mark, Run, Step


@dataclass(frozen=True, slots=True)
class Advance:
    """An owner's take (or any other owner's write that keeps the phase).

    IF op = seen_op AND last >= head.cursor; sets op, cursor, read_from, floor and the counts of `head`,
    and leaves phase and last alone: the pusher may have sealed the pipe a moment ago. With the cursor of a
    window that is out, WINDOW_OUT, the condition says that the end is undecided.
    """

    seen_op: UUID
    head: Head
    step = Step.TAKE


@dataclass(frozen=True, slots=True)
class Seal:
    """The pusher's end of a pipe. IF last = UNDECIDED AND cursor <= last; sets last and phase sealed.

    Attributes:
        is_free: look at no cursor. Only where nothing was sent behind `last`, so that nothing behind it can
            have been handed out: a window that is out does not stand in the way then.
    """

    last: int
    is_free: bool = False
    step = Step.SEAL


@dataclass(frozen=True, slots=True)
class ForceSeal:
    """The end of a dead pusher's pipe. IF op = seen_op; sets op and phase sealed, last stays open."""

    seen_op: UUID
    op: UUID
    step = Step.FORCE_SEAL


@dataclass(frozen=True, slots=True)
class Drain:
    """Decides where a pipe sealed by force ends. IF op = seen_op AND last = UNDECIDED; sets op and last.

    The second condition matters: the pusher's own seal moves no op, and what it promised must stand.
    """

    seen_op: UUID
    op: UUID
    last: int
    step = Step.DRAIN


@dataclass(frozen=True, slots=True)
class Retire:
    """The end of an empty pipe. IF op = seen_op; sets op and phase retired, and where its event is to be."""

    seen_op: UUID
    op: UUID
    journal: LogPlace | None = None
    step = Step.RETIRE


@dataclass(frozen=True, slots=True)
class Cancel:
    """Takes back a message that was never handed out. IF cursor < seq; sets op, so that takes reload.

    Its mark is written IF NOT EXISTS: a message that waits may have been moved.
    """

    op: UUID
    seq: int
    step = Step.CANCEL


HeadChange = Advance | Seal | ForceSeal | Drain | Retire | Cancel


@dataclass(frozen=True, slots=True)
class RunChange:
    """One run row to write.

    Attributes:
        run: the row as it shall be.
        if_lease_id: the row must have this lease now; None for a row that does not exist yet.
        if_leased_at_ms: and this beginning of the lease; None when the lease alone decides.
        is_leased_now: write the database's clock as leased_at instead of `run.leased_at_ms`.
    """

    run: Run
    if_lease_id: UUID | None = None
    if_leased_at_ms: int | None = None
    is_leased_now: bool = False


@dataclass(frozen=True, slots=True)
class Transaction:
    """One all-or-nothing conditional write on one pipe.

    At least one part must carry a condition: a head change, or a run change with a lease.
    """

    head: HeadChange | None = None
    runs: tuple[RunChange, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the database says to a transaction.

    Attributes:
        is_applied: all of it was written; otherwise nothing was.
        cursor, last: for a refused seal, the values that stand; None when there is no head (the pipe is
            gone), and for every other refusal.
    """

    is_applied: bool
    cursor: int | None = None
    last: int | None = None
