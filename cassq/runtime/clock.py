"""The only reader of time.

Owns what cassq may know of time: how much of it passes on this machine, how much may have passed at most,
and how to wait for some of it. It refuses to tell the time of day: no rule of the protocol may compare two
machines' clocks. What must not break: a witness only ever makes `latest` run ahead, never fall behind.

A virtual machine that its host pauses does not see that time pass on any clock of elapsed time. Two witnesses
may tell: the time of day, which the host's tools set right after the pause, and the database's clock, which
comes with its answers. Either may also be set for other reasons, so what they say is only ever used where the
worst it can cost is a look at the database.

What the database's clock shows by now is told for due times alone, which are times of that clock; see
`runtime.database_clock`.
"""

import math
import os
import threading
import time
from typing import Protocol

from cassq.runtime.database_clock import Reading, sharper
from cassq.runtime.reentry import noted


class Clock(Protocol):
    """Reads elapsed time and waits; the simulator puts a virtual one in its place."""

    def now(self) -> float:
        """Return seconds since an arbitrary point, counting time that the machine was suspended.

        Never goes back. Comparable between processes of one machine until it restarts, never between
        machines. Others may be refused something by it: nothing that a witness says is in it.
        """
        ...

    def latest(self) -> float:
        """Return the most that `now` would show if no pause of the machine had been missed.

        For what must have ended here before it ends for others: a lease, a window, the age of a pipe. Never
        goes back, is never less than `now`, and is comparable only with other readings of itself.
        """
        ...

    def hear(self, told_s: float, asked_at: float, margin_s: float) -> None:
        """Hear what the database's clock showed in an answer.

        Args:
            told_s: its seconds since an arbitrary point.
            asked_at: a reading of `latest` from before the question was sent.
            margin_s: by how much the clocks of two nodes that answer may differ.
        """
        ...

    def database_at_most_ms(self) -> int:
        """Return what the database's clock shows by now at the most; 0 where it was never heard."""
        ...

    def until_shown(self, database_ms: int) -> float:
        """Return the reading of `now` from which on the database's clock shows that, for certain."""
        ...

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on `condition`, which the caller holds, until notified or `seconds` have passed.

        May return early, whether notified or not; callers look at what they wait for again.
        """
        ...


def rest(clock: Clock, seconds: float) -> None:
    """Wait about so long, where nobody has anything to tell meanwhile."""
    pause = threading.Condition()
    with pause:
        clock.wait(pause, seconds)


# Linux keeps counting through a suspended laptop on this clock only; a lease that slept must have ended.
_SOURCE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

#: By so much the time of day must move against elapsed time to count as set; less adds up until it does.
STEP_S = 0.01

#: Three readings that took longer than this say nothing: their thread lost its turn between them.
GLIMPSE_S = 0.001
GLIMPSES = 20


#: The main thread waits no longer at a time. A signal may come between its last instruction and the wait,
#: while it hands the interpreter to another thread: then it is heard only when the wait ends.
DEAF_S = 1.0


class SystemClock:
    """The machine's own clock. One for each database: `hear` compares with a single one."""

    _read_day = staticmethod(time.time)
    # Held for a few readings, seldom. A signal handler may come in between and ask again; it may not wait for
    # a thread that would wait for this one.
    _guard = threading.RLock()
    _ahead = 0.0
    #: The time of day less elapsed time. A clock that is slewed moves both.
    _drift = float("nan")
    #: How far the slowest node was ahead of this clock, at most; what was made of those that were further
    #: ahead, and how much of `_ahead` that is. A node whose clock is wrong is believed once.
    _lead = float("inf")
    _excess = 0.0
    _heard = 0.0
    #: The answer that tells the database's clock most closely.
    _reading: Reading | None = None

    def now(self) -> float:
        """Return CLOCK_BOOTTIME in seconds (CLOCK_MONOTONIC where there is none)."""
        return time.clock_gettime(_SOURCE)

    def latest(self) -> float:
        """Return `now` and every step forward that the time of day, or the database's clock, made."""
        now = self.now()
        if not -STEP_S < self._read_day() - now - self._drift < STEP_S:
            self._note_step()
        return now + self._ahead

    def _note_step(self) -> None:
        with noted(), self._guard:
            for _ in range(GLIMPSES):
                before, day, after = self.now(), self._read_day(), self.now()
                if after - before < GLIMPSE_S:
                    break
            else:
                return  # the next reading looks again
            step = day - after - self._drift
            if step >= STEP_S:
                self._ahead += step
            if not -STEP_S < step < STEP_S:
                self._drift = day - after

    def hear(self, told_s: float, asked_at: float, margin_s: float) -> None:
        """Compare how far the database's clock has come with how far this one has.

        The database's clock was read between question and answer. So it leads by no less than it does over
        the time of the answer, and by no more than over that of the question.
        """
        with noted(), self._guard:
            lead = told_s - (self.latest() - self._heard)
            # Which of the nodes were slow is not known: the margin once more, to be sure.
            excess = lead - self._lead + margin_s
            if excess > 2 * margin_s and (news := excess - self._excess) > 0:
                self._excess = excess
                self._heard += news
                self._ahead += news
            lead_at_most = told_s - (asked_at - self._heard)
            if lead_at_most < self._lead:
                self._excess = max(0.0, self._excess - (self._lead - lead_at_most))
                self._lead = lead_at_most
            now = self.now()
            heard = Reading(round(told_s * 1000), asked_at, now)
            self._reading = sharper(self._reading, heard, now, self.latest())

    def database_at_most_ms(self) -> int:
        """Return the upper bound, rounded up."""
        reading = self._reading
        return math.ceil(reading.at_most_ms(self.latest())) if reading else 0

    def until_shown(self, database_ms: int) -> float:
        """Return when the lower bound is there; never, where nothing was heard."""
        reading = self._reading
        return reading.until_shown(database_ms) if reading else float("inf")

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Wait on the condition variable itself; in the main thread no more than a second.

        It returns then, and does not wait on: where the second ends as somebody notifies, the notification
        goes with the wait, and only who looks at what it waits for finds it.
        """
        if (seconds is None or seconds > DEAF_S) and threading.current_thread() is threading.main_thread():
            seconds = DEAF_S
        condition.wait(seconds)


def _renew_in_child() -> None:
    SystemClock._guard = threading.RLock()  # noqa: SLF001 - another thread of the parent may have held it


os.register_at_fork(after_in_child=_renew_in_child)
