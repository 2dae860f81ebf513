"""One claimed pipe: take, bury.

Owns how an owner takes from a single pipe, and what it ends there. It refuses to know about claims: the fence
in the head decides who owns, and a claim only spares wasted work. What must not break:

- nothing is handed out before its transaction was applied;
- a run is taken again only when its lease had ended.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from cassq.errors import CassqError, DecodeError
from cassq.limits import TAKE_MESSAGES_MAX
from cassq.model.pipe import Head, Phase
from cassq.model.ranges import Ranges
from cassq.model.take_plan import Taken
from cassq.pipes import upkeep, window_steps
from cassq.pipes.batch_reader import BatchReader
from cassq.pipes.burial import bury, drop
from cassq.pipes.dues import Horizon
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.held_window import HeldWindow
from cassq.pipes.planning import plan_take

#: So often a take is planned again that cancellations came between, or that found nothing but cancelled ones.
TAKE_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class TakeResult:
    """What one take brought home.

    Attributes:
        runs: runs to hand out.
        dead: runs past max_attempts, or that have expired, leased to be buried or dropped instead.
        sent_at: the clock's latest reading from before the transaction was sent; leases count from here.
        window: the window that the runs come from, if they come from one.
    """

    runs: list[Taken]
    dead: list[Taken]
    sent_at: float
    window: HeldWindow | None = None


class OwnedPipe(FencedPipe):
    """A pipe that this process has claimed, and takes from."""

    @cached_property
    def horizon(self) -> Horizon:
        """How far it is taken from; used by the owner's thread alone."""
        return Horizon(self)

    @property
    def left(self) -> int:
        """How many messages were never handed out; boundless while its end is not decided."""
        return self.head.last - self.head.cursor

    @property
    def may_have_more(self) -> bool:
        """Whether the last look left something to take; nothing is taken beside another owner's window."""
        if self.progress.window and not self.window:
            return False
        is_at_end = self.is_exhausted or self.head.cursor >= self.horizon.until or bool(self.horizon.next_ms)
        return not is_at_end and self.reader.may_have_more_behind(self.head.cursor)

    @property
    def has_due(self) -> bool:
        """Whether something that was handed out before may be taken again."""
        now_ms = self.estimate_now_ms()
        return any(self.is_due(run, now_ms) for run in self.progress.runs.values()) or bool(self.expired())

    @property
    def is_at_rest(self) -> bool:
        """Whether, as last read, nothing but a push can bring a message: it is open, and nothing is due."""
        is_open = self.head.phase is Phase.OPEN and not self.head.is_decided
        return is_open and not (self.progress.window or self.has_due)

    def has_news(self) -> bool:
        """Tell, by a fresh read, whether something waits; also after the claim was given up."""
        if self.is_exhausted:
            return False
        try:
            return not self.reader.is_drained(self.head.read_from, self.head.cursor)
        except CassqError:
            return True  # somebody will see

    def next_due(self) -> float | None:
        """Return in how many seconds something may be taken: what waits and is not near, or what is out.

        None when nothing is out, and nothing known to wait.
        """
        self.heed()
        now_ms = self.estimate_now_ms()
        due: list[float] = [
            (0 if self.is_due(run, now_ms) else run.not_before_ms - now_ms)
            if run.leased_at_ms == 0
            else run.leased_at_ms + run.lease_ms + self.skew_ms - now_ms
            for run in self.progress.runs.values()
        ]
        if (next_ms := self.horizon.next_ms) is not None:
            due.append(next_ms)
        if self.window:
            due.append(1000 * (self.window.ends_at - self.clock.latest()))
        elif window := self.progress.window:
            due.append(window.leased_at_ms + window.window_ms + self.skew_ms - now_ms)
        return max(0.0, min(due) / 1000) if due else None

    def read_ahead(self, wanted: int) -> None:
        """Read what a take of `wanted` messages will need."""
        if not self.is_exhausted:
            self.reader.read(self.head.read_from, self.head.cursor, wanted)

    def take(self, wanted: int, *, is_flowing: bool = False) -> TakeResult | None:
        """Take up to `wanted` messages: first what came back and is due, then what was never handed out.

        Args:
            wanted: 0 takes what is to be buried or dropped, and nothing else.
            is_flowing: more is expected at any moment, and nobody else waits for it: lease a window.

        Returns: what may be handed out now, empty when there is nothing; None when the pipe has another
            owner or is gone, and must be let go.

        Raises:
            StorageUnavailableError, OutcomeUnknownError: let the pipe go; nothing was handed out, and what
                may have been leased comes back when its lease ends.
        """
        self.heed()
        self.heed_settings()
        wanted = min(wanted, TAKE_MESSAGES_MAX)
        if self.portions:
            wanted, is_flowing = min(wanted, self.portions.left), False  # a window is nobody's alone
        if self.window:
            taken = self._take_from_window(self.window, wanted, is_flowing=is_flowing)
            if taken:
                return taken
            if self.window and not window_steps.cut(self):
                return None
        if self.progress.window:
            # Another owner's, or its own from before a failure. What came back waits for its end, too.
            if not window_steps.is_over(self):
                return TakeResult([], [], self.clock.latest())
            if not window_steps.take_over(self):
                return None
        if self.entry.is_keyed and not upkeep.return_ended(self):
            return None
        return self._take_among_cancelled(wanted, is_flowing=is_flowing)

    def _take_from_window(self, window: HeldWindow, wanted: int, *, is_flowing: bool) -> TakeResult | None:
        """Take from the window that is held; None when it is to end, or has ended."""
        if window.is_asked or self.head.is_decided or self.head.phase is not Phase.OPEN or self.has_due:
            return None
        if is_flowing and window.handed_out and window_steps.wants_renewal(self, window):
            if not window_steps.renew(self) or not self.window:
                return None
            window = self.window
        taken = window_steps.hand_out(self, window, wanted)
        return (
            None if taken is None else TakeResult([taken] if taken.parts else [], [], window.sent_at, window)
        )

    def _take_among_cancelled(self, wanted: int, *, is_flowing: bool) -> TakeResult | None:
        """Take, again where a cancellation moved the fence meanwhile, and past what is for nobody."""
        dead: list[Taken] = []
        result: TakeResult | None = None
        for _ in range(TAKE_ATTEMPTS):
            before = self.head.cursor
            taken = self._take(wanted, is_flowing=is_flowing)
            if taken is None:
                # Where nobody else took, nobody else owns it: a cancellation takes nothing.
                if self.look() and self.head.cursor == before and not self.progress.window:
                    continue
                return result if dead else None  # the next take finds out; what is leased is to be ended
            dead += taken.dead
            result = replace(taken, dead=dead)
            is_stuck = self.head.cursor == before and not taken.dead
            if taken.runs or self.window or is_stuck or not wanted:
                return result
            if self.head.cursor < self.horizon.until and not upkeep.step_over(self):
                return result if dead else None
        return result

    def _take(self, wanted: int, *, is_flowing: bool) -> TakeResult | None:
        try:
            head, again, fresh = plan_take(self, self.horizon, wanted)
        except DecodeError:
            if self._is_lost():
                return None
            raise
        plans = self.portions.cut(again + fresh) if self.portions else again + fresh
        if not plans and head.cursor == self.head.cursor:
            return self._find_nothing(head, wanted)
        is_all_fresh = not again and not any(plan.taken.run.is_burial for plan in plans)
        if is_flowing and plans and is_all_fresh and window_steps.may_begin(self):
            return self._begin_window(wanted)
        self.reader.read_on(head.cursor, min(wanted, head.last - head.cursor))
        sent_at = self.clock.latest()
        changes = [change for plan in plans for change in plan.changes]
        marks = [mark for plan in plans for mark in plan.marks]
        if not self.advance(head, changes, marks):
            return None
        if self.portions:
            self.portions.use()
        self.progress.note_marks(marks)
        for plan in plans:
            # When the lease began is the database's to know; an estimate serves for when to look again.
            self.progress.note_run(replace(plan.taken.run, leased_at_ms=self.estimate_now_ms()))
            if plan.rest:
                self.progress.note_run(plan.rest)
        runs = [plan.taken for plan in plans if not plan.taken.run.is_burial]
        dead = [plan.taken for plan in plans if plan.taken.run.is_burial]
        return TakeResult(runs, dead, sent_at)

    def _find_nothing(self, head: Head, wanted: int) -> TakeResult | None:
        """Answer a take for which nothing was found; raise where that is damage."""
        is_there = head.is_decided and not self.is_exhausted and head.cursor < self.horizon.until
        if wanted > 0 and is_there and not self.horizon.is_in_sight:
            # This read began after the end was known, and what is up to there was acknowledged before.
            if self._is_lost():
                return None
            raise self._next_is_gone()
        return TakeResult([], [], self.clock.latest())

    def _begin_window(self, wanted: int) -> TakeResult | None:
        result = None
        seen_op = self.head.op
        if window_steps.begin(self) and self.window:
            result = self._take_from_window(self.window, wanted, is_flowing=False)
        elif not self.look() or self.head.op != seen_op:
            return None  # it has another owner; with the same op it was sealed a moment ago
        return result or TakeResult([], [], self.clock.latest())

    def bury(self, taken: Taken) -> int:
        """Bury or drop a run of which nothing is handed out; return how many messages that were."""
        if taken.run.is_expiry:
            self.progress.note_marks(drop(self._context, self.entry, taken))
            return taken.count
        if self.is_outline:
            batches = BatchReader(self.storage, self.pipe).read_run(taken.run, taken.run.last)
            living = Ranges((part.first, part.last) for part in taken.parts)
            kept = [batch.part(*each) for batch in batches for each in living.within(batch.first, batch.last)]
            taken = replace(taken, parts=tuple(kept))
        marks = bury(self._context, self.entry, taken.run, taken.messages)
        self.progress.note_marks(marks)
        return taken.count

    def _next_is_gone(self) -> DecodeError:
        first, last = self.head.cursor + 1, self.head.last
        return DecodeError(
            f"pipe {self.pipe}: messages {first} to {last} wait, and the batch with message {first} is gone; "
            "a purge steps over them"
        )

    def _is_lost(self) -> bool:
        """Tell whether the pipe was cleared away, or has another owner now."""
        state = self.storage.load_pipe(self.pipe)
        return state is None or state.head.op != self.head.op
