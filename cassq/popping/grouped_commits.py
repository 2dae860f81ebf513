"""Commits that go out together.

Owns the few milliseconds between `commit()` and the mark, for poppers that choose `commit="grouped"`. The
price is told there: a crash, or a mark that comes too late, delivers those messages again. What must not
break: a run that cannot be written holds up no other one.
"""

import logging
import threading
from collections.abc import Sequence

from cassq.errors import CassqError, DeliveryExpiredError
from cassq.popping.commits import Commit, seconds_to_retry, try_each
from cassq.popping.delivery import Delivery, group_by_run
from cassq.popping.timing import GROUP_S
from cassq.runtime.clock import Clock
from cassq.runtime.fork_guard import ForkGuard
from cassq.runtime.reentry import alone

_log = logging.getLogger("cassq.popper")


class GroupedCommitter:
    """Collects commits and writes them every few milliseconds, neighbours joined into one mark."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._birthplace = ForkGuard()
        self._changed = threading.Condition()
        self._writing = threading.RLock()
        self._waiting: list[Delivery] = []
        self._commits: list[Commit] = []  # those to be tried again
        # How many are being written, and were: what is taken over is not counted, so that a commit that
        # interrupts another one of its thread is only one more in the list.
        self._in_write = 0
        self._written = 0
        self._is_hurried = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="cassq-commit", daemon=True)
        self._thread.start()

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """Take deliveries over; they are committed within a moment.

        Raises:
            DeliveryExpiredError: the lease of one has ended already; it is delivered again.
        """
        self._birthplace.check("the popper")
        ended = {run for run in {each.run for each in deliveries} if not run.still_runs()}
        expired = next((each for each in deliveries if each.run in ended), None)
        live = [each for each in deliveries if each.run not in ended] if ended else deliveries
        with self._changed:
            if not self._waiting:
                self._changed.notify_all()
            self._waiting.extend(live)
            is_closed = self._is_closed
        if is_closed:
            self._finish()
        if expired:
            raise DeliveryExpiredError(f"the lease of {expired!r} has ended: it is delivered again")

    def flush(self) -> None:
        """Return once all that was taken over before is written, or failed and was logged."""
        with self._changed:
            taken = self._written + self._in_write + len(self._waiting)
            self._is_hurried = True
            self._changed.notify_all()
            while self._written < taken and not self._is_closed:
                self._clock.wait(self._changed, None)
            is_closed = self._is_closed
        if is_closed:
            self._finish()

    def close(self) -> None:
        """Write what waits and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        self._finish()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._commits or self._is_closed):
                    self._clock.wait(self._changed, None)
                if self._is_closed:
                    return
                if not self._is_hurried:
                    self._rest()
            self._write()

    def _finish(self) -> None:
        while self._write():
            with self._changed:
                self._rest()

    def _rest(self) -> None:
        self._clock.wait(self._changed, max(GROUP_S, seconds_to_retry(self._commits)))

    def _write(self) -> bool:
        """Try once what waits and what was not acknowledged before; True when there is more to try."""
        # One writes at a time, so whoever finds nothing left has waited for what is on its way.
        with alone(self._writing, "a close or a flush"):
            with self._changed:
                group, self._waiting = self._waiting, []
                self._in_write += len(group)
                self._is_hurried = False
            left: list[Commit] = []
            try:
                commits = [Commit(run, parts) for run, parts in group_by_run(group).items()]
                left = try_each(self._commits + commits, _log_failure)
            except Exception:  # the next group must not be lost with this one
                _log.exception("an error that nobody expected; messages of this group come again")
            finally:
                with self._changed:
                    self._commits, in_write = left, sum(commit.count for commit in left)
                    self._written, self._in_write = self._written + self._in_write - in_write, in_write
                    self._changed.notify_all()
            return bool(left)


def _log_failure(commit: Commit, error: CassqError) -> None:
    _log.warning("%d commits failed; those messages are delivered again: %s", commit.count, error)
