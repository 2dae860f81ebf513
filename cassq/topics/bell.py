"""Wakes readers that sleep when something was published.

Owns who hears of it: the readers of a topic stand in a line of hungry poppers under a name that no queue has.
It only spares time: who hears nothing looks by itself. What must not break: no publish waits
for it.
"""

from collections.abc import Callable
from contextlib import suppress

from cassq.coordination.port import Coordinator
from cassq.errors import AccessDeniedError, UnavailableError
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.clock import Clock

#: After so long without a publish nobody relies on what was heard of sleeping readers before.
QUIET_S = 10.0


class Bell:
    """The bell of one topic."""

    def __init__(self, coordinator: Coordinator, topic: str, clock: Clock) -> None:
        self._coordinator = coordinator
        self._line = f"{topic}~"
        self._clock = clock
        self._beside = BackgroundThread(f"cassq-bell-{topic}")
        self._is_ringing = False
        self._rung_at = float("-inf")

    def ring(self) -> None:
        """Wake all that sleep, soon, on a thread of its own."""
        now = self._clock.now()
        was_quiet, self._rung_at = now - self._rung_at > QUIET_S, now
        if self._is_ringing or not (was_quiet or self._coordinator.hungry(self._line)):
            return
        self._is_ringing = True
        self._beside.submit(self._wake)

    def _wake(self) -> None:
        self._is_ringing = False  # who publishes from now on rings again
        self._coordinator.wake(self._line, self._coordinator.hungry(self._line))

    def listen(self, reader: str, wake: Callable[[], None]) -> None:
        """Have `wake` called once, at the next publish; look once more after this call."""
        with suppress(UnavailableError, AccessDeniedError):
            self._coordinator.announce_hunger(self._line, reader, wake)

    def unlisten(self, reader: str) -> None:
        """Hear nothing any more."""
        self._coordinator.withdraw_hunger(self._line, reader)

    def close(self) -> None:
        """End the thread."""
        self._beside.shutdown()
