"""What users hold: one queue, to push into, pop from, look at and steer.

Owns the public interface and the life of the parts behind it; decides nothing about messages itself.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from uuid import UUID

from cassq.bulk.leased_run import tag
from cassq.bulk.run_reader import RunReader
from cassq.bulk.staging import Staging
from cassq.catalog.cached_record import CachedRecord
from cassq.catalog.queue_context import QueueContext
from cassq.coordination.port import Coordinator
from cassq.errors import AccessDeniedError, ClosedError, CoordinationUnavailableError, InvalidOptionError
from cassq.model.arguments import check_count
from cassq.model.ids import MessageId, check_name, to_message_id
from cassq.model.message import Headers, Message, MessageIds
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.rollup import Rollup
from cassq.observing.dead_letters import DeadLetters
from cassq.observing.inspection import Inspection, MessageStatus
from cassq.observing.statistics import PipeStats, QueueStats, Statistics
from cassq.pipes.fenced_pipe import Taker
from cassq.popping.fetcher import Fetcher
from cassq.popping.pipe_backoff import GonePipes
from cassq.popping.popper import Popper
from cassq.popping.shared_intake import CommitMode, SharedIntake, check_commit
from cassq.pushing.pusher import PUSH_TIMEOUT, Pusher
from cassq.reaping.housekeeping import Housekeeping
from cassq.reaping.reaper import Reaper, ReapReport
from cassq.runtime.clock import Clock
from cassq.runtime.fork_guard import ForkGuard, process_name
from cassq.runtime.periodic_thread import PeriodicThread
from cassq.runtime.poll_spread import PollSpread
from cassq.runtime.reentry import Closing, alone
from cassq.storage.port import Storage
from cassq.storage.witnessed import witnessed

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Services:
    """What a store lends to its queues.

    Attributes:
        housekeeper: reaps for all of them.
        owner: the store itself: what works for a queue keeps it, so that it is closed when the program ends.
    """

    storage: Storage
    coordinator: Coordinator
    clock: Clock
    polls: PollSpread
    housekeeper: PeriodicThread
    owner: object


class Queue:
    """One queue. Made by `Store.queue`; threads may share it.

    Attributes:
        name: its name.
        settings: what it was created with.
        dead: its dead letters.
        staging: its pipes that nobody sees yet, for bulk writes that happen all or not at all.
        left_behind: how many messages its closing could not store in time.
    """

    def __init__(self, services: Services, record: QueueRecord) -> None:
        self.name = record.name
        self.settings = record.settings
        skew_s = self.settings.clock_skew_max.total_seconds()
        heard = witnessed(services.storage, services.clock, skew_s)
        self._services = services = replace(services, storage=heard)
        self.record = CachedRecord(services.storage, record, services.clock)
        self.dead = DeadLetters(services.storage, self.name, self._push_again, self._check_open)
        self._context = QueueContext(
            services.storage,
            services.coordinator,
            self.name,
            self.settings,
            self.record,
            services.clock,
            services.polls,
        )
        self.staging = Staging(self._context)
        self._gone = GonePipes()
        self._statistics = Statistics(self._context)
        self._inspection = Inspection(self._context)
        self._birthplace = ForkGuard()
        self._making = threading.RLock()
        self._pusher: Pusher | None = None
        self._poppers: list[Popper] = []
        self._intakes: dict[CommitMode, SharedIntake] = {}
        self._readers: list[RunReader] = []
        self._reaper: Reaper | None = None
        self._housekeeping: Housekeeping | None = None
        self._closing = Closing(services.clock)
        self._is_closed = False
        self.left_behind = 0

    def push(
        self, body: bytes, headers: Headers | None = None, *, timeout: float | timedelta = PUSH_TIMEOUT
    ) -> MessageId:
        """Push one message; returns when it is durable.

        Args:
            body: the message.
            headers: str to str, small; consumers see them in the order of their names.
            timeout: how long to try, in seconds or as a timedelta. A storage call under way is waited for.

        Returns: the message's id.

        Raises:
            InvalidOptionError, BodyTooLargeError: the message breaks a rule; nothing was pushed.
            QueueNotFoundError, ClosedError: the queue was deleted or closed; nothing was pushed.
            StorageUnavailableError: the database did not answer in time; the message is not stored.
            OutcomeUnknownError: it may or may not be stored, and time was up before that was known.
        """
        return self._push().push(body, headers, timeout)

    def push_soon(
        self, body: bytes, headers: Headers | None = None, *, timeout: float | timedelta = PUSH_TIMEOUT
    ) -> "Future[MessageId]":
        """Push one message together with others; returns at once.

        Waits only when thousands of messages are on their way already.

        Returns: a future of the message's id, which is set, or fails as `push` raises, within `timeout`.
        Raises: as `push`, for what is wrong with the message or the queue.
        """
        return self._push().push_soon(body, headers, timeout)

    def push_many(
        self,
        bodies: Iterable[bytes | tuple[bytes, Headers]],
        *,
        progress: Callable[[int], None] | None = None,
        timeout: float | timedelta = PUSH_TIMEOUT,
    ) -> MessageIds:
        """Push many messages, in order; returns when all are durable.

        Args:
            bodies: bytes, or pairs of bytes and headers; read as they are sent, so a generator of millions
                is fine.
            progress: called now and then with the number of messages that are durable.
            timeout: how long each part of them (at most 1000 messages or 1 MiB) may take.

        Returns: the ids, in the order of the bodies; they take little memory.
        Raises: as `push`, for what is wrong with a message or the queue: what came before it may be stored,
            a note on the error says how much. OutcomeUnknownError, which says how much is stored, when the
            database failed after a part of the messages was.
        """
        return self._push().push_many(bodies, progress, timeout)

    def popper(self, *, commit: CommitMode = "each") -> Popper:
        """Return a new popper, which takes messages from this queue until it is closed.

        Those that are open share, for each `commit`, one thread, one name, `pop_width` pipes and what was
        taken ahead. See "Poppers of one process" in docs/operations.md.

        Args:
            commit: "each" writes every commit before it returns. "grouped" writes commits together every few
                milliseconds: faster, but what a crash catches in between is delivered again.

        Raises: ClosedError, QueueNotFoundError, InvalidOptionError.
        """
        self._check_usable()
        check_commit(commit)
        self.record.check_open()
        self._services.coordinator.may_take()  # a store that can never pop says so here
        with alone(self._making, "popper()"):
            self._check_usable()
            intake = self._intakes.get(commit)
            if not (intake and intake.join()):
                intake = self._intakes[commit] = self._make_intake(commit)
            popper = Popper(intake, queue=self.name, clock=self._services.clock)
            self._poppers = [each for each in self._poppers if not each.has_closed] + [popper]
        return popper

    def _make_intake(self, commit: CommitMode) -> SharedIntake:
        """Make an intake; called with `_making` held."""
        fetcher = Fetcher(self._context, self._make_name(), on_pipe_over=self._note_over(), gone=self._gone)
        return SharedIntake(self._context, fetcher, commit, self._may_take)

    def _make_name(self) -> str:
        return f"{process_name()}-{next(_numbers)}-{self.name}"

    def _note_over(self) -> Callable[[UUID], None]:
        """Start housekeeping and return what tells it of pipes that may retire; with `_making` held."""
        return self._start_housekeeping().hint

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
        self._check_usable()
        self.record.check_open()
        check_name(name, "name of a reader")
        context = replace(self._context, settings=replace(self.settings, lease=lease))
        taker = Taker(tag(name), is_outline=True)
        with alone(self._making, "run_reader()"):
            fetcher = Fetcher(
                context, self._make_name(), on_pipe_over=self._note_over(), taker=taker, gone=self._gone
            )
            self._readers = [each for each in self._readers if not each.has_closed]
        try:
            reader = RunReader(context, fetcher, name)
        except BaseException:
            fetcher.close()
            raise
        with self._making:
            self._readers.append(reader)
            is_closed = self._is_closed
        if is_closed:
            reader.close()
            self._check_usable()
        return reader

    def pause(self) -> None:
        """Stop deliveries, everywhere, within about a second; pushes go on, what is out may be committed."""
        self._check_usable()
        self.record.change(lambda record: replace(record, state=QueueState.PAUSED))

    def resume(self) -> None:
        """Let deliveries go on."""
        self._check_usable()
        self.record.change(lambda record: replace(record, state=QueueState.ACTIVE))
        # Poppers that rest would see it when they look by themselves.
        coordinator = self._services.coordinator
        with contextlib.suppress(CoordinationUnavailableError, AccessDeniedError):
            coordinator.wake(self.name, max(1, coordinator.hungry(self.name)))

    def stats(self) -> QueueStats:
        """Return what the queue holds and what went through it; one small read for each live pipe.

        Raises: QueueNotFoundError, StorageUnavailableError.
        """
        self._check_usable()
        return self._statistics.queue_stats(self.record.read)

    def pipes(self) -> list[PipeStats]:
        """Return the figures of each live pipe, oldest first; the owner is None where nobody can tell."""
        self._check_usable()
        owners: dict[UUID, str] = {}
        with contextlib.suppress(CoordinationUnavailableError, AccessDeniedError):
            owners.update(self._services.coordinator.holders(self.name))
        return self._statistics.pipe_stats(self.record.read, owners)

    def rollups(self, day: date) -> list[Rollup]:
        """Return what `cassq pipeline rollup --keep` counted on a day, oldest first; kept for thirty days.

        Args:
            day: of the rollups, in UTC.
        """
        self._check_usable()
        if isinstance(day, datetime) or not isinstance(day, date):
            raise InvalidOptionError(f"{day=} is not a datetime.date: give the day, in UTC, without a time")
        return list(self._services.storage.read_rollups(self.name, day))

    def peek(self, count: int = 10) -> list[Message]:
        """Return the next `count` messages that could be delivered now; nothing is taken."""
        self._check_usable()
        check_count(count)
        self.record.check_open()
        return self._inspection.peek(count)

    def status(self, message_id: MessageId | str) -> MessageStatus:
        """Return what became of a message.

        Args:
            message_id: as push returned it, or its str.
        """
        self._check_usable()
        self.record.check_open()
        return self._inspection.status(to_message_id(message_id))

    def purge(self) -> int:
        """End every message that is in nobody's hands; return how many.

        Dead letters stay, also those that are not written yet: what came back from its last attempt.
        """
        self._check_usable()
        self.record.check_open()
        return self._inspection.purge()

    def reap(self, pipes_max: int | None = None) -> ReapReport:
        """Make one pass of the reaper over this queue; None examines every pipe."""
        self._check_usable()
        with alone(self._making, "reap()"):
            reaper = self._ensure_reaper()
        report = reaper.run_once(pipes_max)
        tidied = self.staging.tidy()
        report.published, report.removed = tidied.published, tidied.removed
        report.failed += tidied.failed
        return report

    def close(self) -> None:
        """Close its poppers, push what is on its way, seal its pipes.

        May be called twice: the second call waits for the first. In the middle of another call of its thread
        it returns at once, as `Store.close`.
        """
        if not self._birthplace.is_here:
            return
        self._closing.run(self._close)

    def _close(self) -> None:
        with self._making:
            self._is_closed = True
            poppers, self._poppers, self._intakes = self._poppers, [], {}
            readers, self._readers = self._readers, []
            pusher, self._pusher = self._pusher, None
            housekeeping, self._housekeeping = self._housekeeping, None
        for popper in poppers:
            popper.close()
        for reader in readers:
            reader.close()
        if housekeeping:
            housekeeping.close()
        if pusher:
            self.left_behind += pusher.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    @property
    def has_closed(self) -> bool:
        """Whether its closing has ended."""
        return self._closing.has_ended

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    def _push(self) -> Pusher:
        self._check_usable()
        pusher = self._pusher
        if pusher is None:
            self.record.check_open()
            with alone(self._making, "the first push of a queue"):
                self._check_usable()
                if self._pusher is None:
                    self._pusher = Pusher(self._context, self._check_record)
                pusher = self._pusher
        return pusher

    def _push_again(self, body: bytes, headers: Headers) -> MessageId:
        return self._push().push_again(body, headers)

    def _may_take(self) -> bool:
        # A method of the queue: the thread that asks keeps the queue, and so the store, until it is closed.
        return self.record.may_take()

    def _check_record(self) -> None:
        self.record.check_open()  # as above

    def _check_open(self) -> None:
        self._check_usable()
        self.record.check_open()

    def _check_usable(self) -> None:
        if not self._birthplace.is_here:
            self._birthplace.check(f"queue {self.name!r}")
        if self._is_closed:
            raise ClosedError(f"queue {self.name!r} is closed: open it again with store.queue()")

    def _ensure_reaper(self) -> Reaper:
        if self._reaper is None:
            holder = f"{process_name()}-{next(_numbers)}-reaper"
            self._reaper = Reaper(self._context, holder, self._gone.note)
        return self._reaper

    def _start_housekeeping(self) -> Housekeeping:
        self._check_usable()
        reaper = self._ensure_reaper()
        if self._housekeeping is None:
            self._housekeeping = Housekeeping(
                self._context, reaper, self._statistics, self.staging, self._services.housekeeper
            )
        return self._housekeeping
