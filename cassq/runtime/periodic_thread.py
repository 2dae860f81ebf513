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
    """Runs tasks one after the other, the one that is due first; there is a thread while there is a task."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._changed = threading.Condition()
        self._tasks: list[PeriodicTask] = []
        self._thread: threading.Thread | None = None

    def repeat(self, what: str, run_once: Callable[[], object], seconds: float) -> "PeriodicTask":
        """Call `run_once` every `seconds` until the task is closed.

        Args:
            what: names the task in the log.
        """
        task = PeriodicTask(self, what, run_once, seconds, self._clock.now() + seconds)
        with self._changed:
            self._tasks.append(task)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return task

    def poke(self, task: "PeriodicTask", seconds: float) -> None:
        """See `PeriodicTask.poke`."""
        due_at = self._clock.now() + seconds
        with self._changed:
            if due_at < task.due_at:
                task.due_at = due_at
                self._changed.notify_all()

    def end(self, task: "PeriodicTask") -> None:
        """See `PeriodicTask.close`."""
        task.deadline.bring_forward(self._clock.now() + CLOSING_S)
        with self._changed:
            if task in self._tasks:
                self._tasks.remove(task)
            self._changed.notify_all()
            thread = self._thread
            if thread is None or thread is threading.current_thread():
                return
            while task.is_running or not (self._tasks or self._thread is None):
                self._clock.wait(self._changed, None)
            has_ended = self._thread is not thread
        if has_ended:
            thread.join()

    def _run(self) -> None:
        while task := self._wait_for_one():
            try:
                with task.deadline:
                    task.run_once()
            except CassqError as error:
                log_trouble(_log, error, "%s: %s", task.what, error)
            except Exception:
                _log.exception("%s: an error that nobody expected; it goes on", task.what)
            with self._changed:
                task.due_at = min(task.due_at, self._clock.now() + task.seconds)  # a poke meanwhile stands
                task.is_running = False
                self._changed.notify_all()

    def _wait_for_one(self) -> "PeriodicTask | None":
        """Wait until a task is due and return it; None, and the thread is to end, when there is none."""
        with self._changed:
            while self._tasks:
                task = min(self._tasks, key=lambda each: each.due_at)
                left = task.due_at - self._clock.now()
                if left <= 0:
                    task.is_running, task.due_at = True, float("inf")
                    return task
                self._clock.wait(self._changed, left)
            self._thread = None
            self._changed.notify_all()
            return None


class PeriodicTask:
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
