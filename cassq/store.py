"""A connection to one database and its coordination: where queues are declared, listed and deleted.

Owns the life of the queues it opened and the records of all. What must not break: two openings of the same
name are the same queue, with the same settings, or an error that says how they differ.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Unpack

from cassq.catalog.queue_catalog import QueueCatalog
from cassq.catalog.services import Services
from cassq.coordination.port import Coordinator
from cassq.coordination.watched import watched
from cassq.errors import (
    AccessDeniedError,
    CassqError,
    ClosedError,
    CoordinationUnavailableError,
    CorruptError,
    OutcomeUnknownError,
    QueueNotFoundError,
    UnavailableError,
)
from cassq.model.events import Observer
from cassq.model.ids import check_name
from cassq.model.options import AlterOptions, QueueOptions
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.settings import QueueSettings
from cassq.model.tracing import Tracer
from cassq.queue import Queue
from cassq.reaping.reap_report import ReapReport
from cassq.runtime.clock import Clock
from cassq.runtime.closing_block import ClosedByBlock
from cassq.runtime.event_buffer import EventBuffer
from cassq.runtime.fork_guard import ForkGuard
from cassq.runtime.outage_log import OutageLog
from cassq.runtime.periodic_thread import PeriodicThread
from cassq.runtime.poll_spread import PollSpread
from cassq.runtime.reentry import Closing, alone
from cassq.storage.metered import Telemetry, measured
from cassq.storage.port import Storage
from cassq.storage.witnessed import witnessed
from cassq.topics.topic_store import TopicStore


class Adapters(NamedTuple):
    """What a store speaks to.

    Attributes:
        close: ends both.
    """

    storage: Storage
    coordinator: Coordinator
    close: Callable[[], None]


class Store(TopicStore, ClosedByBlock):
    """An open store. Made by `cassq.connect`; threads may share it, processes may not.

    Args:
        url: what it was opened by, without a password, for people to read.
        adapters: the database, and what coordinates poppers.
        observer: is told of calls; see `cassq.Observer`.
        tracer: follows messages; see `cassq.tracing.OpenTelemetryTracer`.

    Attributes:
        telemetry: what was asked of the database so far.
    """

    def __init__(
        self,
        url: str,
        adapters: Adapters,
        *,
        clock: Clock,
        observer: Observer | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.url = url
        self.telemetry = Telemetry()
        outages = OutageLog(url, clock)
        self._events = EventBuffer(observer.note, clock, self) if observer else None
        storage = measured(adapters.storage, self.telemetry, outages, self._events)
        # A first answer to compare with; by how much nodes may differ each queue says.
        self.storage = witnessed(storage, clock, float("inf"))
        self._catalog = QueueCatalog(self.storage, self._tell_deleted)
        self.coordinator = adapters.coordinator
        self._services = Services(
            storage,
            watched(adapters.coordinator, outages),
            clock,
            PollSpread(),
            PeriodicThread("cassq-reap", clock),
            self,
            self._events,
            tracer,
        )
        self._close_adapters = adapters.close
        self._birthplace = ForkGuard()
        self._guard = threading.RLock()
        self._queues: dict[str, Queue] = {}
        self._leaving: list[Queue] = []  # deleted or replaced, and maybe still closing
        self._closing = Closing(clock)
        self._is_closed = False
        super().__init__(self._services, url, self._check_usable)

    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> Queue:
        """Open a queue, and create it if there is none of this name.

        Args:
            name: ASCII letters, digits, '.', '_' and '-', at most 128 characters.
            settings: see `QueueSettings`; what is not named gets its default at creation, and is not
                compared afterwards.

        Raises:
            InvalidNameError: the name breaks the rule.
            InvalidOptionError: a setting is unknown or out of range, or the queue has another value:
                `alter_queue` gives it that.
            StorageUnavailableError: the database cannot be reached.
        """
        self._check_usable()
        check_name(name)
        QueueSettings.from_options(settings)
        record = self._catalog.ensure(name, settings)
        record.settings.check_same(name, settings)
        return self._open(record)

    def find_queue(self, name: str) -> Queue:
        """Open a queue that exists.

        Raises:
            QueueNotFoundError: there is none of this name.
        """
        self._check_usable()
        record = self._catalog.find(check_name(name))
        if record is None:
            names = ", ".join(self._catalog.names()[:5])
            raise QueueNotFoundError(
                f"there is no queue {name!r} in {self.url}"
                + (f"; there are: {names}" if names else "; there is none at all")
            )
        return self._open(record)

    def alter_queue(self, name: str, **settings: Unpack[AlterOptions]) -> QueueSettings:
        """Give a queue other settings, while it is in use; the others stay.

        Pushers and poppers of all processes go by them within a second or two; a pusher goes by `push_width`
        once the queue is opened again. What is leased by then keeps its lease.

        Args:
            settings: see `QueueSettings`; those that processes judge each other by cannot be altered.

        Returns: all settings that the queue has now.

        Raises:
            QueueNotFoundError: there is none of this name.
            InvalidOptionError: a setting is unknown, out of range, or cannot be altered; nothing was.
            UnavailableError: nothing was altered.
            OutcomeUnknownError: they may be altered; altering them again is harmless.
        """
        record = self.find_queue(name).record
        return record.change(
            lambda seen: replace(seen, settings=seen.settings.altered(name, settings))
        ).settings

    def queues(self) -> list[str]:
        """Return the names of all queues, in order."""
        self._check_usable()
        return list(self._catalog.names())

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all its messages and dead letters.

        Poppers and pushers elsewhere hear of it within about a second; what they push until then goes with
        the queue. A deletion that was cut short goes on.

        Raises:
            QueueNotFoundError: there is none of this name, nor anything left of it.
            UnavailableError: the queue is not deleted.
            OutcomeUnknownError: it may be deleted.
            CassqError: it is deleted, but not all that it held is cleared, and why. Another call clears the
                rest, as `reap` does, and the creation of a queue of this name.
        """
        self._check_usable()
        found = self.storage.glance_queue(check_name(name))
        was_deleted = found is not None and found.state is QueueState.DELETED
        if found is None or not was_deleted:
            at_ms = found.read_at_ms if found else 0
            found = self.find_queue(name).record.change(lambda record: record.deleted(at_ms))
        with alone(self._guard, "delete_queue()"):
            opened = self._take_off(name)
        if opened:
            opened.close()  # what this process pushes until it hears of it is cleared with the rest
        try:
            left = self._catalog.clear(found)
        except CassqError as error:
            raise CassqError(
                f"queue {name!r} is deleted, but not all that it held is cleared: {error}; "
                "delete_queue() again, or a pass of the reaper, clears the rest"
            ) from error
        if was_deleted and not left and not opened:
            self.find_queue(name)  # it says that there is none

    def reap(self) -> ReapReport:
        """Make one pass of the reaper over every queue and topic; safe to run any number of at once.

        What cannot be read or may not be written, a record, a list of pipes or a pipe, is told in the report,
        and holds no other queue up.
        """
        self._check_usable()
        report = ReapReport()
        report.segments += self._reap_topics(report.note_failure)

        def note_damage(name: str, error: CassqError) -> None:
            report.note_failure(f"queue {name}: {error}", error)

        for record in self._catalog.all(note_damage):
            try:
                if record.state is QueueState.DELETED:
                    report.retired += self._catalog.clear(record)
                else:
                    report.add(self._open(record).reap())
            except QueueNotFoundError:
                continue  # deleted meanwhile: the next pass clears it
            except (AccessDeniedError, UnavailableError, OutcomeUnknownError, CorruptError) as error:
                if isinstance(error, CoordinationUnavailableError):
                    raise
                note_damage(record.name, error)
        return report

    def close(self) -> None:
        """Close every queue it opened, then the connections; does nothing in a fork.

        May be called twice: the second call waits for the first. In the middle of another call of its thread,
        as in a signal handler, it returns at once, and the store is closed by a thread of its own as soon as
        that call has ended.
        """
        if not self._birthplace.is_here:
            return
        self._closing.run(self._close)

    def _close(self) -> None:
        with self._guard:
            self._is_closed = True
            queues = [*self._leaving, *self._queues.values()]
        self._close_topics()
        for queue in reversed(queues):
            queue.close()
        self._close_adapters()
        if self._events:
            self._events.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    @property
    def left_behind(self) -> int:
        """How many messages its closing could not store in time; their futures tell which."""
        return sum(queue.left_behind for queue in [*self._leaving, *self._queues.values()])

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    def _open(self, record: QueueRecord) -> Queue:
        with alone(self._guard, "opening a queue"):
            self._check_usable()
            queue = self._queues.get(record.name)
            if queue is None or queue.is_closed or not queue.record.is_same(record):
                self._take_off(record.name)
                if queue and not queue.is_closed:
                    queue.close()
                queue = self._queues[record.name] = Queue(self._services, record)
            else:
                queue.record.note(record)
            return queue

    def _take_off(self, name: str) -> Queue | None:
        """Open nothing of this name again, and have `close` wait for it; called with `_guard` held."""
        queue = self._queues.pop(name, None)
        self._leaving = [each for each in (*self._leaving, queue) if each and not each.has_closed]
        return queue

    def _check_usable(self) -> None:
        self._birthplace.check(f"the store {self.url}")
        if self._is_closed:
            raise ClosedError(f"the store {self.url} is closed: call cassq.connect() again")
