"""One claimed pipe: load, take, give up, drain, retire.

Owns the owner's half of the protocol for a single pipe. It refuses to know about claims: the fence in the
head decides who owns, and a claim only spares wasted work. What must not break:

- nothing is handed out before its transaction was applied;
- a run is taken again only when its lease had ended by a reading of the database's clock that was older
  than the read of its marks;
- after a transaction with an unknown outcome, the next one is conditional on the op that a settled read
  shows, so that the lost one can never be applied behind it.

    popper A                     database                     popper B
    | load: op 1 --------------> |                            |
    |                            | <------------- load: op 1  |
    | take IF op = 1 (op 2) ---> | applied                    |
    |                            | <-- take IF op = 1 (op 3)  | refused: B lets the pipe go
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from cassq.clock import Clock
from cassq.errors import OutcomeUnknownError
from cassq.model.ids import MessageId, new_token
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry, PipeState, Run, RunState, Step, Tally
from cassq.model.progress import Progress
from cassq.model.settings import QueueSettings
from cassq.model.stretches import Stretch, Stretches
from cassq.model.taking import Lessee, Plan, Taken, plan_again, plan_fresh, portion_of, returned
from cassq.model.transaction import Advance, Drain, ForceSeal, Retire, RunChange, Transaction
from cassq.storage.port import BatchQuery, DeadLetter, Storage
from cassq.waiting_reader import WaitingReader


@dataclass(frozen=True, slots=True)
class Loot:
    """What one take brought home.

    Attributes:
        runs: runs to hand out.
        dead: runs past max_attempts, leased to be buried instead.
        sent_at: the clock's reading from before the transaction was sent; leases count from here.
    """

    runs: list[Taken]
    dead: list[Taken]
    sent_at: float


class OwnedPipe:
    """A pipe that this process has claimed, from one settled read on.

    Args:
        state: what `load_pipe` returned.
        holder: who takes, for people to read.
    """

    def __init__(  # noqa: PLR0913 - collaborators are passed in
        self,
        storage: Storage,
        queue: str,
        entry: PipeEntry,
        state: PipeState,
        *,
        settings: QueueSettings,
        holder: str,
        clock: Clock,
    ) -> None:
        self._storage = storage
        self._queue = queue
        self.entry = entry
        self.pipe = entry.pipe
        self._settings = settings
        self._lessee = Lessee(holder, _ms(settings.lease.total_seconds()))
        self._clock = clock
        self._reader = WaitingReader(storage, self.pipe)
        # What consumers' threads told since the last step: marks that were acknowledged, runs returned.
        self._notes: deque[Mark | Run] = deque()
        self._adopt(state)

    # -- what it knows -------------------------------------------------------------------------------

    @property
    def head(self) -> Head:
        """The head as last read or written."""
        return self._progress.head

    @property
    def is_over(self) -> bool:
        """Whether everything in it was handed out and has ended, so that it may retire."""
        self._heed()
        return self._progress.is_over

    @property
    def is_exhausted(self) -> bool:
        """Whether everything it will ever deliver was handed out."""
        return self._progress.is_exhausted

    @property
    def may_have_more(self) -> bool:
        """Whether the last look left something to take."""
        return not self.is_exhausted and self._reader.may_have_more_behind(self.head.cursor)

    def needs_care(self, *, is_abandoned: bool) -> bool:
        """Tell whether a reaper has something to do: a dead pusher, an open end, a lease that ran out."""
        if is_abandoned and self.head.phase is Phase.OPEN:
            return True
        return (self.head.phase is Phase.SEALED and not self.head.is_decided) or bool(self._expired())

    def tally(self, pushed: int) -> Tally:
        """Count what became of its messages; `pushed` of them were pushed."""
        self._heed()
        return self._progress.tally(pushed)

    def note(self, *notes: Mark | Run) -> None:
        """Hear of acknowledged marks and returned runs; callable from any thread."""
        self._notes.extend(notes)

    def next_due(self) -> float | None:
        """Return in how many seconds a run may come due again, by estimate; None when nothing is out."""
        self._heed()
        skew = _ms(self._settings.clock_skew_max.total_seconds())
        now_ms = self._estimate_now_ms()
        due = [
            run.not_before_ms - now_ms
            if run.leased_at_ms == 0
            else run.leased_at_ms + run.lease_ms + skew - now_ms
            for run in self._progress.runs.values()
        ]
        return max(0.0, min(due) / 1000) if due else None

    # -- steps ---------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Read the pipe again; False when it is gone."""
        state = self._storage.load_pipe(self.pipe)
        if state is None:
            return False
        self._adopt(state)
        return True

    def take(self, wanted: int) -> Loot | None:
        """Take up to `wanted` messages: first what came back and is due, then what was never handed out.

        Returns: what may be handed out now, empty when there is nothing; None when the pipe has another
            owner or is gone, and must be let go.

        Raises:
            StorageUnavailableError, OutcomeUnknownError: let the pipe go; nothing was handed out, and what
                may have been leased comes back when its lease ends.
        """
        self._heed()
        plans = self._plan_again(wanted)
        head, fresh = self._plan_fresh(wanted - sum(plan.taken.count for plan in plans))
        if fresh:
            plans.append(fresh)
        if not plans and head.cursor == self.head.cursor:
            return Loot([], [], self._clock.now())
        sent_at = self._clock.now()
        if not self._advance(head, tuple(change for plan in plans for change in plan.changes)):
            return None
        for plan in plans:
            # When the lease began is the database's to know; an estimate serves for when to look again.
            self._progress.note_run(replace(plan.taken.run, leased_at_ms=self._estimate_now_ms()))
            if plan.rest:
                self._progress.note_run(plan.rest)
        runs = [plan.taken for plan in plans if plan.taken.run.attempt <= self._settings.max_attempts]
        dead = [plan.taken for plan in plans if plan.taken.run.attempt > self._settings.max_attempts]
        return Loot(runs, dead, sent_at)

    def bury(self, taken: Taken) -> int:
        """Move a run past max_attempts to the dead letters; return how many messages that were.

        A crash between the two writes repeats the same rows under the messages' own ids.
        """
        attempts = taken.run.attempt - 1
        reason = f"rolled back or expired {attempts} times (max_attempts={self._settings.max_attempts})"
        letters = [
            DeadLetter(MessageId(self.pipe, seq), body, headers, pushed_at_ms, attempts, reason)
            for seq, body, headers, pushed_at_ms in taken.messages
        ]
        self._storage.change_dead(self._queue, added=letters)
        buried = Stretches((letter.message_id.seq, letter.message_id.seq) for letter in letters)
        marks = [Mark(part.first, part.last, End.DEAD) for part in buried]
        self._storage.mark(self.pipe, marks)
        self._progress.note_marks(marks)
        return len(letters)

    def return_expired(self) -> int:
        """Return runs whose lease has run out, without taking them; return how many messages came back."""
        self._heed()
        progress = self._progress
        back = [
            (run, returned(progress, run, Stretch(run.first, run.last), run.read_from))
            for run in self._expired()
        ]
        changes = [RunChange(run, old.lease_id, old.leased_at_ms) for old, run in back]
        if not changes or not self._advance(self.head, changes):
            return 0
        for _, run in back:
            self._progress.note_run(run)
        return sum(self._progress.count_left(run.first, run.last) for _, run in back)

    def seal(self) -> bool:
        """Seal the pipe by force, for a pusher that is gone; the caller judges that. False: lost."""
        if not self.head.allows(Step.FORCE_SEAL):
            return True
        op = new_token()
        return self._settle(Transaction(ForceSeal(self.head.op, op)), op) and self.look()

    def drain(self) -> bool:
        """Decide where a pipe sealed by force ends, if nothing waits behind its cursor. False: lost.

        The seal was seen by an earlier read than the one made here; pushes acknowledged in time are in it.
        """
        head = self.head
        if not head.allows(Step.DRAIN) or not self._reader.is_drained(head.read_from, head.cursor):
            return True
        op = new_token()
        return self._settle(Transaction(Drain(head.op, op, head.cursor)), op) and self.look()

    def retire(self) -> bool:
        """Retire the pipe, which is over and counted; True when it is retired, or gone, now."""
        self._heed()
        if not (self._progress.is_over and self.head.allows(Step.RETIRE)):
            return self.head.phase is Phase.RETIRED
        op = new_token()
        if self._settle(Transaction(Retire(self.head.op, op)), op):
            return True
        state = self._storage.load_pipe(self.pipe)
        return state is None or state.head.phase is Phase.RETIRED

    def purge(self) -> int | None:
        """End everything that is in nobody's hands; return how many messages, None when refused.

        What waits is stepped over and marked in one transaction; so is what was returned.
        """
        self._heed()
        progress, head = self._progress, self.head
        pushed = min(find_pushed(self._storage, self.pipe, head), head.last)
        idle = [Stretch(head.cursor + 1, pushed)] if pushed > head.cursor else []
        waiting = [part for stretch in idle for part in progress.missing(*stretch)]
        back = [
            part
            for run in progress.runs.values()
            if run.state is RunState.RETURNED
            for part in progress.left_of(run)
        ]
        marks = tuple(Mark(part.first, part.last, End.PURGED) for part in waiting + back)
        if not marks:
            return 0
        skipped = head.skipped + max(0, pushed - head.cursor)
        moved = replace(head, cursor=max(pushed, head.cursor), skipped=skipped)
        moved = replace(moved, read_from=moved.cursor + 1 if idle else head.read_from)
        if not self._advance(moved, marks=marks):
            return None
        progress.note_marks(marks)
        return sum(part.size for part in waiting + back)

    # ------------------------------------------------------------------------------------------------

    def _adopt(self, state: PipeState) -> None:
        self._progress = Progress(state)
        self._read_ms = state.now_ms
        self._read_at = self._clock.now()

    def _heed(self) -> None:
        while self._notes:
            note = self._notes.popleft()
            if isinstance(note, Mark):
                self._progress.note_marks((note,))
            elif note.first > self.head.floor:
                self._progress.note_run(note)

    def _estimate_now_ms(self) -> int:
        # Good enough for when to look; whether a lease has ended is judged by `_read_ms` alone.
        return self._read_ms + _ms(self._clock.now() - self._read_at)

    def _expired(self) -> list[Run]:
        skew = _ms(self._settings.clock_skew_max.total_seconds())
        return [run for run in self._progress.runs.values() if run.is_expired(self._read_ms, skew)]

    def _plan_again(self, wanted: int) -> list[Plan]:
        now_ms = self._estimate_now_ms()
        due = [run for run in self._progress.runs.values() if run.is_due(now_ms)]
        plans: list[Plan] = []
        for run in sorted(due + self._expired(), key=lambda run: run.first):
            if wanted <= 0:
                break
            last = portion_of(self._progress, run, wanted)
            batches = self._reader.read_run(run, last)
            plan = plan_again(self._progress, run, batches, wanted, self._lessee)
            wanted -= plan.taken.count
            plans.append(plan)
        return plans

    def _plan_fresh(self, wanted: int) -> tuple[Head, Plan | None]:
        head = self.head
        if wanted <= 0 or self._progress.is_exhausted:
            return head, None
        batches = self._reader.read(head.read_from, head.cursor, wanted)
        return plan_fresh(self._progress, batches, wanted, self._lessee)

    def _advance(self, head: Head, runs: Sequence[RunChange] = (), marks: Sequence[Mark] = ()) -> bool:
        """Write the head with a fresh op and the highest floor, runs and marks; False: refused."""
        op = new_token()
        written = replace(
            self._progress.raise_floor(),
            op=op,
            cursor=head.cursor,
            read_from=head.read_from,
            skipped=head.skipped,
        )
        change = Transaction(Advance(self.head.op, written), tuple(runs), tuple(marks))
        if not self._settle(change, op):
            return False
        self._progress.note_head(replace(written, phase=self.head.phase, last=self.head.last))
        return True

    def _settle(self, transaction: Transaction, op: UUID) -> bool:
        """Send a transaction once; where its outcome is unknown, let a settled read say if it was applied.

        Not applied by that read means not applied so far. It may still land, until a transaction that is
        conditional on the op of that read was applied: every later one of this pipe is.
        """
        try:
            return self._storage.transact(self.pipe, transaction).is_applied
        except OutcomeUnknownError:
            state = self._storage.load_pipe(self.pipe)
            if state is None:
                return False
            self._adopt(state)
            return state.head.op == op


def find_pushed(storage: Storage, pipe: UUID, head: Head) -> int:
    """Return how many messages were pushed into a pipe: `last` once it is decided, before by a read."""
    if head.is_decided:
        return head.last
    newest = storage.read_batches(pipe, BatchQuery(is_newest_first=True, is_outline=True))
    return newest[0].last if newest else 0


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
