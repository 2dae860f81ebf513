"""A group of a topic: its progress in each partition, and what operators do with it.

Owns creation, lag and reset. What must not break: a group that a record names has progress in every
partition; a reset raises the epoch, so that no commit of before it moves the progress once more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from cassq.errors import GroupNotFoundError, InvalidOptionError, OutcomeUnknownError, UnavailableError
from cassq.model.ids import check_name, new_token
from cassq.model.topic import Progress, TopicRecord
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

    def ensure(self, start: Start) -> UUID:
        """Return the group's id, and create the group if there is none; it begins at `start` then."""
        found = self._context.known.look().groups.get(self.name)
        if found:
            return found
        self._check_room(self._context.known.record)
        made, partitions = new_token(), self._context.settings.partitions
        for partition in range(partitions):
            offset = offset_of(self._context, partition, start)
            self._storage.change_progress(made, None, Progress(partition, 1, "", offset))
        found = self._context.known.change(lambda seen: self._with(seen, made)).groups[self.name]
        if found != made:  # another process was first
            self._storage.delete_progress(made, partitions)
        return found

    def _with(self, record: TopicRecord, made: UUID) -> TopicRecord:
        if self.name in record.groups:
            return record
        self._check_room(record)
        return replace(record, groups={**record.groups, self.name: made})

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
        reset = 0
        try:
            for partition, offset in offsets.items():
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

    def delete(self) -> None:
        """Delete the group and its progress; its members hear of it within a second or two."""
        group = self.find()
        self._context.known.change(
            lambda seen: replace(
                seen, groups={name: each for name, each in seen.groups.items() if each != group}
            )
        )
        self._storage.delete_progress(group, self._context.settings.partitions)
