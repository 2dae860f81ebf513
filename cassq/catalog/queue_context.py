"""What all parts of one queue work with in one process."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from cassq.catalog.cached_record import CachedRecord
from cassq.catalog.queue_events import QueueEvents
from cassq.coordination.port import Coordinator
from cassq.limits import AT_WRITE
from cassq.model.pipe import Mark
from cassq.model.settings import QueueSettings
from cassq.model.tracing import Tracer
from cassq.runtime.clock import Clock
from cassq.runtime.fork_guard import ForkGuard
from cassq.runtime.poll_spread import PollSpread
from cassq.storage.port import Storage


@dataclass(frozen=True, slots=True)
class QueueContext:
    """One queue, and the services that answer for it.

    Attributes:
        queue: its name.
        record: knows the settings, which may be altered at any time. It raises `QueueNotFoundError` where
            the queue was deleted since, or is a later one of its name: whose pipes are not judged by them.
        polls: spreads the looks of a process with many queues.
        events: notes what happens, where the store has an observer.
        tracer: follows messages, where the store has one.
        own_lease: of a run reader, which the queue's settings do not change.
        guard: tells the process that made it from one that was forked since.
    """

    storage: Storage
    coordinator: Coordinator
    queue: str
    record: CachedRecord
    clock: Clock
    polls: PollSpread
    events: QueueEvents | None = None
    tracer: Tracer | None = None
    own_lease: timedelta | None = None
    guard: ForkGuard = field(default_factory=ForkGuard)

    @property
    def settings(self) -> QueueSettings:
        """The queue's settings, as far as is known: about a second old where it is pushed or popped."""
        return self.record.settings

    @property
    def keeps_journal(self) -> bool:
        """Whether the queue keeps a journal."""
        return self.settings.journal != "off"

    def timed(self, marks: Sequence[Mark]) -> Sequence[Mark]:
        """Return marks as they are written: with the time of their end, where the queue keeps a journal."""
        return [replace(mark, ended_at_ms=AT_WRITE) for mark in marks] if self.keeps_journal else marks

    @property
    def lease(self) -> timedelta:
        """For how long a take leases."""
        return self.own_lease or self.settings.lease
