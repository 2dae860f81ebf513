"""Which partitions a member of a group has.

Owns its claims. There is no leader: each member counts the others, claims what is free up to a fair share,
and lets go of what is above that. What must not break: a partition that does not move is not interrupted.
"""

import threading
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from cassq.errors import CassqError, GroupNotFoundError, PartitionLostError
from cassq.model.ids import new_token
from cassq.topics.group import Group
from cassq.topics.topic_context import TopicContext

#: How often a member looks at its share, and how often while it waits for partitions of others.
SHARE_S = 1.0
SOON_S = 0.2


class Held(Protocol):
    """One partition that a member has."""

    is_leaving: bool
    is_lost: bool

    @property
    def partition(self) -> int:
        """Its number."""
        ...

    def take_over(self, partition: int) -> bool:
        """Begin an epoch; tell whether it began."""
        ...

    def check(self) -> None:
        """Raise `PartitionLostError` where it is another one's."""
        ...


HeldT = TypeVar("HeldT", bound=Held)


class Sharer(Protocol[HeldT]):
    """Whose share it is."""

    def make_held(self, group: UUID) -> HeldT:
        """Return what holds a partition of the group, once it is taken over."""
        ...

    def leave(self, held: HeldT) -> None:
        """Hear that others miss a partition."""
        ...

    def hear_of_share(self, *, is_urgent: bool = False) -> None:
        """Hear that the share changed, or should be looked at now."""
        ...


class Share(Generic[HeldT]):
    """The partitions of one member.

    Args:
        group: its name and how it is found; `group_id`: as it was found.
        name: the member's.
    """

    def __init__(
        self, context: TopicContext, group: Group, group_id: UUID, name: str, sharer: Sharer[HeldT]
    ) -> None:
        self._context = context
        self._coordinator = context.coordinator
        self._group = group
        self._id = group_id
        self._name = name
        self._sharer = sharer
        self._line = f"{context.name}~{group.name}"
        self._guard = threading.RLock()
        self._held: dict[int, HeldT] = {}
        self._seen_op = context.known.record.op
        self._look_at = float("-inf")
        self._turn = 0
        self._is_hungry = False
        self._is_closed = False

    def held(self) -> list[HeldT]:
        """Return the partitions that it has, those included that it is about to let go."""
        with self._guard:
            return list(self._held.values())

    def has(self, held: HeldT) -> bool:
        """Tell whether the claim of a partition stands, as far as is known."""
        return self._coordinator.is_held(self._line, UUID(int=held.partition), self._name)

    def look(self) -> None:
        """Look at the share, if that is due.

        Raises:
            UnavailableError, OutcomeUnknownError: the next look may do better.
            CassqError: the topic or the group was deleted.
        """
        if self._context.clock.now() < self._look_at:
            return
        self._look_at = self._context.clock.now() + SHARE_S
        self._heed_changes()
        if not self._coordinator.may_take():
            return
        holders = self._coordinator.holders(self._line)
        hungry = self._coordinator.hungry(self._line, self._name)
        others = Counter(holders.values())
        del others[self._name]
        least, rest = divmod(self._context.settings.partitions, 1 + len(others) + hungry)
        mine = [held for held in self.held() if not held.is_leaving]
        if len(mine) < least + bool(rest):
            self._claim(least + bool(rest) - len(mine), holders)
        is_missed = hungry > 0 or min(others.values(), default=least) < least
        for held in mine[max(1, least + (bool(rest) and not is_missed)) :] if others or hungry else ():
            self._sharer.leave(held)
        if self.held():
            self._withdraw()
        elif not self._is_hungry:
            self._is_hungry = True
            self._coordinator.announce_hunger(self._line, self._name, self._hear)
        if len(self.held()) < least:  # others are about to let go
            self._look_at = min(self._look_at, self._context.clock.now() + SOON_S)

    def drop(self, held: HeldT) -> None:
        """Have a partition no more, and wake a member that has none."""
        held.is_lost = True
        with self._guard:
            self._held.pop(held.partition, None)
        self._coordinator.release(self._line, UUID(int=held.partition), self._name)
        self._coordinator.wake(self._line, 1, self._name)
        self._look_at = 0.0

    def close(self) -> None:
        """Want nothing any more."""
        self._is_closed = True
        self._withdraw()

    def _heed_changes(self) -> None:
        """Look at the progress of each partition once the record's op is another: an operator came by."""
        record = self._context.known.look()
        checked = self.held()
        if record.op == self._seen_op:
            # Who reset the group may have died before its record said so: one partition at each look.
            self._turn += 1
            checked = checked[self._turn % len(checked) :][:1] if checked else []
        elif self._group.find() != self._id:
            raise GroupNotFoundError(f"group {self._line} was deleted, and made anew: open it again")
        for held in checked:
            with suppress(PartitionLostError):  # its next commit is told the same
                held.check()
        self._seen_op = record.op

    def _claim(self, count: int, taken: Collection[UUID]) -> None:
        """Claim so many of the partitions that are free, each member from another one on."""
        partitions = self._context.settings.partitions
        begin = new_token().int % partitions
        for partition in [*range(begin, partitions), *range(begin)]:
            pipe = UUID(int=partition)
            if count <= 0 or self._is_closed:
                return
            if pipe in taken or partition in self._held:
                continue
            if self._coordinator.claim(self._line, pipe, self._name):
                count -= self._take_over(partition, pipe)

    def _take_over(self, partition: int, pipe: UUID) -> bool:
        held = self._sharer.make_held(self._id)
        try:
            is_ours = held.take_over(partition)
        except CassqError as error:
            self._coordinator.release(self._line, pipe, self._name)
            if isinstance(error, PartitionLostError):
                self._group.find()  # where it is gone, that is what the caller hears
            raise
        if not is_ours:
            self._coordinator.release(self._line, pipe, self._name)
            return False
        with self._guard:
            self._held[partition] = held
        self._sharer.hear_of_share()
        return True

    def _withdraw(self) -> None:
        if self._is_hungry:
            self._is_hungry = False
            self._coordinator.withdraw_hunger(self._line, self._name)

    def _hear(self) -> None:
        self._is_hungry = False
        self._look_at = 0.0
        self._sharer.hear_of_share(is_urgent=True)

    def __str__(self) -> str:
        return self._line
