"""What parts of a queue work with, for tests that use one part alone."""

from dataclasses import replace
from uuid import uuid4

from cassq.catalog.cached_record import CachedRecord
from cassq.catalog.queue_context import QueueContext
from cassq.coordination.absent import AbsentCoordinator
from cassq.coordination.port import Coordinator
from cassq.model.ids import new_token
from cassq.model.queue_record import QueueRecord
from cassq.model.settings import QueueSettings
from cassq.runtime.clock import Clock, SystemClock
from cassq.runtime.poll_spread import PollSpread
from cassq.storage.port import Storage


def context_of(
    storage: Storage,
    settings: QueueSettings,
    clock: Clock | None = None,
    *,
    queue: str = "q",
    coordinator: Coordinator | None = None,
) -> QueueContext:
    """Return the context of a queue, with the record that is stored, or one that nobody has stored."""
    clock = clock or SystemClock()
    found = storage.read_queues(queue) or [QueueRecord(queue, uuid4(), settings, new_token())]
    record = CachedRecord(storage, replace(found[0], settings=settings), clock)
    return QueueContext(storage, coordinator or AbsentCoordinator(), queue, record, clock, PollSpread())
