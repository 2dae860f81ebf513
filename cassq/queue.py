"""What users hold: one queue, to push into, pop from, look at and steer.

Owns the public interface; decides nothing about messages itself. The life of the parts behind it is the
business of `Workers`.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Unpack
from uuid import UUID

from cassq.bulk.run_reader import RunReader
from cassq.bulk.schedules import Schedules
from cassq.bulk.staging import Staging
from cassq.catalog.services import Services
from cassq.errors import AccessDeniedError, CoordinationUnavailableError
from cassq.model.arguments import check_count, to_day
from cassq.model.ids import MessageId, to_message_id
from cassq.model.label import UNLABELLED, Label
from cassq.model.message import Headers, Message, MessageIds
from cassq.model.options import PushOptions
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.rollup import Rollup
from cassq.model.settings import QueueSettings
from cassq.observing.dead_letters import DeadLetters
from cassq.observing.figures import PipeStats, QueueStats
from cassq.observing.inspection import Inspection, MessageStatus, RunStats
from cassq.observing.purging import Purging
from cassq.observing.statistics import Statistics
from cassq.popping.popper import Popper
from cassq.popping.shared_intake import CommitMode
from cassq.pushing.pusher import PUSH_TIMEOUT
from cassq.reaping.reap_report import ReapReport
from cassq.reaping.rescheduling import Place, Rescheduling
from cassq.workers import Workers


class Queue:
    """One queue. Made by `Store.queue`; threads may share it.

    Attributes:
        name: its name.
        dead: its dead letters.
        schedules: what is pushed into it again and again.
        staging: its pipes that nobody sees yet, for bulk writes that happen all or not at all.
    """

    def __init__(self, services: Services, record: QueueRecord) -> None:
        context = self._context = services.context_of(record)
        self.name = context.queue
        self.record = context.record
        self.dead = DeadLetters(context.storage, self.name, self._push_again, self._check_open, context.clock)
        self.staging = Staging(context)
        self.schedules = Schedules(context, self._check_open)
        self._statistics = Statistics(context)
        self._inspection = Inspection(context)
        self._purging = Purging(context)
        self._rescheduling = Rescheduling(context)
        self._workers = Workers(services, context, self._statistics, self.staging)
        self._labels = self._workers.labels

    @property
    def settings(self) -> QueueSettings:
        """Its settings, as far as this process knows: see `Store.alter_queue`."""
        return self.record.settings

    def push(
        self,
        body: bytes,
        headers: Headers | None = None,
        *,
        timeout: float | timedelta = PUSH_TIMEOUT,
        **options: Unpack[PushOptions],
    ) -> MessageId:
        """Push one message; return its id once it is durable.

        Args:
            body: the message.
            headers: str to str, small; consumers see them in the order of their names.
            timeout: how long to try, in seconds or as a timedelta. A storage call under way is waited for.
            options: `ttl`, a timedelta: how long it may wait for a consumer; None: as long as the queue says.
                `priority`, from 0 to 9: consumers get what ranks higher first, see `ageing` of a queue.
                `type`, a name: consumers may ask for some types.
                `delay`, a timedelta: nobody gets it before so long after the call; 0 or None for at once.
                `due`, a datetime with a time zone, instead: nobody gets it before then. 5 years at most.

        Raises:
            InvalidOptionError, InvalidNameError, BodyTooLargeError: it breaks a rule; nothing was pushed.
            QueueNotFoundError, ClosedError: the queue was deleted or closed; nothing was pushed.
            StorageUnavailableError: the database did not answer in time; the message is not stored.
            OutcomeUnknownError: it may or may not be stored, and time was up before that was known.
        """
        label = self._labels.of_push(options, timeout) if options else UNLABELLED
        return self._workers.pusher().push(body, headers, timeout, label)

    def push_soon(
        self,
        body: bytes,
        headers: Headers | None = None,
        *,
        timeout: float | timedelta = PUSH_TIMEOUT,
        is_patient: bool = True,
        **options: Unpack[PushOptions],
    ) -> "Future[MessageId]":
        """Push one message together with others; returns at once.

        Waits only when 50 000 messages, or 64 MiB, are on their way already.

        Args:
            is_patient: wait for room then; False raises `OverloadedError`, and nothing is pushed.
            options: as of `push`; the queue's first message with one waits for a change of its record.

        Returns: a future of the message's id, which is set, or fails as `push` raises, within `timeout`.
        Raises: as `push`, for what is wrong with the message or the queue.
        """
        label = self._labels.of_push(options, timeout) if options else UNLABELLED
        return self._workers.pusher().push_soon(body, headers, timeout, is_patient=is_patient, label=label)

    def push_many(
        self,
        bodies: Iterable[bytes | tuple[bytes, Headers]],
        *,
        progress: Callable[[int], None] | None = None,
        timeout: float | timedelta = PUSH_TIMEOUT,
        **options: Unpack[PushOptions],
    ) -> MessageIds:
        """Push many messages, in order; returns when all are durable.

        Args:
            bodies: bytes, or pairs of bytes and headers; read as they are sent, so a generator of millions
                is fine.
            progress: called now and then with the number of messages that are durable.
            timeout: how long each part of them (at most 1000 messages or 1 MiB) may take.
            options: of each of them, as of `push`.

        Returns: the ids, in the order of the bodies; they take little memory.
        Raises: as `push`, for what is wrong with a message or the queue: what came before it may be stored,
            a note on the error says how much. OutcomeUnknownError, which says how much is stored, when the
            database failed after a part of the messages was.
        """
        label = self._labels.of_push(options, timeout) if options else UNLABELLED
        return self._workers.pusher().push_many(bodies, progress, timeout, label)

    def popper(self, *, commit: CommitMode = "each", types: Iterable[str] | None = None) -> Popper:
        """Return a new popper, which takes messages from this queue until it is closed.

        Those that are open share, for each `commit` and `types`, one thread, one name, `pop_width` pipes and
        what was taken ahead. See "Poppers of one process" in docs/operations.md.

        Args:
            commit: "each" writes every commit before it returns. "grouped" writes commits together every few
                milliseconds: faster, but what a crash catches in between is delivered again.
            types: take only messages of these; None: all, with a type or without.

        Raises: ClosedError, QueueNotFoundError, InvalidOptionError, InvalidNameError, UnavailableError.
        """
        return self._workers.make_popper(commit, types)

    def run_reader(self, name: str, *, lease: timedelta) -> RunReader:
        """Return a reader that leases runs under a stable name, for a consumer that writes down what it has.

        Args:
            name: the same after every restart; at most one process reads under it at a time.
            lease: how long what it has stays its own after its last sign of life, 100 ms to 12 hours.

        Raises:
            InvalidOptionError: the lease is out of range, or somebody reads under this name (after a
                minute, or 15 s on one machine: a process that was killed keeps its session for a while).
            InvalidNameError: the name of the reader breaks the rule.
            ClosedError, QueueNotFoundError: the queue was closed or deleted.
            CoordinationUnavailableError: the claim on the name cannot be asked for.
        """
        return self._workers.make_reader(name, lease)

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
        """Return who has which messages, and what came back: `count` runs at most, by pipe."""
        check_count(count)
        self._check_open()
        return self._inspection.runs(count)

    def rollups(self, day: date) -> list[Rollup]:
        """Return what `cassq pipeline rollup --keep` counted on a day (UTC), by minute; kept 30 days."""
        self._workers.check_usable()
        return list(self._context.storage.read_rollups(self.name, to_day(day)))

    def peek(self, count: int = 10) -> list[Message]:
        """Return the next `count` messages that could be delivered now; nothing is taken."""
        check_count(count)
        self._check_open()
        return self._inspection.peek(count)

    def status(self, message_id: MessageId | str) -> MessageStatus:
        """Return what became of a message, and what is known of it.

        Args:
            message_id: as push returned it, or its str.
        """
        self._check_open()
        return self._inspection.status(to_message_id(message_id))

    def cancel(self, message_id: MessageId | str, *, running: bool = False) -> bool:
        """End one message, which is then delivered to nobody; may be repeated.

        Args:
            message_id: as push returned it, or its str.
            running: also while a consumer has it, or is about to get it. It does not come again, whatever
                that consumer does; where it commits, or gives up for good, that counts.

        Returns: False where somebody has it, where it has ended otherwise or is to be a dead letter, or where
            nobody remembers it.

        Raises:
            OutcomeUnknownError: it may be cancelled, or may not: call again.
            StorageUnavailableError: it is not.
        """
        self._check_open()
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
            message_id: as push returned it, or its str.
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
        label = self._labels.of_move({"delay": delay, "due": due}, timeout)
        return self._rescheduling.move(moved, Place(due_ms=label.due_ms))

    def reprioritise(
        self,
        message_id: MessageId | str,
        priority: int,
        *,
        timeout: float | timedelta = PUSH_TIMEOUT,
    ) -> bool:
        """Give a message another priority; its id and its due time stay, its place among others does not.

        Its ttl counts from its due time, as ever, or else from the call on.

        Args:
            message_id: as push returned it, or its str.
            priority: from 0 to 9.
            timeout: how long to try to note the first such message.

        Returns: False as `reschedule` does.

        Raises: as `reschedule`.
        """
        moved = to_message_id(message_id)
        label = self._labels.of_move({"priority": priority}, timeout)
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

    def close(self) -> None:
        """Close its poppers, push what is on its way, seal its pipes.

        May be called twice: the second call waits for the first. In the middle of another call of its thread
        it returns at once, as `Store.close`.
        """
        self._workers.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._workers.is_closed

    @property
    def has_closed(self) -> bool:
        """Whether its closing has ended."""
        return self._workers.has_closed

    @property
    def left_behind(self) -> int:
        """How many messages its closing could not store in time."""
        return self._workers.left_behind

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    def _push_again(self, messages: Sequence[tuple[bytes, Headers, Label]]) -> "Sequence[Future[MessageId]]":
        return self._workers.push_again(messages)

    def _may_push_at_once(self, options: PushOptions) -> bool:
        """Tell whether a push with these options reads nothing before; for those who may not wait."""
        return self._labels.is_ready(options)

    def _check_open(self) -> None:
        self._workers.check_usable()
        self.record.check_open()
