"""A thread that does one small thing again and again.

Owns the loop, so that what it calls is a plain `run_once` that can be tested without a thread. An error of
cassq's is logged and the loop goes on; it ends only when it is closed.
"""

import logging
import threading
from collections.abc import Callable

from cassq.errors import CassqError
from cassq.runtime.clock import Clock
from cassq.runtime.deadline import CLOSING_S, Deadline
from cassq.runtime.outage_log import log_trouble

_log = logging.getLogger("cassq.background")


class PeriodicThread:
    """Calls `run_once` every `seconds`, sooner when poked.

    Args:
        name: the thread's name.

    Attributes:
        seconds: between two turns; may be changed at any time and counts from the next turn on.
    """

    def __init__(self, name: str, run_once: Callable[[], object], seconds: float, clock: Clock) -> None:
        self._run_once = run_once
        self.seconds = seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._due_at = clock.now() + seconds
        self._is_closed = False
        self._deadline = Deadline(float("inf"))
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poke(self, seconds: float = 0.0) -> None:
        """Let the next turn come in so many seconds at the latest."""
        due_at = self._clock.now() + seconds
        with self._changed:
            if due_at < self._due_at:
                self._due_at = due_at
                self._changed.notify_all()

    def close(self) -> None:
        """End after the turn under way, which waits for little from now on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._deadline.bring_forward(self._clock.now() + CLOSING_S)
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and (left := self._due_at - self._clock.now()) > 0:
                    self._clock.wait(self._changed, left)
                if self._is_closed:
                    return
                self._due_at = float("inf")
            try:
                with self._deadline:
                    self._run_once()
            except CassqError as error:
                log_trouble(_log, error, "%s: %s", self._thread.name, error)
            except Exception:
                _log.exception("%s: an error that nobody expected; it goes on", self._thread.name)
            with self._changed:  # a poke during the turn stands
                self._due_at = min(self._due_at, self._clock.now() + self.seconds)
