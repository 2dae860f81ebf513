"""The partitions of a member that lends, and what its clients have of them; used by the member's thread.

Owns when a partition goes. What must not break: of one partition one client has messages at a time; what a
client has had for too long others get in another epoch alone.
"""

import logging
from collections.abc import Callable
from uuid import UUID

from cassq.errors import OffsetGoneError, PartitionLostError
from cassq.model.group_lease import GroupLease
from cassq.model.ids import new_token
from cassq.runtime.fork_guard import process_name
from cassq.topics.bell import POLL_S
from cassq.topics.group import Group
from cassq.topics.group_line import GroupLeased, GroupLine
from cassq.topics.lent_partition import LentPartition
from cassq.topics.share import Share
from cassq.topics.topic_context import TopicContext
from cassq.topics.wishes import Wishes

_log = logging.getLogger("cassq.consumer")

#: A member that no client asks lets go of what it has not lent after so long.
IDLE_S = 2.0


class Lending:
    """What one member has, and lends.

    Args:
        poke: has the thread look again soon.

    Attributes:
        group_id, name: the group's id; the member's name.
    """

    def __init__(self, context: TopicContext, group: Group, wishes: Wishes, poke: Callable[[], None]) -> None:
        self.group_id = group.find_own()
        self.name = f"{process_name()}-{str(new_token())[:8]}"
        self._context = context
        self._group = group
        self._wishes = wishes
        self._poke = poke
        self._share: Share[LentPartition] | None = None
        self._asked_at = self._seen_at = context.clock.now()
        self._turn = 0

    @property
    def held(self) -> list[LentPartition]:
        """The partitions that it has."""
        share = self._share
        return share.held() if share else []

    def ends_at(self) -> list[float]:
        """Return when clients are given up, by this process's clock."""
        return [held.lent.ends_at for held in self.held if held.lent]

    def look(self, *, is_asked: bool) -> None:
        """Have a share of the partitions while clients ask; see what became of what they have.

        Raises:
            UnavailableError, OutcomeUnknownError: the next look may do better.
            CassqError: the topic or the group was deleted.
        """
        now = self._context.clock.now()
        if is_asked:
            self._asked_at = now
        self._let_go(now, is_idle=now - self._asked_at >= IDLE_S)
        if not is_asked:
            return
        if self._share is None:
            self._share = Share(self._context, self._group, self.group_id, self.name, self)
        self._share.look()
        if now - self._seen_at >= POLL_S:
            self._seen_at = now
            self._see_away(self._share)

    def _let_go(self, now: float, *, is_idle: bool) -> None:
        """Let go of what is lost, what a client has for too long, and what nobody here wants."""
        share = self._share
        if share is None:
            return
        for held in share.held():
            if held.lent and held.lent.ends_at <= now:
                _log.info("%s: a client had messages of partition %d for too long", share, held.partition)
                share.drop(held)
            elif held.is_lost or not share.has(held) or (not held.lent and (held.is_leaving or is_idle)):
                share.drop(held)
        if is_idle and not share.held():
            self.close()

    def _see_away(self, share: Share[LentPartition]) -> None:
        """Look at what is lent: clients commit at whatever process they like."""
        for held in share.held():
            if held.lent:
                try:
                    held.see()
                except PartitionLostError as error:
                    _log.info("%s", error)
                    share.drop(held)
                    self._poke()  # it may be taken over again at once

    def serve(self, line: GroupLine) -> bool:
        """Let clients in line have messages, from each partition in turn; tell whether one got some.

        Raises: as a read.
        """
        held, has_lent = self.held, False
        self._turn += 1
        for place in range(len(held)):
            each = held[(self._turn + place) % len(held)]
            if self._share and self._share.has(each) and not (each.is_leaving or each.is_lost):
                has_lent = self._serve_from(each, line) or has_lent
        return has_lent

    def _serve_from(self, held: LentPartition, line: GroupLine) -> bool:
        while client := line.first():
            ends_at = self._context.clock.now() + client.lease_s
            try:
                lent = held.lend(client.limit, ends_at)
            except OffsetGoneError as error:
                line.end([client], error)
                return False
            if lent is None:
                return False
            if client.give(GroupLeased.of(lent, self.group_id)):
                return True
            held.take_back()
        return False

    def note_committed(self, lease: GroupLease) -> None:
        """Hear that a client has committed at this process."""
        if held := self._find(lease):
            held.note_committed(lease.next)

    def drop(self, lease: GroupLease) -> None:
        """Hear that a client has given its lease back at this process."""
        if (held := self._find(lease)) and self._share:
            self._share.drop(held)

    def take_back(self, lease: GroupLease) -> None:
        """Hear that no client ever heard of a lease."""
        if held := self._find(lease):
            held.take_back()

    def _find(self, lease: GroupLease) -> LentPartition | None:
        return next((held for held in self.held if held.lent and held.lent.lease == lease), None)

    def close(self) -> None:
        """Let others have all, until somebody asks again."""
        share, self._share = self._share, None
        if share:
            for held in share.held():
                share.drop(held)
            share.close()

    # What the share asks

    def make_held(self, group: UUID) -> LentPartition:
        """Return what holds a partition of the group, once it is taken over."""
        return LentPartition(self._context, group, self.name, self._wishes)

    def leave(self, held: LentPartition) -> None:
        """Lend nothing of a partition any more; it goes once nobody has something of it."""
        held.is_leaving = True
        self._poke()

    def hear_of_share(self, *, is_urgent: bool = False) -> None:
        """Hear that there are other partitions."""
        if is_urgent:
            self._poke()
