"""Patience with servers that have just started, or have just lost a peer, on a busy machine."""

import threading
from collections.abc import Callable
from typing import TypeVar

from cassq.errors import OutcomeUnknownError, UnavailableError
from cassq.runtime.clock import SystemClock

Answer = TypeVar("Answer")

#: A node that has not heard of a new table yet refuses at once: what counts is the time, not the attempts.
PATIENCE_S = 600.0
PAUSE_S = 0.5

#: What comes about by itself is looked for this often.
LOOK_S = 0.02


def patiently(do: Callable[[], Answer]) -> Answer:
    """Do what may be done twice, again while nobody answers."""
    clock, pause = SystemClock(), threading.Condition()
    end = clock.now() + PATIENCE_S
    while True:
        try:
            return do()
        except (UnavailableError, OutcomeUnknownError):
            if clock.now() > end:
                raise
        with pause:
            clock.wait(pause, PAUSE_S)


def until(holds: Callable[[], Answer]) -> Answer:
    """Return what `holds` returns once that is true; fail when it never is."""
    clock, pause = SystemClock(), threading.Condition()
    end = clock.now() + PATIENCE_S
    while not (found := holds()):
        assert clock.now() < end, f"after {PATIENCE_S:g} s it still is {found!r}"
        with pause:
            clock.wait(pause, LOOK_S)
    return found
