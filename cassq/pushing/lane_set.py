"""The lanes of one pusher's thread: one for each priority, since each has pipes of its own.

Refuses to know which requests go where. What must not break: a lane that is made after the pusher gave up
waiting does not wait either.
"""

import threading
from collections.abc import Callable

from cassq.pushing.lane import PAUSE_MAX_S, Lane


class LaneSet:
    """Makes a lane when its priority is first pushed with.

    Args:
        make: returns a new lane for a priority.
    """

    def __init__(self, make: Callable[[int], Lane]) -> None:
        self._make = make
        self._lanes = {0: make(0)}
        self._lock = threading.Lock()  # `stop_waiting` comes from another thread
        self._has_given_up = False
        self._tend_at = 0.0

    def of(self, priority: int) -> Lane:
        """Return the lane of a priority."""
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._make(priority)
            with self._lock:
                self._lanes[priority] = lane
                if self._has_given_up:
                    lane.stop_waiting()
        return lane

    def tend(self) -> float:
        """Seal what is too old in each; return seconds until it should be called again."""
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
        for lane in self._lanes.values():
            lane.close()
