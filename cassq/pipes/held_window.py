"""A window in a popper's hands: numbers of a pipe that are not pushed yet, leased ahead.

Owns what the fetch thread and the consumers of one window tell each other: that it should end, that it
has, and where. What must not break: where a window ended is known to its consumers only once that was
applied, because everything else they do to their messages rests on the row as it stands.
"""

import threading
from collections.abc import Callable
from enum import Enum

from cassq.model.pipe import Run
from cassq.runtime.clock import Clock

#: Who waits for the end of a window looks so often whether it ended, if nobody tells.
LOOK_S = 0.1


class WindowState(Enum):
    """What became of a window."""

    OUT = "out"
    ENDED = "ended"
    #: Another owner ended it, or may have, or nobody knows: its messages are leased, and no more is known.
    LOST = "lost"


class HeldWindow:
    """One window, from before it was sent until it has ended.

    Args:
        run: the run as it was written.
        sent_at: the clock's latest reading from before it was sent; the window and its lease count from here.
        on_end_asked: called when a consumer wants it to end, from the consumer's thread.

    Attributes:
        handed_out: how many messages of it were handed out.
        reached: the last of these.
    """

    def __init__(self, run: Run, sent_at: float, on_end_asked: Callable[[], None]) -> None:
        self.run = run
        self.sent_at = sent_at
        self.handed_out = 0
        self.reached = run.first - 1
        self._on_end_asked = on_end_asked
        self._is_asked = False
        self._state = WindowState.OUT
        self._last = run.first - 1
        self._changed = threading.Condition()

    @property
    def ends_at(self) -> float:
        """The clock's latest reading from which on nothing of it is handed out."""
        return self.sent_at + self.run.window_ms / 1000

    @property
    def is_out(self) -> bool:
        """Whether it has not ended yet, as far as is known."""
        return self._state is WindowState.OUT

    @property
    def is_asked(self) -> bool:
        """Whether a consumer waits for it to end."""
        return self._is_asked

    def end(self, last: int) -> None:
        """Tell that it ended behind message `last`, and that this was applied."""
        self._become(WindowState.ENDED, last)

    def lose(self) -> None:
        """Tell that it is not known where it ended."""
        self._become(WindowState.LOST, self._last)

    def _become(self, state: WindowState, last: int) -> None:
        with self._changed:
            if self._state is WindowState.OUT:
                self._state, self._last = state, last
            self._changed.notify_all()

    def wait_end(self, clock: Clock, deadline: float) -> int | None:
        """Ask for its end and wait for that; return its last message, None when that is not known."""
        self._is_asked = True
        self._on_end_asked()  # also where somebody asked before, who may have been torn away in between
        with self._changed:
            # A call that interrupts this thread behind the look, and waits here too, takes the wake-up along.
            while self._state is WindowState.OUT and (left := deadline - clock.latest()) > 0:
                clock.wait(self._changed, min(left, LOOK_S))
            return self._last if self._state is WindowState.ENDED else None
