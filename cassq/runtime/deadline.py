"""Until when the caller of this thread waits, for whatever waits far below it.

Owns one deadline per thread. Refuses to wait, or to raise. What must not break: a deadline inside another one
never reaches beyond it, and none is left behind.

    lane                         port                  adapter
    | with Deadline(at): append ->|--------------------->| waits for the file, or an answer:
    |                             |                      | seconds_left(clock, its own patience)
"""

import threading
import weakref
from collections.abc import Callable

from cassq.runtime.clock import Clock

#: Once something is closed, its thread waits for its turn so much longer at most.
CLOSING_S = 0.5


class Deadline:
    """Waits inside `with Deadline(until)` end at `until`, a reading of the store's clock."""

    __slots__ = ("__weakref__", "_around", "_begin_until", "_until")

    def __init__(self, until: float) -> None:
        self._until = until
        self._begin_until = until
        self._around: Deadline | None = None

    def __enter__(self) -> None:
        self._around = _here.deadline()
        _here.deadline = weakref.ref(self)

    def __exit__(self, *_: object) -> None:
        _here.deadline = weakref.ref(self._around) if self._around else _none

    @property
    def until(self) -> float:
        """When waits end, those of the deadlines around it included."""
        return min(self._until, self._around.until) if self._around else self._until

    @property
    def begin_until(self) -> float:
        """When waits for a turn end, likewise."""
        return min(self._begin_until, self._around.begin_until) if self._around else self._begin_until

    def bring_forward(self, until: float) -> None:
        """End waits for a turn at `until` if they would end later, those under way too; from any thread.

        What was sent keeps its time: cut short, nobody would know what became of it.
        """
        self._begin_until = min(self._begin_until, until)


def _none() -> Deadline | None:
    return None


class _Here(threading.local):
    # Weak: Ctrl-C on the way into the block leaves nothing behind, as nobody holds the deadline then.
    deadline: Callable[[], Deadline | None] = staticmethod(_none)


_here = _Here()


def seconds_left(clock: Clock, most: float) -> float:
    """Return how long this thread may wait now: `most`, less where its deadline is nearer, 0 behind it."""
    deadline = _here.deadline()
    return max(0.0, min(most, deadline.until - clock.now())) if deadline else most


def seconds_to_begin(clock: Clock, most: float) -> float:
    """Return how long this thread may wait for its turn, before anything is sent; likewise."""
    deadline = _here.deadline()
    return max(0.0, min(most, deadline.begin_until - clock.now())) if deadline else most
