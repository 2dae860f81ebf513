"""What keeps many poppers of one process out of each other's way.

Owns two limits. Of the poppers of one queue few take at the same time: threads share one interpreter, and
more of them at work only wait for each other. And of queues at rest few are looked at: what is pushed wakes
who waits for it; looks besides are for wake-ups that got lost and for what dead processes left, and their
cost must not grow with the number of queues.
"""

import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cassq.clock import Clock

#: Looks of poppers that nobody woke, a second, over all queues of a process.
LOOKS_PER_S = 8.0

#: Attempts after a failure, a second, over all queues of a process.
RETRIES_PER_S = 100.0

#: Passes of reapers, samples and looks after bulk writes, a second each, over all queues of a process.
PASSES_PER_S = 4.0

#: So many poppers of one queue take at the same time: while one waits for the database, others work.
TAKERS_MAX = 4

#: A popper waits for its turn no longer than so, and looks after what it holds so often meanwhile.
TURN_MAX_S = 1.0
TURN_TICK_S = 0.1


class Turns:
    """Lets few of a process's poppers take from one queue at the same time.

    Only to spare work: where a turn does not come soon, the database hangs, say, a popper goes without.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._takers = 0

    @contextmanager
    def turn(self, meanwhile: Callable[[], bool]) -> Iterator[None]:
        """Wait for a turn, TURN_MAX_S at most, and take it; call `meanwhile` now and then.

        The wait ends, too, when `meanwhile` returns False.
        """
        deadline = self._clock.now() + TURN_MAX_S
        while not (has_begun := self._begin()) and self._clock.now() < deadline and meanwhile():
            pass
        if not has_begun:
            with self._changed:
                self._takers += 1
        try:
            yield
        finally:
            with self._changed:
                self._takers -= 1
                self._changed.notify()

    def _begin(self) -> bool:
        """Take a place; wait a moment where there is none, and tell whether there is one then."""
        with self._changed:
            if self._takers >= TAKERS_MAX:
                self._clock.wait(self._changed, TURN_TICK_S)
            if self._takers >= TAKERS_MAX:
                return False
            self._takers += 1
            return True


class Crowd:
    """Counts the queues that a store pops from. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues = 0

    def enter(self) -> None:
        """Count one queue more."""
        with self._lock:
            self._queues += 1

    def leave(self) -> None:
        """Count one queue less."""
        with self._lock:
            self._queues -= 1

    def spread(self, seconds: float, per_s: float, who: str) -> float:
        """Return how long one of the queues shall wait so that all together do something so often a second.

        Args:
            seconds: how long it waits where there are few queues.
            per_s: LOOKS_PER_S, RETRIES_PER_S or PASSES_PER_S.
            who: waits a little longer or shorter than the others, always the same, so that those who began
                together do not go on together.
        """
        own = 0.75 + 0.5 * zlib.crc32(who.encode()) / 2**32
        return max(seconds, own * self._queues / per_s)
