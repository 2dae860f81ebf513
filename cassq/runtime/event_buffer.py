"""Events on their way to an observer.

Owns the thread that tells them, and what becomes of an observer that raises. Refuses to know what happened.
What must not break: a call that notes an event waits for nobody, and no error of an observer reaches it. So
events may be noted anywhere: with a lock held, in the middle of a write, by a signal handler, and in a forked
child, where nothing is told.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from cassq.runtime.background_thread import call_beside
from cassq.runtime.clock import Clock
from cassq.runtime.periodic_thread import PeriodicThread

_log = logging.getLogger("cassq.observer")

#: Events are told this often: each in its turn would cost the caller's thread more than the call.
TELL_S = 0.25

#: More do not wait, so that a slow observer cannot fill the memory.
EVENTS_MAX = 100_000


class EventBuffer:
    """The events of one store that its observer has not been told of.

    Args:
        listen: the observer's `note`.
        owner: stays while events are told: the store.
    """

    def __init__(self, listen: Callable[[Any], object], clock: Clock, owner: object) -> None:
        self._listen: Callable[[Any], object] | None = listen
        self._clock = clock
        self._owner = owner
        # Its appends are one step, so there is no lock that a signal, or a fork, could find taken.
        self._waiting: deque[object] = deque()
        self._has_left_out = False
        self._database_ahead_s: float | None = None
        self._step = PeriodicThread("cassq-observer", clock).repeat("the observer", self.tell, TELL_S)

    def note(self, event: object) -> None:
        """Have the observer told of an event, soon."""
        if len(self._waiting) < EVENTS_MAX:
            self._waiting.append(event)
        elif self._listen and not self._has_left_out:
            self._has_left_out = True
            _log.warning("the observer is slower than what happens: some events are not told")

    def hear(self, now_ms: int) -> None:
        """Hear what the database's clock showed just now."""
        self._database_ahead_s = now_ms / 1000 - self._clock.now()

    def age_of(self, then_ms: int) -> float | None:
        """Return the seconds since the database's clock showed this; None where nobody knows."""
        if self._database_ahead_s is None:
            return None
        return max(0.0, self._clock.now() + self._database_ahead_s - then_ms / 1000)

    def tell(self) -> None:
        """Tell what waits; an observer that raises is told nothing any more."""
        while self._waiting:
            event = self._waiting.popleft()
            if self._listen is None:
                continue
            try:
                self._listen(event)
            except BaseException:  # also sys.exit(), which would end a thread that others wait for
                self._listen = None
                _log.exception("the observer raised at %r, and is told nothing any more", event)

    def close(self) -> None:
        """Return once all that was noted before is told."""
        self._step.close()
        # What interrupts this thread is no error of the observer.
        call_beside("cassq-observer", self.tell)
