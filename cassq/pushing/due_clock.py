"""The database's clock, as late as it may be by now, for those who push what is due later.

Owns when it is read for a push. What must not break: nothing is due before its delay has passed since the
call, by the database's clock, whatever the clock of this machine says. So a delay is added to the most that
the database's clock may show, which `runtime.database_clock` tells.
"""

from datetime import timedelta

from cassq.catalog.queue_context import QueueContext
from cassq.errors import (
    InvalidOptionError,
    OutcomeUnknownError,
    QueueNotFoundError,
    StorageUnavailableError,
)
from cassq.model.arguments import to_seconds
from cassq.model.label import Label
from cassq.model.schedule import LEAD_MAX_S, class_of
from cassq.runtime.deadline import Deadline

#: A reading is used for so long.
READ_S = 10.0

#: Before the first push it is read so often at most, until an answer was quick: while a process starts they
#: are slow, and what an answer leaves open makes messages late.
READS_AT_FIRST = 3
QUICK_S = 0.005

#: Where the clock turns out to show less than it might have, by no more than this, due times wait until it
#: has caught up: so those of one delay stay in order, and nobody has to sort them.
BACK_MAX_MS = 1000

_MILLISECOND = timedelta(milliseconds=1)


class DueClock:
    """The clock of one queue's database."""

    def __init__(self, context: QueueContext) -> None:
        self._storage = context.storage
        self._queue = context.queue
        self._clock = context.clock
        self._tried_at = float("-inf")
        self._told_ms = 0

    def latest_ms(self) -> int:
        """Return what it shows by now at the most, in milliseconds since 1970; 0 where it was never read."""
        return self._clock.database_at_most_ms()

    @property
    def is_fresh(self) -> bool:
        """Whether it need not be read for a push; nor in an outage, a while after that was tried."""
        return self._clock.latest() - self._tried_at <= READ_S and self._told_ms > 0

    def dated(self, label: Label, delay: timedelta | None, timeout: float | timedelta) -> Label:
        """Return a label with its due time, from its delay where it has one, and the class of that.

        Raises:
            StorageUnavailableError: the clock could not be read in time; nothing is pushed.
            QueueNotFoundError: the queue is gone, and with it what tells the time.
            InvalidOptionError: it is due later than is allowed.
        """
        if not self.is_fresh:
            self._read(timeout)
        now_ms = self._clock.database_at_most_ms()
        if now_ms < self._told_ms < now_ms + BACK_MAX_MS:  # it is known better than at the call before
            now_ms = self._told_ms
        self._told_ms = now_ms
        due_ms = label.due_ms if delay is None else now_ms - (-delay // _MILLISECOND)
        lead_s = (due_ms - now_ms) / 1000
        if lead_s > LEAD_MAX_S:
            raise InvalidOptionError(
                f"it would be due in {lead_s / 86400:.0f} days, and {LEAD_MAX_S // 86400} are allowed: have "
                "what is due later pushed by a job of your own that runs once a year"
            )
        return Label(label[0], label[1], label[2], class_of(lead_s), due_ms)

    def _read(self, timeout: float | timedelta) -> None:
        """Have this process's clock hear an answer of the database's: of what costs one request."""
        reads = 1 if self._told_ms else READS_AT_FIRST
        try:
            with Deadline(self._clock.now() + to_seconds(timeout)):
                for _ in range(reads):
                    self._tried_at = self._clock.latest()
                    if self._storage.glance_queue(self._queue) is None:
                        raise QueueNotFoundError(f"queue {self._queue!r} is gone: nothing was pushed")
                    if self._clock.latest() - self._tried_at <= QUICK_S:
                        break
        except (StorageUnavailableError, OutcomeUnknownError):
            if not self.latest_ms():
                raise
            # Else what was told before counts on.
