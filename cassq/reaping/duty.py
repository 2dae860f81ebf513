"""One kind of work that is done for a queue again and again, and how often.

Owns its pace: less and less often while it finds nothing to do. Refuses to know what the work is. What must
not break: the duties of many queues at rest together do no more than a few passes a second.
"""

from collections.abc import Callable

from cassq.runtime.poll_spread import PASSES_PER_S, PollSpread

#: A pass begins with no other pipe after so long: other queues of the process wait for their turn.
PASS_MAX_S = 5.0


class Duty:
    """Work whose next pass is due at some time.

    Args:
        run_once: makes a pass; tells whether it found anything to do.
        pause_s: between two passes, in seconds.
        pause_max_s: between two passes that find nothing to do, in the end.

    Attributes:
        due_at: the clock's reading from which the next pass is due.
    """

    def __init__(
        self, run_once: Callable[[], bool], pause_s: float, pause_max_s: float, due_at: float = 0.0
    ) -> None:
        self.due_at = due_at
        self._run_once = run_once
        self._pause_s = self._pause_min_s = pause_s
        self._pause_max_s = pause_max_s

    def run_once(self, now: float, polls: PollSpread, queue: str) -> None:
        """Make a pass. One that fails leaves the duty due."""
        if self._run_once():
            self._pause_s = self._pause_min_s
        else:
            self._pause_s = min(2 * self._pause_s, self._pause_max_s)
        is_rested = self._pause_s == self._pause_max_s
        self.due_at = now + (polls.spread(self._pause_s, PASSES_PER_S, queue) if is_rested else self._pause_s)
