"""Commits that go out together.

Owns the few milliseconds between `commit()` and the mark, for poppers that choose `commit="grouped"`. The
price is told there: a crash, or a mark that comes too late, delivers those messages again.
"""

import logging
import threading
from collections.abc import Sequence

from cassq.errors import DeliveryExpiredError
from cassq.popping.delivery import Delivery, DirectCommitter
from cassq.runtime.clock import Clock
from cassq.runtime.fork_guard import ForkGuard
from cassq.runtime.reentry import alone

_log = logging.getLogger("cassq.popper")

#: Commits wait at most so long for company.
GROUP_S = 0.005


class GroupedCommitter:
    """Collects commits and writes them every few milliseconds, neighbours joined into one mark."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._birthplace = ForkGuard()
        self._direct = DirectCommitter()
        self._changed = threading.Condition()
        self._writing = threading.RLock()
        self._waiting: list[Delivery] = []
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
            self._write()
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
            self._write()

    def close(self) -> None:
        """Write what waits and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._clock.wait(self._changed, None)
                if self._is_closed:
                    return
                if not self._is_hurried:
                    self._clock.wait(self._changed, GROUP_S)
            self._write()

    def _write(self) -> None:
        # One writes at a time, so whoever finds nothing left has waited for what is on its way.
        with alone(self._writing, "a close or a flush"):
            with self._changed:
                group, self._waiting = self._waiting, []
                self._in_write = len(group)
                self._is_hurried = False
            if not group:
                return
            try:
                self._direct.commit(group)
            except Exception as error:  # the next group must not be lost with this one
                _log.warning(
                    "a group of %d commits failed in part; those are delivered again: %s", len(group), error
                )
            finally:
                with self._changed:
                    self._written, self._in_write = self._written + len(group), 0
                    self._changed.notify_all()
