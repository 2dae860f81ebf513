"""What keeps many queues of one process cheap.

Owns one limit: of queues at rest few are looked at. What is pushed wakes who waits for it; looks besides are
for wake-ups that got lost and for what dead processes left, and their cost must not grow with the number of
queues.
"""

import threading
import zlib

#: Looks of poppers that nobody woke, a second, over all queues of a process.
LOOKS_PER_S = 5.0

#: Attempts after a failure, a second, over all queues of a process.
RETRIES_PER_S = 100.0

#: Passes of reapers, samples and looks after bulk writes, a second each, over all queues of a process.
PASSES_PER_S = 2.0


class PollSpread:
    """Counts the queues that a store pops from. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
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
