"""What all parts of one queue work with in one process."""

from dataclasses import dataclass, field

from cassq.catalog.cached_record import CachedRecord
from cassq.coordination.port import Coordinator
from cassq.model.settings import QueueSettings
from cassq.runtime.clock import Clock
from cassq.runtime.fork_guard import ForkGuard
from cassq.runtime.poll_spread import PollSpread
from cassq.storage.port import Storage


@dataclass(frozen=True, slots=True)
class QueueContext:
    """One queue, and the services that answer for it.

    Attributes:
        queue: its name.
        settings: what it was created with; where a run reader works, with the lease of that.
        record: raises `QueueNotFoundError` where the queue was deleted since, or is a later one of its name:
            whose pipes are not judged by these settings.
        polls: spreads the looks of a process with many queues.
        guard: tells the process that made it from one that was forked since.
    """

    storage: Storage
    coordinator: Coordinator
    queue: str
    settings: QueueSettings
    record: CachedRecord
    clock: Clock
    polls: PollSpread
    guard: ForkGuard = field(default_factory=ForkGuard)
