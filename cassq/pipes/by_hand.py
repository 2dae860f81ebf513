"""One pipe, for those who end or move single messages of it by hand, beside its owner.

Owns what stands in the way of that, and who has a message. Refuses to decide what becomes of it. What must
not break: what is in nobody's hands, and is to come again, is told so, and nothing else is.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, OutcomeUnknownError
from cassq.model.pipe import PipeEntry, Run, RunState
from cassq.model.progress import Progress
from cassq.model.shelf import Shelf
from cassq.pipes import upkeep, window_steps
from cassq.pipes.fenced_pipe import FencedPipe, Taker
from cassq.pipes.outside_view import find_pushed, is_spent
from cassq.runtime.clock import rest

#: How often a pipe is tried again while a popper takes from it.
ATTEMPTS_MAX = 50

#: The time between two looks whether a popper's window has ended.
PAUSE_S = 0.05


class ByHand:
    """The pipes of one queue, as who acts by hand meets them."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._storage = context.storage

    def load(self, entry: PipeEntry) -> FencedPipe | None:
        """Load a pipe; None: it is gone."""
        state = self._storage.load_pipe(entry.pipe)
        return FencedPipe(self._context, entry, state, Taker("by hand")) if state else None

    def targets_of(self, entry: PipeEntry) -> AbstractSet[UUID]:
        """Return the pipes that messages of a pipe were moved to, whatever this process has heard of."""
        state = self._storage.load_pipe(entry.pipe)
        return Progress(state).targets if state else frozenset()

    def end_if_over(self, entry: PipeEntry, end: Callable[[FencedPipe], object]) -> None:
        """Call `end` with a pipe of the scheduled list in which nothing is left: nobody looks there for long.

        What its caller asked for is done by then. Where this fails the pipe goes once it is near.
        """
        with suppress(CassqError):
            fenced = self.load(entry) if entry.shelf is Shelf.SCHEDULED else None
            if fenced and upkeep.step_over(fenced) and fenced.is_over:
                end(fenced)

    def make_way(self, fenced: FencedPipe, knocked: set[UUID]) -> int:
        """End a window, or return what has no holder any more; return how many attempts that was."""
        if fenced.progress.window:
            self.end_window(fenced, knocked)
            return 0
        upkeep.return_expired(fenced)
        return 1

    def end_window(self, fenced: FencedPipe, knocked: set[UUID]) -> None:
        """Bring the window that is out nearer to its end: its holder cuts it, or it runs out."""
        window = fenced.progress.window
        if window is None:
            return
        if window_steps.is_over(fenced):
            window_steps.take_over(fenced)
            return
        if window.lease_id not in knocked:
            knocked.add(window.lease_id)
            window_steps.knock(fenced)
        rest(self._context.clock, PAUSE_S)


def run_with(fenced: FencedPipe, seq: int) -> Run | None:
    """Return the run that message `seq` was handed out with last; None where it never was."""
    return next((run for run in fenced.progress.runs.values() if run.first <= seq <= run.last), None)


def is_idle(fenced: FencedPipe, run: Run) -> bool:
    """Tell whether a run that was handed out is in nobody's hands, and is to come again."""
    if run.is_burial or is_spent(run, fenced.attempts_max):
        return False
    return run.state is RunState.RETURNED or run in fenced.expired()


def is_pushed(fenced: FencedPipe, seq: int) -> bool:
    """Tell whether there is a message with this number."""
    return seq <= min(find_pushed(fenced.storage, fenced.pipe, fenced.head), fenced.head.last)


def busy(entry: PipeEntry) -> OutcomeUnknownError:
    """Return what is raised where a pipe was changed at each attempt."""
    return OutcomeUnknownError(
        f"pipe {entry.pipe} was taken from {ATTEMPTS_MAX} times meanwhile: pause the queue, then try again"
    )
