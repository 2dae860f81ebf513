"""The claim of a run reader on its name.

Owns how long one waits for a name that somebody else has, and what is said then. What must not break: at most
one process at a time reads under a name, as far as the coordination service tells.
"""

from math import inf
from uuid import UUID, uuid5

from cassq.catalog.queue_context import QueueContext
from cassq.errors import InvalidOptionError
from cassq.runtime.clock import rest
from cassq.runtime.fork_guard import may_run_here, process_name

#: How long a reader waits for the claim on its name: longer than a dead process keeps its session.
NAME_PATIENCE_S = 60.0

#: The same where the holder is a process of this machine that still runs: it may be about to end.
NEIGHBOUR_PATIENCE_S = 15.0

#: It asks again after so long.
ASK_S = 0.25

_NAMES = UUID("6e4a7f0c-0d0f-4c3b-9b59-2f6f6d1f5a11")


class ReaderClaim:
    """One reader's claim on its name.

    Args:
        name: the reader's, the same after every restart.
        holder: who claims it.

    Attributes:
        place: what is claimed, as a pipe is.
    """

    def __init__(self, context: QueueContext, name: str, holder: str) -> None:
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._clock = context.clock
        self._name = name
        self._holder = holder
        self.place = uuid5(_NAMES, name)

    def is_held(self) -> bool:
        """Tell whether it still stands, as far as its session tells."""
        return self._coordinator.is_held(self._queue, self.place, self._holder)

    def take(self, patience_s: float = inf) -> None:
        """Claim the name, and wait for it where somebody has it.

        Args:
            patience_s: for how long at most.

        Raises: InvalidOptionError: another process reads under it.
        """
        begun = self._clock.now()
        while not self._coordinator.claim(self._queue, self.place, self._holder):
            other = self._coordinator.holders(self._queue).get(self.place, "")
            longest = NEIGHBOUR_PATIENCE_S if may_run_here(other) else inf
            if self._clock.now() - begun >= min(patience_s, NAME_PATIENCE_S, longest):
                by = "this process" if other.startswith(f"{process_name()}-") else "another process"
                raise InvalidOptionError(
                    f"queue {self._queue!r} is read under the name {self._name!r} by {by}"
                    f"{f' ({other})' if other else ''}: stop that one, or read under a name of your own"
                )
            rest(self._clock, ASK_S)

    def release(self) -> None:
        """Give it up."""
        self._coordinator.release(self._queue, self.place, self._holder)
