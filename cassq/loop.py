"""A thread that does one small thing again and again.

Owns the loop, so that what it calls is a plain `run_once` that can be tested without a thread. An error of
cassq's is logged and the loop goes on; it ends only when it is closed.
"""

import logging
import threading
from collections.abc import Callable

from cassq.clock import Clock
from cassq.errors import CassqError

_log = logging.getLogger("cassq")


class Loop:
    """Calls `run_once` every `seconds`, sooner when poked.

    Args:
        name: the thread's name.
    """

    def __init__(self, name: str, run_once: Callable[[], object], seconds: float, clock: Clock) -> None:
        self._run_once = run_once
        self._seconds = seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._is_poked = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Let the next turn come now."""
        with self._changed:
            self._is_poked = True
            self._changed.notify_all()

    def close(self) -> None:
        """End after the turn under way."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._is_poked and not self._is_closed:
                    self._clock.wait(self._changed, self._seconds)
                if self._is_closed:
                    return
                self._is_poked = False
            try:
                self._run_once()
            except CassqError as error:
                _log.warning("%s: %s", self._thread.name, error)
            except Exception:
                _log.exception("%s: an error that nobody expected; it goes on", self._thread.name)
