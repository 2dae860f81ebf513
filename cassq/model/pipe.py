"""A pipe: its phases, its head, its runs and its marks.

Everything here is a value read from, or about to be written to, one pipe. The table `TRANSITIONS` is the
whole life of a pipe; a step it does not have is refused and changes nothing.

The rule that must not break: no head means that the pipe is gone, never that it is new.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from uuid import UUID

from cassq.limits import UNDECIDED, WINDOW_OUT
from cassq.model.ids import LogPlace, Source
from cassq.model.key import NO_SLOT
from cassq.model.past import Attempt
from cassq.model.ranges import Ranges
from cassq.model.shelf import Shelf


class Phase(Enum):
    """Where a pipe is in its life. The value is stored; `short` is what statistics show."""

    OPEN = "open"
    SEALED = "sealed"
    RETIRED = "retired"

    @property
    def short(self) -> str:
        """PA (push active), PF (push finished) or E (empty)."""
        return {"open": "PA", "sealed": "PF", "retired": "E"}[self.value]


class Step(Enum):
    """What somebody may do to a pipe's head; see `TRANSITIONS`."""

    TAKE = "take"
    SEAL = "seal"
    FORCE_SEAL = "force seal"
    DRAIN = "drain"
    RETIRE = "retire"
    CANCEL = "cancel"


#: (phase, is `last` decided?) -> the steps allowed there, and the phase each leads to.
TRANSITIONS: dict[tuple[Phase, bool], dict[Step, Phase]] = {
    (Phase.OPEN, False): {
        Step.TAKE: Phase.OPEN,
        Step.CANCEL: Phase.OPEN,
        Step.SEAL: Phase.SEALED,  # the pusher: decides last
        Step.FORCE_SEAL: Phase.SEALED,  # for a dead pusher: leaves last undecided
    },
    (Phase.SEALED, False): {
        Step.TAKE: Phase.SEALED,
        Step.CANCEL: Phase.SEALED,
        Step.SEAL: Phase.SEALED,  # the pusher was alive after all, and settles where the pipe ends
        Step.DRAIN: Phase.SEALED,  # decides last
    },
    (Phase.SEALED, True): {
        Step.TAKE: Phase.SEALED,
        Step.CANCEL: Phase.SEALED,
        Step.RETIRE: Phase.RETIRED,
    },
    (Phase.RETIRED, True): {},
}


class End(Enum):
    """How a message ended; what a mark says of its stretch."""

    COMMITTED = "committed"
    DEAD = "dead"
    PURGED = "purged"
    EXPIRED = "expired"
    MOVED = "moved"


