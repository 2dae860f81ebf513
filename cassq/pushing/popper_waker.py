"""Wakes hungry poppers when something was pushed for them.

Owns how many are woken, and that nobody waits for it. Refuses to know messages: it hears how many of a type
became durable. What must not break: the next batch is not held up by a wake-up.
"""

import threading

from cassq.catalog.queue_context import QueueContext
from cassq.model.uses import bits_of
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.deadline import Deadline

#: After so long without a push nobody relies on what was heard of hungry poppers before; shorter than the
#: time for which a coordinator goes on listening for a pusher.
QUIET_S = 10.0

#: A push waits so long at most to hear who is hungry, where another process keeps the coordination file.
ASK_S = 0.05


class PopperWaker:
    """Wakes the poppers of one queue.

    Args:
        beside: what wakes them.
    """

    def __init__(self, context: QueueContext, beside: BackgroundThread) -> None:
        self._context = context
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._clock = context.clock
        self._beside = beside
        self._lock = threading.RLock()
        self._to_wake: dict[int, int] = {}
        self._pushed_at = float("-inf")

    def note_pushed(self, count: int, kind: str) -> None:
        """Wake as many hungry poppers as there are new messages of a type."""
        types = bits_of(self._context.settings, (kind,))
        now = self._clock.now()
        was_quiet, self._pushed_at = now - self._pushed_at > QUIET_S, now
        # After a quiet time, and at the first push, what is known of hungry poppers may be old.
        if not was_quiet and not self._has_hungry(types):
            return
        with self._lock:
            is_first = not self._to_wake
            self._to_wake[types] = self._to_wake.get(types, 0) + count
        if is_first:
            self._beside.submit(self._wake)

    def _has_hungry(self, types: int) -> bool:
        with Deadline(self._clock.now() + ASK_S):
            return self._coordinator.hungry(self._queue, types=types) > 0

    def _wake(self) -> None:
        with self._lock:
            to_wake, self._to_wake = self._to_wake, {}
        for types, count in to_wake.items():
            hungry = self._coordinator.hungry(self._queue, types=types)
            self._coordinator.wake(self._queue, min(count, max(1, hungry)), types=types)
