"""A group of a topic: its progress in each partition, and what operators do with it.

Owns creation, lag and reset. What must not break: a group that a record names has progress in every
partition; a reset raises the epoch, so that no commit of before it moves the progress once more.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import (
    GroupNotFoundError,
    InvalidOptionError,
    OutcomeUnknownError,
    QueueNotFoundError,
    UnavailableError,
)
from cassq.model.ids import check_name, new_token
from cassq.model.subscription import Subscription
from cassq.model.topic import Progress, TopicRecord
from cassq.topics.relay_stop import RelayStop
from cassq.topics.segments import Segments
from cassq.topics.topic_context import TopicContext
from cassq.topics.topic_reader import Start, offset_of

#: A topic has so many groups at most: each is in its record.
GROUPS_MAX = 256

#: How often a change is tried again when a member commits at the same time.
CHANGE_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in a partition.

    Attributes:
        next: the offset that it reads next.
        latest: the offset that the next message gets.
        owner: who has the partition, or had it last; "" for nobody yet.
        epoch: how often it changed hands.
    """

    partition: int
    next: int
    latest: int
    owner: str
    epoch: int

    @property
    def lag(self) -> int:
        """How many messages are before the group: those of other types count, too."""
        return max(0, self.latest - self.next)


class Group:
    """One group of a topic."""

    def __init__(self, context: TopicContext, name: str) -> None:
        self.name = check_name(name, "group name")
        self._storage = context.storage
        self._context = context

    def ensure(self, start: Start, subscription: Subscription | None = None) -> UUID:
        """Return the group's id, and create the group if there is none; it begins at `start` then.

        Args:
            subscription: of a queue of the group's name, where a relay is its member.

        Raises: InvalidOptionError: the group is another queue's, or has other types.
        """
        record = self._context.known.look()
        if found := record.groups.get(self.name):
            self._check_same(record, subscription)
            return found
        self._check_room(record)
        made, partitions = new_token(), self._context.settings.partitions
        for partition in range(partitions):
            offset = offset_of(self._context, partition, start)
            self._storage.change_progress(made, None, Progress(partition, 1, "", offset))
        record = self._context.known.change(lambda seen: self._with(seen, made, subscription))
        found = record.groups[self.name]
        if found != made:  # another process was first
            self._storage.delete_progress(made, partitions)
            self._check_same(record, subscription)
        return found

    def _with(self, record: TopicRecord, made: UUID, subscription: Subscription | None) -> TopicRecord:
        if self.name in record.groups:
            return record
        self._check_room(record)
        subscriptions = {**record.subscriptions, self.name: subscription} if subscription else None
        return replace(
            record,
            groups={**record.groups, self.name: made},
            subscriptions=subscriptions or record.subscriptions,
        )

    def _check_same(self, record: TopicRecord, subscription: Subscription | None) -> None:
        found = record.subscriptions.get(self.name)
        if found == subscription:
            return
        if found is None:
            raise InvalidOptionError(
                f"topic {record.name!r} has a group {self.name!r} of consumers: subscribe a queue of another "
                "name, or delete the group"
            )
        if subscription is None:
            raise InvalidOptionError(
                f"group {self.name!r} of topic {record.name!r} is the subscription of a queue: pop from that "
                "queue, or give the group another name"
            )
        if found.incarnation != subscription.incarnation:
            raise made_anew(record.name, self.name)
        raise InvalidOptionError(
            f"queue {self.name!r} is subscribed to topic {record.name!r} with types {_words(found)}, and not "
            f"{_words(subscription)}: unsubscribe it first"
        )

    def _check_room(self, record: TopicRecord) -> None:
        if len(record.groups) >= GROUPS_MAX:
            raise InvalidOptionError(
                f"group {self.name!r} would be one more than {GROUPS_MAX} of topic {record.name!r}: delete "
                "one"
            )

    def find(self) -> UUID:
        """Return the group's id.

        Raises: GroupNotFoundError: there is none of this name.
        """
        groups = self._context.known.look().groups
        if self.name not in groups:
            names = ", ".join(sorted(groups)[:5])
            raise GroupNotFoundError(
                f"topic {self._context.name!r} has no group {self.name!r}"
                + (f"; it has: {names}" if names else "; it has none at all")
            )
        return groups[self.name]

    def find_own(self) -> UUID:
        """Return the id of a group of consumers.

        Raises:
            GroupNotFoundError: there is none of this name.
            InvalidOptionError: it is the subscription of a queue.
        """
        found = self.find()
        self._check_same(self._context.known.record, None)
        return found

    def find_subscription(self) -> tuple[UUID, Subscription]:
        """Return the group's id, and the subscription that it is of.

        Raises:
            GroupNotFoundError: there is none of this name.
            InvalidOptionError: it is a group of consumers.
        """
        group = self.find()
        found = self._context.known.record.subscriptions.get(self.name)
        if found is None:
            raise InvalidOptionError(
                f"{self.name!r} is a group of consumers of topic {self._context.name!r}, and no subscription"
            )
        return group, found

    def lags(self) -> list[PartitionLag]:
        """Return how far it is in each partition."""
        found = self._storage.list_progress(self.find(), self._context.settings.partitions)
        return [
            PartitionLag(each.partition, each.next, self._latest(each.partition), each.owner, each.epoch)
            for each in found
        ]

    def _latest(self, partition: int) -> int:
        return Segments(self._context, partition).latest()

    def reset(self, to: Start) -> None:
        """Have the group go on somewhere else; its members hear of it within a second or two.

        Where `to` names partitions, the others stay as they are.

        Raises: OutcomeUnknownError: some partitions may have been reset; resetting again is harmless.
        """
        group = self.find()
        named = to if isinstance(to, Mapping) else range(self._context.settings.partitions)
        offsets = {each: offset_of(self._context, each, to) for each in named}
        target, reset = self._find_target(), 0
        try:
            for partition, offset in offsets.items():
                if target:
                    self._stop(target, group, partition, offset)
                else:
                    self._reset_one(group, partition, offset)
                reset += 1
            self._context.known.change(lambda seen: seen)  # members look at their progress once it is another
        except UnavailableError as error:
            if not reset:
                raise
            raise OutcomeUnknownError(
                f"group {self.name!r}: {reset} of its {len(offsets)} partitions are reset: {error}"
            ) from error

    def _reset_one(self, group: UUID, partition: int, offset: int) -> None:
        for _ in range(CHANGE_ATTEMPTS):
            seen = self._storage.read_progress(group, partition)
            if seen is None:
                raise GroupNotFoundError(f"group {self.name!r} was deleted meanwhile")
            wanted = Progress(partition, seen.epoch + 1, "", offset)
            try:
                if self._storage.change_progress(group, seen, wanted):
                    return
            except OutcomeUnknownError as unknown:
                try:
                    if self._storage.read_progress(group, partition) == wanted:
                        return
                except UnavailableError:
                    raise unknown from None
        raise OutcomeUnknownError(f"group {self.name!r}: its members kept committing; try again")

    def _stop(self, target: QueueContext, group: UUID, partition: int, offset: int | None = None) -> None:
        """Have relays of a subscription stop, and go on at an offset.

        What a relay appends from then on is behind the end of its pipe.

        Args:
            offset: None: none goes on, for ever.
        """
        for _ in range(CHANGE_ATTEMPTS):
            with suppress(OutcomeUnknownError):  # the next attempt looks
                operator = RelayStop(self._context, target, group, is_end=offset is None)
                if operator.stop_at(partition, offset):
                    return
            self.find()
        raise OutcomeUnknownError(f"subscription of queue {self.name!r}: its relays kept working; try again")

    def _find_target(self) -> QueueContext | None:
        """Return the queue that is subscribed; None where it is no subscription, or the queue is gone."""
        subscription = self._context.known.record.subscriptions.get(self.name)
        try:
            target = self._context.find_queue(self.name) if subscription else None
        except QueueNotFoundError:
            return None
        is_same = subscription and target and target.record.incarnation == subscription.incarnation
        return target if is_same else None

    def delete(self, *, is_subscription: bool = False) -> None:
        """Delete the group and its progress; its members hear of it within a second or two.

        Raises: InvalidOptionError: it is a subscription, or none, against what the caller says.
        """
        group = self.find()
        if (self.name in self._context.known.record.subscriptions) is not is_subscription:
            topic = self._context.name
            raise InvalidOptionError(
                f"{self.name!r} is a group of topic {topic!r}, and no subscription: delete_group() deletes it"
                if is_subscription
                else f"group {self.name!r} of topic {topic!r} is a subscription: unsubscribe() ends it"
            )
        target = self._find_target()
        if target:
            for partition in range(self._context.settings.partitions):
                self._stop(target, group, partition)
        self._context.known.change(
            lambda seen: replace(
                seen,
                groups={name: each for name, each in seen.groups.items() if each != group},
                subscriptions={
                    name: each for name, each in seen.subscriptions.items() if seen.groups.get(name) != group
                },
            )
        )
        self._storage.delete_progress(group, self._context.settings.partitions)


def made_anew(topic: str, queue: str) -> InvalidOptionError:
    """Return the error for a queue that has the name of one that was subscribed, and is another one."""
    return InvalidOptionError(
        f"queue {queue!r} was deleted and made anew since it was subscribed to topic {topic!r}: unsubscribe "
        "it first"
    )


def _words(subscription: Subscription) -> str:
    types = "all" if subscription.types is None else list(subscription.types)
    return f"{types}, on_gone={subscription.on_gone}"
