"""A pipe as people see it, who neither own it nor change it.

Owns the two readings that everybody shares who only looks: how much was pushed, and what became of it while
a window is out.
"""

from uuid import UUID

from cassq.model.pipe import Head, PipeState
from cassq.storage.port import BatchQuery, Storage


def find_pushed(storage: Storage, pipe: UUID, head: Head) -> int:
    """Return how many messages were pushed into a pipe: `last` once it is decided, before by a read."""
    if head.is_decided:
        return head.last
    newest = storage.read_batches(pipe, BatchQuery(is_newest_first=True, is_outline=True))
    return newest[0].last if newest else 0


def load_seen(storage: Storage, pipe: UUID) -> PipeState | None:
    """Load a pipe; of a window everything that was pushed counts as handed out. None: it is gone."""
    state = storage.load_pipe(pipe)
    if state is None or state.window is None:
        return state
    return state.seen_at(find_pushed(storage, pipe, state.head))
