"""Wakes readers that sleep when something was published.

Owns who hears of it: the readers of a topic stand in a line of hungry poppers under a name that no queue has.
It only spares time: who hears nothing looks by itself. What must not break: no publish waits for it.
"""

import threading
from collections.abc import Callable

from cassq.coordination.port import Coordinator
from cassq.errors import AccessDeniedError, UnavailableError
from cassq.popping.arrival_rate import ArrivalRate
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.clock import Clock

#: After so long without a publish nobody relies on what was heard of sleeping readers before.
QUIET_S = 10.0

#: How often who hears nothing looks: first, and at last.
POLL_S = 0.25
POLL_MAX_S = 2.0


class Bell:
    """The bell of one topic in one process, which is announced once for all that sleep here.

    Args:
        name: what the process is announced as.
    """

    def __init__(self, coordinator: Coordinator, topic: str, clock: Clock, name: str) -> None:
        self._coordinator = coordinator
        self._line = f"{topic}~"
        self._clock = clock
        self._name = name
        self._beside = BackgroundThread(f"cassq-bell-{topic}")
        self._sleepers: dict[str, Callable[[], None]] = {}
        self._is_announced = False
        self._is_ringing = False
        self._rung_at = float("-inf")

    def ring(self) -> None:
        """Wake all that sleep: those of this process at once, the others soon, on a thread of its own."""
        self._wake_own()
        now = self._clock.now()
        was_quiet, self._rung_at = now - self._rung_at > QUIET_S, now
        if self._is_ringing or not (was_quiet or self._coordinator.hungry(self._line, self._name)):
            return
        self._is_ringing = True
        self._beside.submit(self._wake_others)

    def _wake_others(self) -> None:
        self._is_ringing = False  # who publishes from now on rings again
        self._coordinator.wake(self._line, self._coordinator.hungry(self._line, self._name), self._name)

    def _wake_own(self) -> None:
        for sleeper in list(self._sleepers):
            if wake := self._sleepers.pop(sleeper, None):
                wake()

    def _hear(self) -> None:
        self._is_announced = False
        self._wake_own()

    def listen(self, sleeper: str, wake: Callable[[], None]) -> bool:
        """Have `wake` called once, at the next publish; look once more after this call.

        Returns: whether it will be; while the coordination service is out of reach only for what this process
            publishes itself.
        """
        self._sleepers[sleeper] = wake
        if not self._is_announced:
            self._is_announced = True
            try:
                self._coordinator.announce_hunger(self._line, self._name, self._hear)
            except (UnavailableError, AccessDeniedError):
                self._is_announced = False
        return self._is_announced

    def unlisten(self, sleeper: str) -> None:
        """Hear nothing any more."""
        self._sleepers.pop(sleeper, None)

    def close(self) -> None:
        """Hear nothing, and end the thread."""
        self._coordinator.withdraw_hunger(self._line, self._name)
        self._beside.shutdown()


class Listener:
    """One reader, or one member of a group, that sleeps until something is published.

    In a fast flow it announces nothing: what comes next is there before anybody could wake it.

    Attributes:
        name: what it is announced as.
        is_closed: whether it sleeps no more.
    """

    def __init__(self, bell: Bell, name: str, clock: Clock) -> None:
        self.name = name
        self.is_closed = False
        self._bell = bell
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._is_announced = False
        self._is_stirred = False
        self._pace = ArrivalRate()

    def note_found(self, count: int) -> None:
        """Note that a look found so many messages."""
        self._pace.note_found(count, self._clock.now())

    def sleep(self, seconds: float, look: Callable[[], bool]) -> None:
        """Wait until something is published, or `stir` is called, or so long.

        Args:
            look: looks once more, where nobody would have heard of what came before, and tells whether there
                was something.
        """
        with self._changed:
            self._is_stirred = False
        pause_s = self._pace.next_look_s(self._clock.now())
        if pause_s is None and not self._is_announced:
            self._is_announced = True
            if not self._bell.listen(self.name, self._hear):
                self._is_announced = False
            elif look():
                return
        with self._changed:
            if not (self._is_stirred or self.is_closed):
                self._clock.wait(self._changed, seconds if pause_s is None else min(pause_s, seconds))

    def _hear(self) -> None:
        self._is_announced = False
        self.stir()

    def stir(self) -> None:
        """End a sleep."""
        with self._changed:
            self._is_stirred = True
            self._changed.notify_all()

    def close(self) -> None:
        """Sleep no more."""
        self.is_closed = True
        self.stir()
        self._bell.unlisten(self.name)
