"""A pipe as people see it, who neither own it nor change it.

Owns the readings that everybody shares who only looks: how much was pushed, what became of it while a window
is out, and that what came back from its last attempt is dead, though nobody has written the letter yet.
"""

from typing import TypeGuard
from uuid import UUID

from cassq.limits import NO_LIMIT
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, Phase, PipeState, Run, RunState
from cassq.model.progress import Progress
from cassq.storage.forms import BatchQuery
from cassq.storage.port import PipeStorage


def find_newest(storage: PipeStorage, pipe: UUID, last: int = NO_LIMIT) -> Batch | None:
    """Return the newest batch that begins at number `last` or before, without bodies; None: there is none."""
    query = BatchQuery(last=last, is_newest_first=True, is_outline=True)
    return next(iter(storage.read_batches(pipe, query)), None)


def find_pushed(storage: PipeStorage, pipe: UUID, head: Head) -> int:
    """Return how many messages were pushed into a pipe: `last` once it is decided, before by a read."""
    if head.is_decided:
        return head.last
    newest = find_newest(storage, pipe)
    return newest.last if newest else 0


def load_seen(storage: PipeStorage, pipe: UUID) -> PipeState | None:
    """Load a pipe; of a window everything that was pushed counts as handed out. None: it is gone."""
    state = storage.load_pipe(pipe)
    if state is None or state.window is None:
        return state
    return state.seen_at(find_pushed(storage, pipe, state.head))


def is_standing(state: PipeState | None) -> TypeGuard[PipeState]:
    """Tell by a read of a pipe whether it is there: neither deleted nor retired."""
    return state is not None and state.head.phase is not Phase.RETIRED


def is_spent(run: Run, attempts_max: int) -> bool:
    """Tell whether a run came back from its last attempt: the next owner buries it, and nobody gets it."""
    return run.state is RunState.RETURNED and run.attempt >= attempts_max


def progress_seen(state: PipeState, attempts_max: int) -> Progress:
    """Return what became of a pipe's messages; what is to be buried or dropped has ended so."""
    progress = Progress(state)
    spent = [run for run in progress.runs.values() if run.is_burial or is_spent(run, attempts_max)]
    progress.note_marks(
        [
            Mark(*part, End.EXPIRED if run.is_expiry else End.DEAD)
            for run in spent
            for part in progress.left_of(run)
        ]
    )
    return progress
