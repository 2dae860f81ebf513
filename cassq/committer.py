"""Commits that go out together.

Owns the few milliseconds between `commit()` and the mark, for poppers that choose `commit="grouped"`. The
price is told there: a crash, or a mark that comes too late, delivers those messages again.
"""

import logging
import threading
from collections.abc import Sequence

from cassq.clock import Clock
from cassq.delivery import Delivery, DirectCommitter
from cassq.errors import DeliveryExpiredError
from cassq.process import Birthplace

_log = logging.getLogger("cassq.popper")

#: Commits wait at most so long for company.
GROUP_S = 0.005


class GroupedCommitter:
    """Collects commits and writes them every few milliseconds, neighbours joined into one mark."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._birthplace = Birthplace()
        self._direct = DirectCommitter()
        self._changed = threading.Condition()
        self._waiting: list[Delivery] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="cassq-commit", daemon=True)
        self._thread.start()

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """Take deliveries over; they are committed within a moment.

        Raises:
            DeliveryExpiredError: the lease of one has ended already; it is delivered again.
        """
        self._birthplace.check("the popper")
        expired = [each for each in deliveries if not each.run.is_live]
        with self._changed:
            is_first = not self._waiting
            self._waiting.extend(each for each in deliveries if each not in expired)
            if is_first or self._is_closed:
                self._changed.notify_all()
            is_closed = self._is_closed
        if is_closed:
            self.flush()
        if expired:
            raise DeliveryExpiredError(f"the lease of {expired[0]!r} has ended: it is delivered again")

    def flush(self) -> None:
        """Write what waits; what fails is logged and comes again."""
        with self._changed:
            group, self._waiting = self._waiting, []
        if not group:
            return
        try:
            self._direct.commit(group)
        except Exception as error:  # the next group must not be lost with this one
            _log.warning(
                "a group of %d commits failed in part; those are delivered again: %s", len(group), error
            )

    def close(self) -> None:
        """Write what waits and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        self.flush()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._clock.wait(self._changed, None)
                if self._is_closed:
                    return
                self._clock.wait(self._changed, GROUP_S)
            self.flush()
