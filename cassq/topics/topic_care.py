"""What users ask of a topic besides messages: figures, groups, subscriptions, and to delete from it.

Owns that half of the public interface; decides nothing itself.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from cassq.model.subscription import Subscription
from cassq.model.topic_settings import TopicSettings
from cassq.topics.group import Group, PartitionLag
from cassq.topics.publisher import check_partition
from cassq.topics.retention import Retention
from cassq.topics.segments import Segments
from cassq.topics.topic_context import TopicContext
from cassq.topics.topic_reader import Start, check_on_gone, filter_of


class PartitionStats(NamedTuple):
    """Figures of one partition.

    Attributes:
        oldest: the oldest offset that is left.
        latest: the offset that the next message gets.
        segments: how many there are.
        size: bytes of bodies and headers in them.
    """

    partition: int
    oldest: int
    latest: int
    segments: int
    size: int


class TopicCare:
    """What a `Topic` has besides messages.

    Attributes:
        name: its name.
    """

    def __init__(self, context: TopicContext) -> None:
        self._context = context
        self.name = context.name

    @property
    def settings(self) -> TopicSettings:
        """Its settings, as far as is known."""
        return self._context.settings

    @property
    def incarnation(self) -> UUID:
        """What tells it from an earlier or a later topic of its name."""
        return self._context.incarnation

    @property
    def partitions(self) -> int:
        """How many ordered logs it has."""
        return self._context.settings.partitions

    def declare_subscription(
        self,
        queue: str,
        *,
        types: Collection[str] | None = None,
        start: Start = "earliest",
        on_gone: Literal["error", "oldest"] = "error",
    ) -> Subscription:
        """Declare a subscription, and run nothing; fine if it is there with the same types and `on_gone`.

        Its messages wait in the topic until a relay brings them into the queue.

        Args:
            queue, types, start, on_gone: see `subscribe`.

        Raises:
            QueueNotFoundError: there is no queue of this name.
            InvalidOptionError: a value breaks a rule, or the queue is subscribed with other types.
        """
        filter_of(types)
        # In one order: of a set each process has another one.
        patterns = None if types is None else tuple(sorted(set(types)))
        target = self._context.find_queue(queue)
        check_on_gone(on_gone)
        declared = Subscription(target.record.incarnation, patterns, on_gone)
        Group(self._context, queue).ensure(start, declared)
        return declared

    def subscriptions(self) -> dict[str, Subscription]:
        """Return which queues have its messages, by name."""
        return dict(self._context.known.look().subscriptions)

    def unsubscribe(self, queue: str) -> None:
        """End a subscription; what is in the queue stays there. Relays hear of it within a second or two.

        Raises:
            GroupNotFoundError: there is none of this name.
            InvalidOptionError: it is a group of consumers.
        """
        Group(self._context, queue).delete(is_subscription=True)

    def groups(self) -> list[str]:
        """Return the names of its groups, in order; a subscription is one."""
        return sorted(self._context.known.look().groups)

    def declare_group(self, group: str, start: Start = "earliest") -> None:
        """Declare a group of consumers; one that exists stays where it is.

        Args:
            start: where a new one begins; see `reader`.

        Raises: InvalidOptionError: a value breaks a rule, or it is a subscription.
        """
        Group(self._context, group).ensure(start)

    def lag(self, group: str) -> list[PartitionLag]:
        """Return how far a group is in each partition.

        Raises: GroupNotFoundError: there is none of this name.
        """
        return Group(self._context, group).lags()

    def reset(self, group: str, to: Start) -> None:
        """Have a group go on somewhere else; what its members have in hand by then is not committed any more.

        Args:
            to: see `reader`; where it names partitions, the others stay as they are.

        Raises:
            GroupNotFoundError: there is none of this name.
            OutcomeUnknownError: some partitions may have been reset; resetting again is harmless.
        """
        Group(self._context, group).reset(to)

    def delete_group(self, group: str) -> None:
        """Delete a group and its progress.

        Raises: GroupNotFoundError: there is none of this name.
        """
        Group(self._context, group).delete()

    def offset_at(self, partition: int, when: datetime) -> int:
        """Return the first offset of a partition that was published at a time or later.

        By the database's clock, whose nodes differ by `clock_skew_max` at most.
        """
        check_partition(partition, self._context)
        return Segments(self._context, partition).offset_at(when)

    def stats(self) -> list[PartitionStats]:
        """Return figures of each partition."""
        return [self._stats_of(each) for each in range(self.partitions)]

    def _stats_of(self, partition: int) -> PartitionStats:
        found = Segments(self._context, partition).standing()
        size = sum(head.size for _, head in found)
        return PartitionStats(partition, found[0][0].first, found[-1][1].next, len(found), size)

    def clear(self) -> int:
        """Delete what was published until now; return how many segments went. Offsets go on."""
        return sum(Retention(self._context, each).clear() for each in range(self.partitions))

    def reap(self) -> int:
        """Close segments that are old, and delete those that are over; return how many went."""
        self._context.known.look()
        return sum(Retention(self._context, each).run_once() for each in range(self.partitions))
