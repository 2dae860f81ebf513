"""One pipe behind its fence: what is known of it, and how that is changed.

Owns the head that was last read or written, the transactions that are conditional on its op, and what to
believe where the outcome of one is unknown. Refuses to know what a transaction is for: taking is
`owned_pipe`'s, windows are `window_steps`', the rest `upkeep`'s. What must not break:

- after a transaction with an unknown outcome, the next one is conditional on the op that a settled read
  shows, so that the lost one can never be applied behind it;
- a lease has ended only by a reading of the database's clock that was older than the read of its marks.

    owner A                      database                     owner B
    | load: op 1 --------------> |                            |
    |                            | <------------- load: op 1  |
    | take IF op = 1 (op 2) ---> | applied                    |
    |                            | <-- take IF op = 1 (op 3)  | refused: B lets the pipe go
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import OutcomeUnknownError
from cassq.limits import WINDOW_OUT
from cassq.model.ids import new_token
from cassq.model.pipe import Head, Mark, PipeEntry, PipeState, Run, RunState
from cassq.model.portions import Portions
from cassq.model.progress import Progress
from cassq.model.take_plan import Holder
from cassq.model.tally import Tally
from cassq.model.transaction import Advance, RunChange, Transaction
from cassq.pipes.batch_reader import BatchReader
from cassq.pipes.held_window import HeldWindow
from cassq.pipes.outside_view import is_spent
from cassq.runtime.database_clock import Reading


@dataclass(frozen=True, slots=True)
class Taker:
    """Who works on a pipe, and how.

    Attributes:
        name: in the runs that it leases, for people to read.
        beside: reads on while a transaction is under way; without it nothing is read ahead.
        on_end_asked: called, from a consumer's thread, when a window of the pipe should end.
        is_outline: read neither bodies nor headers; what is handed out has none.
        portions: cut what is taken into runs of these sizes, and take no more than they want.
    """

    name: str
    beside: Executor | None = None
    on_end_asked: Callable[[], None] = lambda: None
    is_outline: bool = False
    portions: Portions | None = None


class FencedPipe:
    """A pipe, from one settled read on, that is changed by transactions conditional on its op.

    Args:
        state: what `load_pipe` returned.
        sent_at: the clock's reading before `state` was asked for; None: now.

    Attributes:
        window: the window that this process holds. `progress.window` is the one that stands in the database,
            whoever holds it.
        no_window_until: the clock's reading before which no window begins.
        read_ms, read_at: the database's clock at the last settled read, and this process's after it.
        sent_at: this process's before it: what was acknowledged since may be missing in it.
        progress: what is known of the pipe.
        settings: those of the queue at the last take.
        attempts_max: a run that comes back from this attempt is buried.
    """

    progress: Progress

    def __init__(
        self,
        context: QueueContext,
        entry: PipeEntry,
        state: PipeState,
        taker: Taker,
        sent_at: float | None = None,
    ) -> None:
        self._context = context
        self._taker = taker
        self.storage = context.storage
        self.queue = context.queue
        self.entry = entry
        self.pipe = entry.pipe
        self.skew_ms = _ms(context.settings.clock_skew_max.total_seconds())
        self.heed_settings()
        self.clock = context.clock
        self.on_end_asked = taker.on_end_asked
        self.window: HeldWindow | None = None
        self.no_window_until = float("-inf")
        self.is_outline = taker.is_outline
        self.portions = taker.portions
        self.reader = BatchReader(self.storage, self.pipe, taker.beside, is_outline=taker.is_outline)
        # What consumers' threads told since the last step: marks that were acknowledged, runs returned.
        self._notes: deque[tuple[tuple[Mark | Run, ...], UUID | None]] = deque()
        self._adopt(state, self.clock.now() if sent_at is None else sent_at)

    @property
    def head(self) -> Head:
        """The head as last read or written."""
        return self.progress.head

    @property
    def is_over(self) -> bool:
        """Whether everything in it was handed out and has ended, so that it may retire."""
        self.heed()
        return self.progress.is_over

    @property
    def is_exhausted(self) -> bool:
        """Whether everything it will ever deliver was handed out."""
        return self.progress.is_exhausted

    def look(self) -> bool:
        """Read the pipe again; False when it is gone."""
        sent_at = self.clock.now()
        state = self.storage.load_pipe(self.pipe)
        if state is None:
            return False
        self._adopt(state, sent_at)
        return True

    def tally(self, pushed: int) -> Tally:
        """Count what became of its messages; `pushed` of them were pushed."""
        self.heed()
        return self.progress.tally(pushed)

    def note(self, *notes: Mark | Run, lease_id: UUID | None = None) -> None:
        """Hear of acknowledged marks and returned runs; callable from any thread.

        Args:
            lease_id: what the runs were leased by before: where another one is known by now, they are old.
        """
        # Together: between two rows of one run a message would be in none.
        self._notes.append((notes, lease_id))

    def estimate_now_ms(self) -> int:
        """Estimate the database's clock: for when to look. That a lease has ended `read_ms` alone tells."""
        return self.read_ms + _ms(self.clock.now() - self.read_at)

    def earliest_now_ms(self) -> int:
        """Return what the database's clock shows at the least, for what must not be taken before."""
        return int(Reading(self.read_ms, self.sent_at, self.read_at).at_least_ms(self.clock.now()))

    def expired(self) -> list[Run]:
        """Return the runs whose lease had ended before the last read of their marks began."""
        return [run for run in self.progress.runs.values() if run.is_expired(self.read_ms, self.skew_ms)]

    def is_due(self, run: Run, now_ms: int) -> bool:
        """Tell whether a run may be taken again; what came back from its last attempt is buried at once."""
        return is_spent(run, self.attempts_max) or run.is_due(now_ms)

    def _adopt(self, state: PipeState, sent_at: float) -> None:
        window, self.window = self.window, None
        before = self.progress.head if window else state.head
        self.progress = Progress(state)
        self.read_ms = state.now_ms
        self.sent_at, self.read_at = sent_at, self.clock.now()
        if window and not self._keep_window(window, before):
            window.lose()

    def keep_window(self, window: HeldWindow, head: Head) -> None:
        """Read the pipe again, and go on holding a window if it is still there, handed out up to `head`."""
        if self.look():
            self._keep_window(window, head)

    def _keep_window(self, window: HeldWindow, head: Head) -> bool:
        standing = self.progress.window
        if standing is None or standing.lease_id != window.run.lease_id:
            return False
        self.window = window
        self.progress.note_head(
            replace(self.head, cursor=head.cursor, read_from=head.read_from, skipped=head.skipped)
        )
        return True

    def heed(self) -> None:
        """Take in what consumers' threads told since the last step."""
        while self._notes:
            notes, lease_id = self._notes.popleft()
            for note in notes:
                self._heed_one(note, lease_id)

    def _heed_one(self, note: Mark | Run, lease_id: UUID | None) -> None:
        if isinstance(note, Mark):
            self.progress.note_marks((note,))
            return
        known = self.progress.runs.get(note.first)
        is_old = lease_id is not None and known is not None and known.lease_id != lease_id
        if note.first > self.head.floor and not is_old:
            if note.state is RunState.LEASED:  # since when, the database knows
                note = replace(note, leased_at_ms=self.estimate_now_ms())
            self.progress.note_run(note)

    def heed_settings(self) -> None:
        """Take in what was altered since the last take: one take goes by one reading of the settings."""
        self.settings = self._context.settings
        self.attempts_max = self.settings.max_attempts
        lease_ms = _ms(self._context.lease.total_seconds())
        self.holder = Holder(self._taker.name, lease_ms, self._context.keeps_journal)

    def advance(
        self,
        head: Head,
        runs: Sequence[RunChange] = (),
        marks: Sequence[Mark] = (),
        *,
        is_window_out: bool = False,
    ) -> bool:
        """Write the head with a fresh op and the highest floor, runs and marks; False: refused.

        Args:
            is_window_out: a window stands once this is applied, so the cursor is written as undecided.
        """
        op = new_token()
        written = replace(
            self.progress.raise_floor(),
            op=op,
            cursor=WINDOW_OUT if is_window_out else head.cursor,
            read_from=head.read_from,
            skipped=head.skipped,
        )
        change = Transaction(Advance(self.head.op, written), tuple(runs), tuple(self._context.timed(marks)))
        if not self.settle(change, op):
            return False
        self.progress.note_head(
            replace(written, cursor=head.cursor, phase=self.head.phase, last=self.head.last)
        )
        return True

    def settle(self, transaction: Transaction, op: UUID) -> bool:
        """Send a transaction once; where its outcome is unknown, let a settled read say if it was applied.

        Not applied by that read means not applied so far. It may still land, until a transaction that is
        conditional on the op of that read was applied: every later one of this pipe is.
        """
        try:
            return self.storage.transact(self.pipe, transaction).is_applied
        except OutcomeUnknownError:
            return self.look() and self.head.op == op


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
