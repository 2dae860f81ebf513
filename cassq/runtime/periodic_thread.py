"""A thread that does small things again and again, each in its own time.

Owns the loop, so that what it calls is a plain `run_once` that can be tested without a thread. An error of
cassq's is logged and the loop goes on. It works for many: one that waits delays the others, so what has to be
in time has a thread of its own.
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
    """Runs steps one after the other, the one that is due first; there is a thread while there is a step."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._changed = threading.Condition()
        self._steps: list[PeriodicStep] = []
        self._thread: threading.Thread | None = None

    def repeat(self, what: str, run_once: Callable[[], object], seconds: float) -> "PeriodicStep":
        """Call `run_once` every `seconds` until the step is closed.

        Args:
            what: names the step in the log.
        """
        step = PeriodicStep(self, what, run_once, seconds, self._clock.now() + seconds)
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()  # where that fails the next one tries again
                self._thread = thread
            self._steps.append(step)
            self._changed.notify_all()
        return step

    def poke(self, step: "PeriodicStep", seconds: float) -> None:
        """See `PeriodicStep.poke`."""
        due_at = self._clock.now() + seconds
        with self._changed:
            if due_at < step.due_at:
                step.due_at = due_at
                self._changed.notify_all()

    def end(self, step: "PeriodicStep") -> None:
        """See `PeriodicStep.close`."""
        step.deadline.bring_forward(self._clock.now() + CLOSING_S)
        with self._changed:
            if step in self._steps:
                self._steps.remove(step)
            self._changed.notify_all()
            thread = self._thread
            if thread is None or thread is threading.current_thread():
                return
            while step.is_running or not (self._steps or self._thread is None):
                self._clock.wait(self._changed, None)
            has_ended = self._thread is not thread
        if has_ended:
            thread.join()

    def _run(self) -> None:
        while step := self._wait_for_one():
            try:
                _take_turn(step)
            except BaseException:
                self._thread = None  # it ends here; whoever comes next starts another one
                raise
            finally:
                with self._changed:
                    # A poke meanwhile stands.
                    step.due_at = min(step.due_at, self._clock.now() + step.seconds)
                    step.is_running = False
                    self._changed.notify_all()

    def _wait_for_one(self) -> "PeriodicStep | None":
        """Wait until a step is due and return it; None, and the thread is to end, when there is none."""
        with self._changed:
            while self._steps:
                step = min(self._steps, key=lambda each: each.due_at)
                left = step.due_at - self._clock.now()
                if left <= 0:
                    step.is_running, step.due_at = True, float("inf")
                    return step
                self._clock.wait(self._changed, left)
            self._thread = None
            self._changed.notify_all()
            return None


class PeriodicStep:
    """One thing that is done again and again. Made by `PeriodicThread.repeat`.

    Attributes:
        seconds: between two turns; may be changed at any time and counts from the next turn on.
    """

    def __init__(
        self, thread: PeriodicThread, what: str, run_once: Callable[[], object], seconds: float, due_at: float
    ) -> None:
        self.what = what
        self.run_once = run_once
        self.seconds = seconds
        self.due_at = due_at
        self.deadline = Deadline(float("inf"))
        self.is_running = False
        self._thread = thread

    def poke(self, seconds: float = 0.0) -> None:
        """Let the next turn come in so many seconds at the latest."""
        self._thread.poke(self, seconds)

    def close(self) -> None:
        """End after the turn under way, which waits for little from now on."""
        self._thread.end(self)


def _take_turn(step: PeriodicStep) -> None:
    try:
        with step.deadline:
            step.run_once()
    except CassqError as error:
        log_trouble(_log, error, "%s: %s", step.what, error)
    except Exception:
        _log.exception("%s: an error that nobody expected; it goes on", step.what)
