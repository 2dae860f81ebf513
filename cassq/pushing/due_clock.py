"""The database's clock, as late as it may be by now, for those who push what is due later.

Owns when it is read. What must not break: nothing is due before its delay has passed since the call, by the
database's clock, whatever the clock of this machine says.
"""

from datetime import timedelta

from cassq.catalog.queue_context import QueueContext
from cassq.errors import InvalidOptionError, OutcomeUnknownError, StorageUnavailableError
from cassq.model.arguments import to_seconds
from cassq.model.ids import new_pipe_id
from cassq.model.label import Label
from cassq.model.schedule import DRIFT, LEAD_MAX_S, class_of
from cassq.model.shelf import Shelf
from cassq.runtime.deadline import Deadline

#: A reading is used for so long.
READ_S = 10.0

_MILLISECOND = timedelta(milliseconds=1)
_FASTEST_MS = 1000 * (1 + DRIFT)


class DueClock:
    """The clock of one queue's database."""

    def __init__(self, context: QueueContext) -> None:
        self._storage = context.storage
        self._queue = context.queue
        self._clock = context.clock
        # What it showed, and this process's clock before it was asked: together, for other threads read them.
        self._reading = (0, float("-inf"))
        self._tried_at = float("-inf")

    def latest_ms(self) -> int:
        """Return what it shows by now at the most, in milliseconds since 1970; 0 where it was never read."""
        reading = self._reading
        return _at_ms(reading, self._clock.latest()) if reading[0] else 0

    @property
    def is_fresh(self) -> bool:
        """Whether it need not be read for a push; nor in an outage, a while after that was tried."""
        return self._clock.latest() - max(self._reading[1], self._tried_at) <= READ_S and self._reading[0] > 0

    def dated(self, label: Label, delay: timedelta | None, timeout: float | timedelta) -> Label:
        """Return a label with its due time, from its delay where it has one, and the class of that.

        Raises:
            StorageUnavailableError: the clock could not be read in time; nothing is pushed.
            InvalidOptionError: it is due later than is allowed.
        """
        reading = self._reading if self.is_fresh else self._read(timeout)
        now_ms = _at_ms(reading, self._clock.latest())
        due_ms = label.due_ms if delay is None else now_ms - (-delay // _MILLISECOND)
        lead_s = (due_ms - now_ms) / 1000
        if lead_s > LEAD_MAX_S:
            raise InvalidOptionError(
                f"it would be due in {lead_s / 86400:.0f} days, and {LEAD_MAX_S // 86400} are allowed: have "
                "what is due later pushed by a job of your own that runs once a year"
            )
        return Label(*label[:3], class_of(lead_s), due_ms)

    def _read(self, timeout: float | timedelta) -> tuple[int, float]:
        here = new_pipe_id()  # where nothing is
        self._tried_at = asked_at = self._clock.latest()
        try:
            with Deadline(self._clock.now() + to_seconds(timeout)):
                told_ms = self._storage.list_pipes(self._queue, here, until=here, shelf=Shelf.DUE).now_ms
        except (StorageUnavailableError, OutcomeUnknownError):
            if not self._reading[0]:
                raise
            return self._reading  # what was told before counts on
        self._reading = reading = told_ms, asked_at
        return reading


def _at_ms(reading: tuple[int, float], now: float) -> int:
    told_ms, asked_at = reading
    return told_ms + 2 + int((now - asked_at) * _FASTEST_MS)
