"""What all parts of one topic work with in one process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.coordination.port import Coordinator
from cassq.model.topic import PartitionKey
from cassq.model.topic_settings import TopicSettings
from cassq.runtime.clock import Clock
from cassq.runtime.fork_guard import ForkGuard
from cassq.storage.topic_port import TopicStorage
from cassq.topics.known_topic import KnownTopic

#: How often a look is repeated while others change what is looked for, and the pause in between.
LOOKS_MAX = 100
LOOK_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class TopicContext:
    """One topic, and the services that answer for it.

    Attributes:
        known: its record, as far as this process knows it.
        owner: the store: what works for a topic keeps it, so that it is closed when the program ends.
        find_queue: returns what a queue works with, by its name; raises `QueueNotFoundError`.
        guard: tells the process that made it from one that was forked since.
    """

    storage: TopicStorage
    coordinator: Coordinator
    known: KnownTopic
    clock: Clock
    owner: object
    find_queue: Callable[[str], QueueContext]
    guard: ForkGuard = field(default_factory=ForkGuard)

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.known.record.name

    @property
    def incarnation(self) -> UUID:
        """What tells the topic from an earlier or a later one of its name."""
        return self.known.record.incarnation

    @property
    def settings(self) -> TopicSettings:
        """The topic's settings, as far as is known; reads nothing."""
        return self.known.record.settings

    def key(self, partition: int) -> PartitionKey:
        """Return what one partition is stored under."""
        return PartitionKey(self.incarnation, partition)
