"""One partition whose messages a member of a group lends to clients: to one of them at a time.

Owns what is lent of it, and until when. What must not break: nothing is lent before what was lent in this
epoch is known to be committed; where it is not, the partition goes, and the next epoch begins with it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from cassq.model.group_lease import GroupLease
from cassq.model.message import size_of
from cassq.topics.group_message import GroupMessage
from cassq.topics.held_partition import HeldPartition
from cassq.topics.pages import PAGE_BYTES
from cassq.topics.topic_context import TopicContext
from cassq.topics.wishes import Wishes


@dataclass(frozen=True, slots=True)
class Lent:
    """What one client has of a partition.

    Attributes:
        lease: what it is known by, at any process.
        messages: in order.
        ends_at: when the member gives its client up, by its own clock.
    """

    lease: GroupLease
    messages: Sequence[GroupMessage]
    ends_at: float


class LentPartition(HeldPartition):
    """One partition of a member that lends; used by that member's thread alone.

    Attributes:
        lent: what a client has of it now.
    """

    def __init__(self, context: TopicContext, group: UUID, member: str, wishes: Wishes) -> None:
        super().__init__(context, group, member, wishes)
        self._ready: deque[GroupMessage] = deque()
        self.lent: Lent | None = None

    def lend(self, limit: int, ends_at: float) -> Lent | None:
        """Lend up to so many messages, 4 MiB of them, or one; None where nothing is there.

        Raises: as `HeldPartition.read`.
        """
        if self.lent or not (self._ready or self.read(self._ready)):
            return None
        messages: list[GroupMessage] = []
        size = 0
        while self._ready and len(messages) < limit:
            size += size_of(self._ready[0].body, self._ready[0].headers)
            if messages and size > PAGE_BYTES:
                break
            messages.append(self._ready.popleft())
        after = replace(self._progress, next=messages[-1].offset + 1)
        lease = GroupLease(self.partition, self.epoch, self._progress.next, after.next, self._member)
        self.lent = Lent(lease, messages, ends_at)
        return self.lent

    def note_committed(self, after: int) -> None:
        """Hear where the group goes on, in this epoch: behind what is lent, its client is done."""
        if self.lent is None or after < self.lent.lease.next or self.is_lost:
            return
        self._progress = replace(self._progress, next=after)
        for message in self.lent.messages:
            message.done()
        self.lent = None

    def see(self) -> None:
        """Look at the progress: a commit at another process may have moved it.

        Raises: PartitionLostError: the partition is another one's, or its client gave it back.
        """
        self.check()
        self.note_committed(self._progress.next)

    def take_back(self) -> None:
        """Have what is lent again: its client never heard of it, so nobody can commit it."""
        if self.lent:
            self.lent.messages[0].again()
            self._ready.clear()
            self.lent = None
