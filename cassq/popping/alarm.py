"""What wakes the fetch thread, and why.

Owns the thread's waits, and what it is told in them: that something came, that others are hungry, that a
consumer cannot wait, that it is to end. Shares the buffer's lock, so that whoever hands over messages wakes
it in the same step. What must not break: what it is told while it does something else is still there when it
listens next.
"""

import threading
from collections.abc import Callable, Sized
from enum import Enum

from cassq.popping.timing import LINGER_S
from cassq.runtime.clock import Clock


class Heard(Enum):
    """Why the fetch thread stops listening."""

    NOTHING = "nothing"
    WOKEN = "woken"
    CROWDED = "crowded"
    ASKED = "asked"
    ALONE = "alone"
    CLOSING = "closing"


class Alarm:
    """Wakes the fetch thread.

    Args:
        lock: the buffer's.
        line: the consumers that wait.

    Attributes:
        next_at: returns the clock's reading from which something that is held is due.
        hand_out: hands that out; with the lock held.
        is_listening: whether the thread waits to be woken: then it has looked.
        is_look_asked: whether a consumer that cannot wait asked for a look.
        is_woken: whether somebody woke this popper.
        is_closing: whether the thread is to end.
        ring: wakes the thread; with the lock held.
    """

    def __init__(self, clock: Clock, lock: threading.RLock, line: Sized) -> None:
        self._clock = clock
        self._line = line
        self._lock = lock
        self._changed = threading.Condition(lock)  # only the fetch thread waits for it
        self._is_crowded = False
        self.is_listening = False
        self.is_look_asked = False
        self.is_woken = False
        self.is_closing = False
        self.ring: Callable[[], None] = self._changed.notify
        self.next_at: Callable[[], float] = lambda: float("inf")
        self.hand_out: Callable[[], None] = lambda: None

    @property
    def is_due(self) -> bool:
        """Whether the thread may not rest: it was woken, or is to end."""
        return self.is_closing or self.is_woken

    def rest(self, seconds: float) -> None:
        """Wait for a change, `seconds` at most, or until what is held is due; with the lock held."""
        next_at = self.next_at()
        if next_at == float("inf"):
            self._clock.wait(self._changed, seconds)
            return
        self._clock.wait(self._changed, max(0.0, min(seconds, next_at - self._clock.now())))
        self.hand_out()

    def pause(self, seconds: float) -> None:
        """Wait after a failure; only closing, or a consumer that cannot wait, ends it early."""
        deadline = self._clock.now() + seconds
        with self._lock:
            while not (self.is_closing or self.is_look_asked):
                left = deadline - self._clock.now()
                if left <= 0:
                    return
                self.rest(left)

    def listen(self, seconds: float) -> Heard:
        """Wait, while consumers wait, for somebody to wake this popper or ask it to look."""
        deadline = self._clock.now() + seconds
        with self._lock:
            self.is_listening = True
            try:
                while (heard := self._heard(deadline)) is None:
                    was_alone = not self._line
                    left = deadline - self._clock.now()
                    self.rest(min(left, LINGER_S) if was_alone else left)
                    if was_alone and not self._line and self._heard(deadline) is None:
                        return Heard.ALONE
                return heard
            finally:
                self.is_listening = False

    def _heard(self, deadline: float) -> Heard | None:
        if self.is_closing:
            return Heard.CLOSING
        if self.is_woken:
            return Heard.WOKEN
        if self._is_crowded:
            self._is_crowded = False
            return Heard.CROWDED
        if self.is_look_asked:
            return Heard.ASKED
        return Heard.NOTHING if self._clock.now() >= deadline else None

    def wake(self) -> None:
        """Hear that there may be something to take."""
        with self._lock:
            self.is_woken = True
            self.ring()

    def ask(self) -> None:
        """Hear that a look is wanted, by somebody in this process."""
        with self._lock:
            self.is_look_asked = True
            self.ring()

    def take_woken(self) -> bool:
        """Tell whether somebody woke this popper since the last call."""
        with self._lock:
            was_woken, self.is_woken = self.is_woken, False
            return was_woken

    def crowd(self) -> None:
        """Hear that other poppers are hungry too."""
        with self._lock:
            self._is_crowded = True
            self.ring()

    def close(self) -> None:
        """Let the fetch thread end; with the lock held."""
        self.is_closing = True
        self.ring()
