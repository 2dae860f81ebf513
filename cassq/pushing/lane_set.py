"""The lanes of one pusher's thread: one for each priority and type, since each has pipes of its own.

Refuses to know which requests go where. What must not break: a lane that is made after the pusher gave up
waiting does not wait either.
"""

import threading
from collections.abc import Callable

from cassq.model.label import UNLABELLED, Label
from cassq.pushing.lane import PAUSE_MAX_S, Lane
from cassq.runtime.clock import Clock
from cassq.runtime.deadline import Deadline

#: So long at most all of them seal what is too old, while others push.
TEND_S = 1.0

#: So long at most the last seals take; what cannot be sealed until then is the reaper's.
CLOSE_S = 10.0


class LaneSet:
    """Makes a lane when something is first pushed that no other one is for.

    Args:
        make: returns a new lane for the messages of a kind of pipes.
    """

    def __init__(self, make: Callable[[Label], Lane], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._lanes = {UNLABELLED: make(UNLABELLED)}
        self._lock = threading.Lock()  # `stop_waiting` comes from another thread
        self._has_given_up = False
        self._tend_at = 0.0

    def of(self, label: Label) -> Lane:
        """Return the lane of a kind of pipes."""
        lane = self._lanes.get(label)
        if lane is None:
            lane = self._make(label)
            with self._lock:
                self._lanes[label] = lane
                if self._has_given_up:
                    lane.stop_waiting()
        return lane

    def tend(self) -> float:
        """Seal what is too old in each; return seconds until it should be called again."""
        with Deadline(self._clock.now() + TEND_S):
            return min([lane.tend() for lane in self._lanes.values()])

    def tend_idle(self, now: float) -> None:
        """Seal what is too old, now and then, in those that are idle while one is at work."""
        if now >= self._tend_at and len(self._lanes) > 1:
            self.tend()
            self._tend_at = now + PAUSE_MAX_S

    def stop_waiting(self) -> None:
        """Let troubled lanes give up, and those that are made from here on."""
        with self._lock:
            self._has_given_up = True
            for lane in self._lanes.values():
                lane.stop_waiting()

    def close(self) -> None:
        """Seal what is open."""
        with Deadline(self._clock.now() + CLOSE_S):
            for lane in self._lanes.values():
                lane.close()
