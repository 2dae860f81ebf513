"""What a store lends to its queues, and what each of them makes of it.

Owns how the parts of one queue get the services that answer for it. What must not break: the clock hears each
answer of the queue's database, and goes by how far its nodes may differ as the queue says.
"""

from dataclasses import dataclass

from cassq.catalog.cached_record import CachedRecord
from cassq.catalog.queue_context import QueueContext
from cassq.catalog.queue_events import QueueEvents
from cassq.coordination.port import Coordinator
from cassq.model.queue_record import QueueRecord
from cassq.model.tracing import Tracer
from cassq.runtime.clock import Clock
from cassq.runtime.event_buffer import EventBuffer
from cassq.runtime.periodic_thread import PeriodicThread
from cassq.runtime.poll_spread import PollSpread
from cassq.storage.port import Storage
from cassq.storage.witnessed import witnessed


@dataclass(frozen=True, slots=True)
class Services:
    """What a store lends to its queues.

    Attributes:
        housekeeper: reaps for all of them.
        owner: the store itself: what works for a queue keeps it, so that it is closed when the program ends.
        events: what its observer is told, where it has one.
        tracer: follows messages, where it has one.
    """

    storage: Storage
    coordinator: Coordinator
    clock: Clock
    polls: PollSpread
    housekeeper: PeriodicThread
    owner: object
    events: EventBuffer | None = None
    tracer: Tracer | None = None

    def context_of(self, record: QueueRecord) -> QueueContext:
        """Return what all parts of one queue work with."""
        storage = witnessed(self.storage, self.clock, record.settings.clock_skew_max.total_seconds())
        return QueueContext(
            storage,
            self.coordinator,
            record.name,
            CachedRecord(storage, record, self.clock),
            self.clock,
            self.polls,
            QueueEvents(record.name, self.events, self.clock) if self.events else None,
            self.tracer,
        )
