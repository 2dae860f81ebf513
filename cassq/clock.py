"""The only reader of time.

Owns the two things cassq may know of time: how much of it passes on this machine, and how to wait for
some of it. It refuses to tell the time of day: no rule of the protocol may compare two machines' clocks.
"""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Reads elapsed time and waits; the simulator puts a virtual one in its place."""

    def now(self) -> float:
        """Return seconds since an arbitrary point, counting time that the machine was suspended.

        Never goes back. Comparable between processes of one machine until it restarts, never between
        machines.
        """
        ...

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on `condition`, which the caller holds, until notified or `seconds` have passed.

        May return early; callers look at what they wait for again.
        """
        ...


# Linux keeps counting through a suspended laptop or a paused virtual machine on this clock only; a
# lease that slept must have ended.
_SOURCE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Return CLOCK_BOOTTIME in seconds (CLOCK_MONOTONIC where there is none)."""
        return time.clock_gettime(_SOURCE)

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on the condition variable itself."""
        condition.wait(seconds)
