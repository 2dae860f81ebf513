"""What is done with a queue besides pushing and popping: it is looked at, and steered.

Owns that part of what users hold; decides nothing about messages itself. What must not break: a queue that is
closed, or was deleted, says so.
"""

import contextlib
from dataclasses import replace
from datetime import date, datetime, timedelta
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import AccessDeniedError, CoordinationUnavailableError
from cassq.model.arguments import check_count, to_day
from cassq.model.ids import MessageId, to_message_id
from cassq.model.message import Message
from cassq.model.queue_record import QueueState
from cassq.model.rollup import Rollup
from cassq.model.settings import QueueSettings
from cassq.observing.figures import PipeStats, QueueStats
from cassq.observing.inspection import Inspection, MessageStatus, RunStats
from cassq.observing.purging import Purging
from cassq.observing.statistics import Statistics
from cassq.pushing.pusher import PUSH_TIMEOUT
from cassq.reaping.reap_report import ReapReport
from cassq.reaping.rescheduling import Place, Rescheduling
from cassq.workers import Workers


class SteeredQueue:
    """A queue, for those who look at it and steer it.

    Attributes:
        name: its name.
        record: what is stored of it.
    """

    def __init__(self, context: QueueContext, statistics: Statistics, workers: Workers) -> None:
        self.name = context.queue
        self.record = context.record
        self._context = context
        self._workers = workers
        self._statistics = statistics
        self._inspection = Inspection(context)
        self._purging = Purging(context)
        self._rescheduling = Rescheduling(context)

    @property
    def settings(self) -> QueueSettings:
        """Its settings, as far as this process knows: see `Store.alter_queue`."""
        return self.record.settings

    def pause(self) -> None:
        """Stop deliveries, everywhere, within about a second; pushes go on, what is out may be committed."""
        self._workers.check_usable()
        self.record.change(lambda record: replace(record, state=QueueState.PAUSED))

    def resume(self) -> None:
        """Let deliveries go on."""
        self._workers.check_usable()
        self.record.change(lambda record: replace(record, state=QueueState.ACTIVE))
        self._workers.wake()

    def stats(self) -> QueueStats:
        """Return what the queue holds and what went through it; one small read for each live pipe.

        Raises: QueueNotFoundError, StorageUnavailableError.
        """
        self._workers.check_usable()
        return self._statistics.queue_stats(self.record.read)

    def pipes(self) -> list[PipeStats]:
        """Return the figures of each live pipe, oldest first; the owner is None where nobody can tell."""
        self._workers.check_usable()
        owners: dict[UUID, str] = {}
        with contextlib.suppress(CoordinationUnavailableError, AccessDeniedError):
            owners.update(self._context.coordinator.holders(self.name))
        return self._statistics.pipe_stats(self.record.read, owners)

    def runs(self, count: int = 100) -> list[RunStats]:
        """Return who has which messages, and what came back: `count` runs at most, by pipe.

        What came back and rests for long is among them.
        """
        check_count(count)
        self._workers.check_open()
        return self._inspection.runs(count)

    def rollups(self, day: date) -> list[Rollup]:
        """Return what `cassq pipeline rollup --keep` counted on a day (UTC), by minute; kept 30 days."""
        self._workers.check_usable()
        return list(self._context.storage.read_rollups(self.name, to_day(day)))

    def peek(self, count: int = 10, *, bytes_max: int | None = None) -> list[Message]:
        """Return the next `count` messages that could be delivered now; nothing is taken.

        Some may be there whose push has not returned: their pusher may push these again, under other ids.

        Args:
            bytes_max: end before bodies and headers have more together; one message is always there.
        """
        check_count(count)
        self._workers.check_open()
        return self._inspection.peek(count, bytes_max)

    def has(self, message_id: MessageId | str) -> bool:
        """Tell whether a message is of this queue: in a pipe that has not retired, or among its dead letters.

        Args:
            message_id: as push returned it, or its str.
        """
        self._workers.check_open()
        return self._inspection.has(to_message_id(message_id))

    def status(self, message_id: MessageId | str) -> MessageStatus:
        """Return what became of a message, and what is known of it.

        Args:
            message_id: as push returned it, or its str.
        """
        self._workers.check_open()
        return self._inspection.status(to_message_id(message_id))

    def cancel(self, message_id: MessageId | str, *, running: bool = False) -> bool:
        """End one message, which is then delivered to nobody; may be repeated.

        Args:
            message_id: as push returned it, or its str. What `peek` shows before its push has returned may be
                pushed again by its pusher, and come all the same.
            running: also while a consumer has it, or is about to get it. It does not come again, whatever
                that consumer does; where it commits, or gives up for good, that counts. Not with a key.

        Returns: False where somebody has it, where it has ended otherwise or is to be a dead letter, or where
            nobody remembers it.

        Raises:
            InvalidOptionError: it has a key, and `running` is meant: the next one of the key would come while
                a consumer works on it. Once that is over, or rejected, it needs no `running`.
            OutcomeUnknownError: it may be cancelled, or may not: call again.
            StorageUnavailableError: it is not.
        """
        self._workers.check_open()
        return self._purging.cancel(to_message_id(message_id), is_running_meant=running)

    def reschedule(
        self,
        message_id: MessageId | str,
        *,
        delay: timedelta | None = None,
        due: datetime | None = None,
        timeout: float | timedelta = PUSH_TIMEOUT,
    ) -> bool:
        """Give a message another due time, also one that waits without one, or rests before a retry.

        Its id stays. Its ttl counts from that time on.

        Args:
            message_id: as push returned it, or its str; of `peek` as for `cancel`.
            delay: nobody gets it before so long after the call; timedelta(0) for at once.
            due: nobody gets it before then, instead; a datetime with a time zone. 5 years at most.
            timeout: how long to try to read the database's clock, and to note the first such message.

        Returns: False where somebody has it, where it has ended or is to be a dead letter, or where nobody
            remembers it. A popper has it already 2 s before it is due; one of which that is sooner than 15 s
            after the push, as soon as a popper looks.

        Raises:
            InvalidOptionError: neither, or both, or one that breaks a rule; nothing was done.
            OutcomeUnknownError: it may be due then, or when it was before: call again.
            StorageUnavailableError: nothing was done.
        """
        moved = to_message_id(message_id)
        label = self._workers.labels.of_move({"delay": delay, "due": due}, timeout)
        return self._rescheduling.move(moved, Place(due_ms=label.due_ms))

    def reprioritise(
        self,
        message_id: MessageId | str,
        priority: int,
        *,
        timeout: float | timedelta = PUSH_TIMEOUT,
    ) -> bool:
        """Give a message another priority; its id and its due time stay, its place among others does not.

        Its ttl begins anew: it counts from the call on, or from its due time where that is later.

        Args:
            message_id: as push returned it, or its str; of `peek` as for `cancel`.
            priority: from 0 to 9.
            timeout: how long to try to note the first such message.

        Returns: False as `reschedule` does.

        Raises: as `reschedule`.
        """
        moved = to_message_id(message_id)
        label = self._workers.labels.of_move({"priority": priority}, timeout)
        return self._rescheduling.move(moved, Place(priority=label.priority))

    def purge(self) -> int:
        """End every message that is in nobody's hands, also what is not due; return how many.

        Dead letters stay, also those that are not written yet: what came back from its last attempt.
        """
        self._workers.check_usable()
        self.record.read()  # what it is used with, too
        return self._purging.purge()

    def reap(self, pipes_max: int | None = None) -> ReapReport:
        """Make one pass of the reaper over this queue; None examines every pipe."""
        return self._workers.reap(pipes_max)
