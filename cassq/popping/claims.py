"""The pipes that one popper claims, and what it holds of each: the window, the run of that, the last look.

Owns when a pipe is let go, and that nothing of it is left behind then. Refuses to decide which pipe is
claimed, and to take. What must not break: before a pipe is let go its window is ended, or given up as lost.
"""

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError
from cassq.model.pipe import Mark, Phase, PipeEntry, Run, RunState
from cassq.model.take_plan import Taken
from cassq.model.uses import bits_of
from cassq.pipes import upkeep, window_steps
from cassq.pipes.held_run import HeldRun
from cassq.pipes.held_window import HeldWindow
from cassq.pipes.owned_pipe import OwnedPipe, TakeResult
from cassq.pipes.pipe_list import PipeList
from cassq.pipes.pipe_order import rank_of
from cassq.popping.pipe_backoff import PipeBackoff
from cassq.popping.timing import BUSY_S, COURTESY_S, LOOK_S, LOOK_SOON_S, REST_S, WINDOW_LOOK_S
from cassq.runtime.reentry import noted

_log = logging.getLogger("cassq.popper")


@dataclass(slots=True)
class Claimed:
    """A pipe this popper claims, when its head was last read, and the run of the window it has there."""

    owned: OwnedPipe
    looked_at: float
    window: HeldWindow | None = None
    window_run: HeldRun | None = None


