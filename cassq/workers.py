"""What works for one queue in this process: pusher, intakes, poppers, run readers, reaper, housekeeping.

Owns when each of them is made, and the order in which they are closed. Refuses to know messages. What must
not break: nothing is made once closing has begun, and what was made before is closed.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Literal
from uuid import UUID

from cassq.bulk.leased_run import tag
from cassq.bulk.run_reader import RunReader
from cassq.bulk.staging import Staging
from cassq.catalog.first_uses import FirstUses
from cassq.catalog.queue_context import QueueContext
from cassq.catalog.services import Services
from cassq.errors import (
    AccessDeniedError,
    CassqError,
    ClosedError,
    CoordinationUnavailableError,
    InvalidOptionError,
)
from cassq.model.ids import MessageId, check_name
from cassq.model.label import Label, to_types
from cassq.model.message import Headers
from cassq.model.uses import EVERY_POPPER
from cassq.observing.statistics import Statistics
from cassq.pipes.fenced_pipe import Taker
from cassq.popping.fetcher import Fetcher
from cassq.popping.lease_buffer import LeaseBuffer
from cassq.popping.leases import Leases
from cassq.popping.lessor import Lessor, check_keyless
from cassq.popping.pipe_backoff import GonePipes
from cassq.popping.popper import Popper
from cassq.popping.shared_intake import CommitMode, SharedIntake, check_commit
from cassq.pushing.due_clock import DueClock
from cassq.pushing.labels import Labels
from cassq.pushing.observed_pusher import ObservedPusher
from cassq.pushing.pusher import PUSH_TIMEOUT, Pusher
from cassq.pushing.traced_pusher import TracedPusher
from cassq.reaping.housekeeping import Housekeeping
from cassq.reaping.reap_report import ReapReport
from cassq.reaping.reaper import Reaper
from cassq.runtime.fork_guard import ForkGuard, process_name
from cassq.runtime.reentry import Closing, alone

_numbers = itertools.count(1)

#: How an intake's commits go out; what lessors lease is committed by its token.
_Way = CommitMode | Literal["lent"]
_LENT: Literal["lent"] = "lent"

#: A pusher, or what calls one.
AnyPusher = Pusher | ObservedPusher | TracedPusher


class Workers:
    """The workers of one queue.

    Attributes:
        labels: makes the labels of what is pushed.
        left_behind: how many messages its closing could not store in time.
    """

    def __init__(
        self, services: Services, context: QueueContext, statistics: Statistics, staging: Staging
    ) -> None:
        self._services = services
        self._context = context
        self._queue = context.queue
        self._record = context.record
        self._statistics = statistics
        self._staging = staging
        self._first_uses = FirstUses(context.record, services.clock, lambda: self._is_closed)
        self._due_clock = DueClock(context)
        self.labels = Labels(context, self._first_uses, self._due_clock, self.check_usable)
        self._gone = GonePipes()
        self._birthplace = ForkGuard()
        self._making = threading.RLock()
        self._pusher: AnyPusher | None = None
        self._poppers: list[Popper] = []
        self._intakes: dict[tuple[_Way, frozenset[str]], SharedIntake] = {}
        self._readers: list[RunReader] = []
        self._reaper: Reaper | None = None
        self._housekeeping: Housekeeping | None = None
        self._closing = Closing(services.clock)
        self._is_closed = False
        self.left_behind = 0

    def pusher(self) -> AnyPusher:
        """Return the pusher; the first call makes it."""
        self.check_usable()
        pusher = self._pusher
        if pusher is None:
            with alone(self._making, "the first push of a queue"):
                self.check_usable()
                if self._pusher is None:
                    self._pusher = self._make_pusher()
                pusher = self._pusher
        return pusher

    def push_again(self, messages: Sequence[tuple[bytes, Headers, Label]]) -> "Sequence[Future[MessageId]]":
        """Store messages again, with what they had; return ended futures."""
        self.check_usable()
        messages = [(body, headers, self.labels.placed(label)) for body, headers, label in messages]
        refused: dict[Label, InvalidOptionError] = {}
        for label in {label for _, _, label in messages}:
            try:
                self._first_uses.tell([label], PUSH_TIMEOUT)
            except InvalidOptionError as error:  # too many types: the others are stored all the same
                refused[label] = error
        stored = iter(self.pusher().push_again([each for each in messages if each[2] not in refused]))
        return [_failed(refused[each[2]]) if each[2] in refused else next(stored) for each in messages]

    def _make_pusher(self) -> AnyPusher:
        pusher = Pusher(self._context, self._due_clock, self._check_record)
        events, tracer = self._context.events, self._context.tracer
        observed = ObservedPusher(pusher, events) if events else pusher
        return TracedPusher(observed, self._queue, tracer) if tracer else observed

    def make_popper(self, commit: CommitMode, types: Iterable[str] | None) -> Popper:
        """Return a new popper; see `Queue.popper`."""
        self.check_usable()
        check_commit(commit)
        return self._make_popper(commit, to_types(types))[0]

    def make_lessor(self, leases: Leases, types: Iterable[str] | None) -> Lessor:
        """Return a new lessor; see `Queue.lessor`."""
        self.check_usable()
        check_keyless(self._context)
        popper, intake = self._make_popper(_LENT, to_types(types))
        return Lessor(popper, leases, intake.buffer.answers)

    def _make_popper(self, way: _Way, kinds: frozenset[str]) -> tuple[Popper, SharedIntake]:
        self._may_take()  # raises where the queue was deleted
        self._context.coordinator.may_take()  # a store that can never pop says so here
        with alone(self._making, "popper()"):
            self.check_usable()
            intake = self._intakes.get((way, kinds))
            if not (intake and intake.join()):
                intake = self._intakes[way, kinds] = self._make_intake(way, kinds)
            popper = Popper(intake, queue=self._queue, clock=self._context.clock)
            self._poppers = [each for each in self._poppers if not each.has_closed] + [popper]
        return popper, intake

    def _make_intake(self, way: _Way, types: frozenset[str]) -> SharedIntake:
        """Make an intake; called with `_making` held."""
        buffer = LeaseBuffer(self._context) if way == _LENT else None
        fetcher = self._make_fetcher(buffer.taker if buffer else None)
        if types:
            fetcher.take_only(types)
        if way == _LENT:
            return SharedIntake(self._context, fetcher, "each", self._may_lend, buffer)
        return SharedIntake(self._context, fetcher, way, self._may_take)

    def _may_lend(self) -> bool:
        check_keyless(self._context)
        return self._may_take()

    def _make_fetcher(self, taker: Taker | None = None) -> Fetcher:
        over, gone = self._on_pipe_over(), self._gone
        return Fetcher(self._context, self._make_name(), on_pipe_over=over, taker=taker, gone=gone)

    def _make_name(self) -> str:
        return f"{process_name()}-{next(_numbers)}-{self._queue}"

    def _on_pipe_over(self) -> Callable[[UUID], None]:
        """Start housekeeping and return what tells it of pipes that may retire; with `_making` held."""
        return self._start_housekeeping().hint

    def make_reader(self, name: str, lease: timedelta) -> RunReader:
        """Return a new run reader; see `Queue.run_reader`."""
        self.check_open()
        check_name(name, "name of a reader")
        checked = replace(self._context.settings, lease=lease).lease
        context = replace(self._context, own_lease=checked)
        taker = Taker(tag(name), is_outline=True)
        with alone(self._making, "run_reader()"):
            fetcher = Fetcher(
                context, self._make_name(), on_pipe_over=self._on_pipe_over(), taker=taker, gone=self._gone
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
            self.check_usable()
        return reader

    def reaper(self) -> Reaper:
        """Return the reaper; the first call makes it."""
        self.check_usable()
        with alone(self._making, "reap()"):
            return self._ensure_reaper()

    def reap(self, pipes_max: int | None) -> ReapReport:
        """Make one pass of the reaper, and look after bulk writes; see `Queue.reap`."""
        report = self.reaper().run_once(pipes_max)
        self.reaper().keeper.run_once(report)
        tidied = self._staging.tidy()
        report.published, report.removed = tidied.published, report.removed + tidied.removed
        report.failed += tidied.failed
        report.refused += tidied.refused
        return report

    def wake(self) -> None:
        """Wake poppers that rest, of any process; they would see it when they look by themselves."""
        coordinator = self._context.coordinator
        with suppress(CoordinationUnavailableError, AccessDeniedError):
            hungry = coordinator.hungry(self._queue, types=EVERY_POPPER)
            coordinator.wake(self._queue, max(1, hungry), types=EVERY_POPPER)

    def close(self, *before: Callable[[], None]) -> None:
        """Call what comes before, close poppers and readers, push what is on its way; see `Queue.close`."""
        if self._birthplace.is_here:
            self._closing.run(partial(self._close, *before))

    def _close(self, *before: Callable[[], None]) -> None:
        for each in before:
            each()
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
        """Whether closing has begun."""
        return self._is_closed

    @property
    def has_closed(self) -> bool:
        """Whether closing has ended."""
        return self._closing.has_closed

    def check_usable(self) -> None:
        """Raise `ClosedError` once the queue is closed, and in a forked child."""
        if not self._birthplace.is_here:
            self._birthplace.check(f"queue {self._queue!r}")
        if self._is_closed:
            raise ClosedError(f"queue {self._queue!r} is closed: open it again with store.queue()")

    def check_open(self) -> None:
        """Raise `ClosedError` as `check_usable`, and `QueueNotFoundError` once the queue was deleted."""
        self.check_usable()
        self._record.check_open()

    def _may_take(self) -> bool:
        # A method of this object: the thread that asks keeps it, and so the store, until it is closed.
        return self._record.may_take()

    def _check_record(self) -> None:
        self._record.check_open()  # as above

    def _ensure_reaper(self) -> Reaper:
        if self._reaper is None:
            holder = f"{process_name()}-{next(_numbers)}-reaper"
            self._reaper = Reaper(self._context, holder, self._gone.note)
        return self._reaper

    def _start_housekeeping(self) -> Housekeeping:
        self.check_usable()
        reaper = self._ensure_reaper()
        if self._housekeeping is None:
            self._housekeeping = Housekeeping(
                self._context, reaper, self._statistics, self._staging, self._services.housekeeper
            )
        return self._housekeeping


def _failed(error: CassqError) -> "Future[MessageId]":
    future: Future[MessageId] = Future()
    future.set_exception(error)
    return future
