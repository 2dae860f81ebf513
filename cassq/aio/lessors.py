"""Leases to clients for a program that awaits: of a queue, and of a group of a topic.

Owns what becomes of a lease whose task is cancelled: others get it, and no attempt is counted. What must not
break: each call takes the arguments of its synchronous twin.
"""

from datetime import timedelta

from cassq.aio.popper import come_to
from cassq.aio.twins import ClosingTwin, TwinOf, in_thread
from cassq.model.arguments import seconds_of
from cassq.model.lease import Lease
from cassq.popping.leases import Leases as SyncLeases
from cassq.popping.lessor import Leased
from cassq.popping.lessor import Lessor as SyncLessor
from cassq.topics.group_lessor import LEASE
from cassq.topics.group_lessor import GroupLessor as SyncGroupLessor
from cassq.topics.group_line import GroupLeased


class Lessor(ClosingTwin[SyncLessor]):
    """Leases messages of one queue to clients; tasks may share one. See `cassq.Lessor`.

    Attributes:
        sync: the lessor that this one calls.
        queue: see `cassq.Lessor`.
    """

    def __init__(self, sync: SyncLessor) -> None:
        super().__init__(sync)
        self.queue = sync.queue

    @property
    def is_closed(self) -> bool:
        """See `cassq.Lessor.is_closed`."""
        return self.sync.is_closed

    async def lease(self, count: int, timeout: float | timedelta | None = None) -> list[Leased]:
        """Return leases of up to `count` messages together; see `cassq.Lessor.lease`.

        Where it is cancelled, what was about to come goes to others, and no attempt is counted.
        """
        return await come_to(self.sync.lease_soon(count), None if timeout is None else seconds_of(timeout))


class Leases(TwinOf[SyncLeases]):
    """The leases of one queue, by their tokens; see `cassq.Leases`.

    Attributes:
        sync: the leases that this one calls.
    """

    @property
    def incarnation(self) -> bytes:
        """See `cassq.Leases.incarnation`."""
        return self.sync.incarnation

    def left_s(self, lease: Lease) -> float:
        """See `cassq.Leases.left_s`; reads nothing."""
        return self.sync.left_s(lease)

    commit = in_thread(SyncLeases.commit)
    settle = in_thread(SyncLeases.settle)
    extend = in_thread(SyncLeases.extend)
    give_back = in_thread(SyncLeases.give_back)


class GroupLessor(ClosingTwin[SyncGroupLessor]):
    """Lends the messages of a group to clients; tasks may share one. See `cassq.GroupLessor`.

    Attributes:
        sync: the lessor that this one calls.
        group: see `cassq.GroupLessor`.
    """

    def __init__(self, sync: SyncGroupLessor) -> None:
        super().__init__(sync)
        self.group = sync.group

    @property
    def is_busy(self) -> bool:
        """See `cassq.GroupLessor.is_busy`."""
        return self.sync.is_busy

    @property
    def is_over(self) -> bool:
        """See `cassq.GroupLessor.is_over`."""
        return self.sync.is_over

    async def lease(
        self, limit: int = 100, timeout: float | timedelta | None = 0.0, *, lease: timedelta = LEASE
    ) -> GroupLeased | None:
        """Return the next messages of one partition; see `cassq.GroupLessor.lease`.

        Where it is cancelled, what was about to come goes to the next client.
        """
        seconds = None if timeout is None else seconds_of(timeout)
        found = await come_to(self.sync.lease_soon(limit, lease=lease), seconds)
        return found[0] if found else None

    commit = in_thread(SyncGroupLessor.commit)
    release = in_thread(SyncGroupLessor.release)