class Claims:
    """The pipes of one queue that one popper claims, in the order in which it claimed them.

    Args:
        holder: the name of the claims.
        pipes: the queue's pipes.
        memory: hears why a pipe is let go.
        on_pipe_over: called with pipes that may retire.
    """

    def __init__(
        self,
        context: QueueContext,
        holder: str,
        pipes: PipeList,
        memory: PipeBackoff,
        on_pipe_over: Callable[[UUID], None],
    ) -> None:
        self._context = context
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._record = context.record
        self._clock = context.clock
        self._holder = holder
        self._pipes = pipes
        self._memory = memory
        self._on_pipe_over = on_pipe_over
        self._claimed: dict[UUID, Claimed] = {}

    def __contains__(self, pipe: UUID) -> bool:
        return pipe in self._claimed

    def __len__(self) -> int:
        return len(self._claimed)

    def __iter__(self) -> Iterator[Claimed]:
        return iter(list(self._claimed.values()))

    def get(self, pipe: UUID) -> Claimed | None:
        """Return a pipe that is claimed."""
        return self._claimed.get(pipe)

    def add(self, owned: OwnedPipe) -> Claimed | None:
        """Add a pipe whose claim was granted; None when all of it was handed out, and it was let go again."""
        claimed = self._claimed[owned.pipe] = Claimed(owned, owned.sent_at)
        self.settle_exhausted(claimed)
        return self._claimed.get(owned.pipe)

    def is_held(self, pipe: UUID) -> bool:
        """Tell whether a claim still stands, as far as its session tells."""
        return self._coordinator.is_held(self._queue, pipe, self._holder)

    def let_go(self, pipe: UUID, rest_s: float = 0.0) -> None:
        """End the window of a pipe, if any, and release it; leave it alone for so long."""
        claimed = self._claimed.pop(pipe, None)
        try:
            if claimed:
                self._end_window(claimed)
            self._memory.note_rest(pipe, rest_s)
        finally:
            self._coordinator.release(self._queue, pipe, self._holder)

    def let_all_go(self) -> None:
        """Let every pipe go."""
        with ExitStack() as letting_go:  # an error of one keeps no other
            for pipe in reversed(list(self._claimed)):
                letting_go.callback(self.let_go, pipe)

    def leave(self) -> None:
        """Let every pipe go but those of which all that is left comes due by and by."""
        with ExitStack() as letting_go:  # as above
            for claimed in self:
                if not _is_of_use_here(claimed.owned):
                    letting_go.callback(self.let_go, claimed.owned.pipe)

    def keep_only(self, listed: Container[UUID]) -> None:
        """Let go of what is not listed any more."""
        for pipe in [pipe for pipe in self._claimed if pipe not in listed]:
            self.let_go(pipe)

    @property
    def types(self) -> set[str]:
        """The types of the messages in the pipes."""
        return {claimed.owned.entry.type for claimed in self._claimed.values()}

    def leave_some(self, types: Container[str], *, is_full: bool) -> Counter[str]:
        """Let pipes go that may feed others.

        Args:
            types: that those take.
            is_full: this popper has enough, so that it leaves what it could take itself by and by.

        Returns: how many of each type are known to have messages.
        """
        spare = self._spare(types, is_full=is_full)
        for owned, _ in spare:
            self.let_go(owned.pipe, COURTESY_S)
        # What looked empty may have been pushed into since, for a popper that found it claimed: one read here
        # spares the others a claim, a load and a read for nothing.
        return Counter(owned.entry.type for owned, has_some in spare if has_some or owned.has_news())

    def _spare(self, types: Container[str], *, is_full: bool) -> list[tuple[OwnedPipe, bool]]:
        """Return the pipes that may feed other poppers, and whether each is known to have messages.

        Of several full pipes half are enough for the others; what is empty is of no use here.
        """
        meant = [claimed.owned for claimed in self if claimed.owned.entry.type in types]
        meant = [owned for owned in meant if is_full or not _is_of_use_here(owned)]
        full = [owned for owned in meant if owned.may_have_more]
        empty = [owned for owned in meant if owned not in full]
        return [(owned, False) for owned in empty] + [(owned, True) for owned in full[len(full) // 2 :]]

    def make_room(self, entry: PipeEntry) -> bool:
        """Let a pipe go that has nothing to take, or one of another priority that ranks behind `entry`."""
        empty = [each.owned.entry for each in self if not each.owned.may_have_more]
        if empty:
            self.let_go(min(empty, key=lambda each: each.priority).pipe, BUSY_S)
            return True
        rank = partial(rank_of, ageing=self._context.settings.ageing)
        others = [each.owned.entry for each in self if each.owned.entry.priority != entry.priority]
        behind = [each for each in others if rank(each) > rank(entry)]
        if behind:
            self.let_go(max(behind, key=rank).pipe)
        return bool(behind)

    def next_due(self) -> list[float]:
        """Return in how many seconds something of each pipe comes due, where something is out."""
        due = [claimed.owned.next_due() for claimed in self._claimed.values()]
        return [seconds for seconds in due if seconds is not None]

    def hold(self, claimed: Claimed, result: TakeResult, taken: Taken) -> HeldRun:
        """Return the run that a take brought; what comes of the same window again is the same run."""
        if result.window and result.window is claimed.window and claimed.window_run:
            claimed.window_run.grow(taken)
            return claimed.window_run
        entry = claimed.owned.entry
        ends_at = result.sent_at + taken.run.lease_ms / 1000
        held = HeldRun(
            self._context, entry, taken, ends_at, on_row_changed=partial(self._on_row_changed, entry)
        )
        if result.window:
            held.be_of(result.window)
            claimed.window, claimed.window_run = result.window, held
        return held

    def _on_row_changed(self, entry: PipeEntry, *notes: Mark | Run) -> None:
        """Tell the pipe of acknowledged marks or changed rows, and who waits of what is due again.

        Called from consumers' threads.
        """
        claimed = self._claimed.get(entry.pipe)
        if claimed:
            claimed.owned.note(*notes)
        back = [note for note in notes if isinstance(note, Run) and note.state is RunState.RETURNED]
        if back:
            self._memory.note_returned(entry.pipe)
        is_due = any(not run.not_before_ms for run in back)
        if not is_due:
            return
        with noted():  # a push asks who is hungry, too
            types = bits_of(self._context.settings, (entry.type,))
            if self._coordinator.hungry(self._queue, types=types):
                self._coordinator.wake(self._queue, 1, types=types)

    def tend(self) -> None:
        """End the windows whose consumers ask for it, and those whose time is over."""
        now = self._clock.latest()
        for claimed in self:
            window = claimed.owned.window
            if window and (window.is_asked or now >= window.ends_at) and not self._end_window(claimed):
                self.let_go(claimed.owned.pipe)

    def end_windows(self) -> None:
        """End every window, so that what was handed out of it can be extended and given back."""
        for claimed in self:
            if not self._end_window(claimed):
                self.let_go(claimed.owned.pipe)

    def _end_window(self, claimed: Claimed) -> bool:
        """End the window that is held, if any; False when that failed: the pipe is to be let go."""
        owned = claimed.owned
        try:
            return owned.window is None or window_steps.cut(owned)
        except CassqError as error:
            _log.info("queue %s: a window of pipe %s was not ended: %s", self._queue, owned.pipe, error)
        except Exception:  # whoever lets go of its pipes lets go of all of them, whatever happens
            _log.exception("queue %s: a window of pipe %s was not ended", self._queue, owned.pipe)
        return False

    def is_worth_a_look(self, claimed: Claimed, *, is_flowing: bool) -> bool:
        """Tell whether to read a pipe anew that gave nothing."""
        if claimed.owned.head.phase is Phase.OPEN and self._pipes.is_abandoned(claimed.owned.entry):
            return True  # it is to be sealed, and a reaper cannot while it is claimed
        since = self._clock.now() - claimed.looked_at
        due = claimed.owned.next_due()
        if claimed.owned.window and is_flowing:
            # A seal is noticed by the next renewal; what is news is a lease that ran out.
            return since >= (LOOK_S if due is not None and due <= 0 else WINDOW_LOOK_S)
        # Of a pipe whose every message was handed out only what comes back is news.
        may_be_sealed = not claimed.owned.is_exhausted and self._pipes.has_successor(claimed.owned.entry)
        is_soon = may_be_sealed or (due is not None and due <= 0)
        return since >= (LOOK_SOON_S if is_soon else LOOK_S)

    def look(self, claimed: Claimed) -> bool:
        """Read a pipe anew: was it sealed, did something come back, is its pusher gone?

        Returns: False where it was let go.
        """
        owned = claimed.owned
        claimed.looked_at = self._clock.now()
        is_there = owned.look()
        is_open = owned.head.phase is Phase.OPEN
        if is_there and self._pipes.is_abandoned(owned.entry, is_open=is_open):
            self._record.read()
            is_there = upkeep.seal(owned) and upkeep.drain(owned)
        if not is_there:
            self.let_go(owned.pipe)
        return is_there

    def settle_exhausted(self, claimed: Claimed) -> None:
        """Let a pipe go whose every message was handed out; the reaper retires it."""
        owned = claimed.owned
        if not owned.is_exhausted or owned.pipe not in self._claimed:
            return
        self._memory.note_exhausted(owned.pipe)
        if owned.is_over:
            self._on_pipe_over(owned.pipe)
            self.let_go(owned.pipe)
            self._memory.note_drained(owned.pipe, owned.sent_at, REST_S)
            return
        due = owned.next_due()
        if due is None or due > LOOK_SOON_S:
            # Somebody is working on the rest. It comes due when a lease ends, or sooner by a rollback.
            self.let_go(owned.pipe)
            self._memory.note_drained(owned.pipe, owned.sent_at, min(LOOK_S if due is None else due, LOOK_S))


def _is_of_use_here(owned: OwnedPipe) -> bool:
    """Tell whether what a pipe still has comes due by and by: to others it is of no more use.

    Each that claims it reads all rows of it. What may be pushed into is for whoever a push wakes.
    """
    return bool(owned.entry.due_class) and owned.head.phase is not Phase.OPEN and not owned.is_exhausted