class RunState(Enum):
    """Whether a run is in somebody's hands."""

    LEASED = "leased"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a pipe: one row, written by conditional transactions only.

    Attributes:
        op: the fence; every owner's transaction sets a fresh one and requires the one it saw.
        cursor: number of the last message ever handed out; 0 when none was, WINDOW_OUT while a window is out.
        read_from: first number of the batch to read on from.
        floor: every message up to here has ended; nothing at or below it is read again. It lies on the
            edge of a run, and at or below the cursor.
        phase: open, sealed or retired.
        last: nothing after it will ever be delivered; UNDECIDED until that is decided.
        skipped: messages that ended before they were ever handed out.
        dead, purged, rolled_back, expired: what happened up to the floor; the marks above it tell the rest.
        journal: of a retired pipe: since where its event is in the journal, or is to be; None: it has none.
    """

    op: UUID
    cursor: int = 0
    read_from: int = 1
    floor: int = 0
    phase: Phase = Phase.OPEN
    last: int = UNDECIDED
    skipped: int = 0
    dead: int = 0
    purged: int = 0
    rolled_back: int = 0
    expired: int = 0
    journal: LogPlace | None = field(default=None, kw_only=True)

    @property
    def is_decided(self) -> bool:
        """Whether it is settled where the pipe ends."""
        return self.last != UNDECIDED

    @property
    def is_window_out(self) -> bool:
        """Whether a window is out: how far it was handed out only its holder knows."""
        return self.cursor == WINDOW_OUT

    def allows(self, step: Step) -> bool:
        """Tell whether `step` is a legal one from here."""
        return step in TRANSITIONS[self.phase, self.is_decided]


#: More than any `max_attempts`: a run that is to be buried shows it, to those who go by other settings, too.
BURIAL = 1_000_000_000

#: More than any burial's: what such a run has left is dropped, and leaves no dead letters.
EXPIRY = 2 * BURIAL


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of messages that was handed out together, or a window: numbers that may not be pushed yet.

    Attributes:
        first, last: the stretch. Runs of a pipe never overlap; they are split, never joined.
        read_from: first number of the batch that holds message `first`.
        attempt: how many times the run was handed out; `BURIAL` more once it is to be buried,
            `EXPIRY` more once it is to be dropped.
        lease_id: a fresh id for each lease; what its holder's writes are conditional on.
        leased_at_ms: database's clock when the lease began or was extended.
        lease_ms: how long it runs from then.
        not_before_ms: database's clock before which a returned run is not taken again.
        holder, rolled_back: who has it, for people to read; how often messages of it came back so far.
        window_ms: of a window: for how long its holder may hand out more of it; the lease is longer by so
            much. 0 of what was handed out.
        reason: why it came back last, for people to read; "" when it never did.
        past: the attempts before this one, where the queue keeps a journal.
    """

    first: int
    last: int
    read_from: int
    state: RunState
    attempt: int
    lease_id: UUID
    leased_at_ms: int
    lease_ms: int
    not_before_ms: int
    holder: str
    rolled_back: int = 0
    window_ms: int = 0
    reason: str = ""
    past: tuple[Attempt, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it is what is left of a window of which nothing was handed out."""
        return self.last < self.first

    @property
    def attempts(self) -> int:
        """How many times the run was handed out."""
        return self.attempt % BURIAL

    @property
    def is_burial(self) -> bool:
        """Whether it is to be buried or dropped: whatever the settings are altered to."""
        return self.attempt >= BURIAL

    @property
    def is_expiry(self) -> bool:
        """Whether it is to be dropped, without dead letters."""
        return self.attempt >= EXPIRY

    def is_window_over(self, now_ms: int, skew_ms: int) -> bool:
        """Tell whether its holder hands out nothing more of a window, by the database's clock."""
        return now_ms > self.leased_at_ms + self.window_ms + skew_ms

    def is_expired(self, now_ms: int, skew_ms: int) -> bool:
        """Tell whether the lease has run out for everyone else, by the database's clock."""
        return self.state is RunState.LEASED and now_ms > self.leased_at_ms + self.lease_ms + skew_ms

    def is_due(self, now_ms: int) -> bool:
        """Tell whether the run was returned and may be taken again."""
        return self.state is RunState.RETURNED and now_ms >= self.not_before_ms


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of messages that ended, and how. Immutable; lies within one run.

    Attributes:
        target: the pipe that they were moved to, in their order by due times.
        attempt: in a pipe of a slot, that of the run which they belong to; else 0.
        ended_at_ms: when, by the database's clock, where the queue keeps a journal; AT_WRITE has it written.
    """

    first: int
    last: int
    end: End
    target: UUID | None = None
    attempt: int = 0
    ended_at_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PipeState:
    """What one settled read of a pipe shows: the head, and the runs and marks above its floor.

    Attributes:
        now_ms: the database's clock, read before the runs and marks were.
    """

    head: Head
    runs: tuple[Run, ...]
    marks: tuple[Mark, ...]
    now_ms: int

    @property
    def window(self) -> Run | None:
        """The window that is out, if any."""
        return next((run for run in self.runs if run.window_ms), None) if self.head.is_window_out else None

    def seen_at(self, pushed: int) -> "PipeState":
        """Return the state as people see it: of a window everything that was pushed is handed out.

        Args:
            pushed: how many messages the pipe has.
        """
        window = self.window
        if window is None:
            return self
        reached = max(window.first - 1, min(window.last, pushed))
        runs = [run for run in self.runs if run is not window]
        if reached >= window.first:
            runs.append(replace(window, last=reached, window_ms=0))
        cancelled = Ranges(
            (each.first, each.last) for each in self.marks if each.end in {End.PURGED, End.MOVED}
        )
        skipped = self.head.skipped + cancelled.count_within(window.first, reached)
        return replace(self, head=replace(self.head, cursor=reached, skipped=skipped), runs=tuple(runs))


@dataclass(frozen=True, slots=True)
class PipeEntry:
    """A pipe's line in the list of its queue; written once.

    Attributes:
        pusher: who pushes into it, for people to read and to keep one pusher's pipes in order.
        priority: of its messages; poppers prefer the higher.
        lane: which of the pusher's side-by-side pipes it is.
        type: of its messages; "" where they have none.
        created_at_ms: database's clock at the write.
        due_class: how long its messages wait until they are due; see `cassq.model.schedule`.
        moved_from: the pipe that its messages were moved from.
        slot: of the keys of its messages; NO_SLOT where they have none.
        shelf: the list where it was found.
    """

    pipe: UUID
    pusher: str
    priority: int = 0
    lane: int = 0
    type: str = ""
    created_at_ms: int = 0
    due_class: int = 0
    moved_from: UUID | None = None
    slot: int = NO_SLOT
    shelf: Shelf = field(default=Shelf.READY, compare=False)

    @property
    def source(self) -> Source:
        """Whose pipe it is."""
        return Source(self.pusher, self.priority, self.lane, self.type, self.due_class, self.slot)

    @property
    def is_keyed(self) -> bool:
        """Whether its messages have keys."""
        return self.slot != NO_SLOT

    def attempt_of(self, run: Run) -> int:
        """Return the attempt that marks of a run carry: in a pipe of a slot that of the run, else none."""
        return run.attempt if self.is_keyed else 0
