"""The clients that wait for messages of a group: a line, and none of them needs a thread.

Owns how their futures end. What must not break: what a client was given that wants nothing any more goes to
the next one, and each future ends once.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self
from uuid import UUID

from cassq.errors import CassqError, InvalidOptionError, OverloadedError
from cassq.model.arguments import seconds_of
from cassq.model.group_lease import GroupLease
from cassq.model.ids import shorten
from cassq.popping.pop_future import WAITERS_MAX
from cassq.runtime.clock import Clock
from cassq.runtime.reentry import check_may_wait
from cassq.topics.group_message import GroupMessage
from cassq.topics.lent_partition import Lent

#: A client has what it was lent for so long: at least, and at most.
LEASE_S_MIN = 1.0
LEASE_S_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class GroupLeased:
    """The next messages of one partition, which one client has.

    Attributes:
        partition: the partition.
        token: what the client commits them by, at any process.
        messages: in order.
        epoch: how often the partition changed hands: a fencing token for other stores.
    """

    partition: int
    token: str = field(repr=False)
    messages: Sequence[GroupMessage]
    epoch: int
    _lease: GroupLease = field(repr=False)

    @classmethod
    def of(cls, lent: Lent, group: UUID) -> Self:
        """Return what a client is given."""
        lease = lent.lease
        return cls(lease.partition, lease.to_text(group), lent.messages, lease.epoch, lease)


class GroupFuture(Future[list[GroupLeased]]):
    """The future of what a client gets: a list of one, or an empty one once it was hurried, or is closed.

    Attributes:
        limit: see `GroupLessor.lease`.
        lease_s: for how long its client has what it gets.
        is_hurried: whether it ends with the next look.
    """

    def __init__(
        self,
        limit: int,
        lease_s: float,
        poke: Callable[[], None],
        take_back: Callable[[GroupLease], None],
    ) -> None:
        super().__init__()
        self.limit = limit
        self.lease_s = lease_s
        self.is_hurried = False
        self._poke = poke
        self._take_back = take_back

    def hurry(self, *, is_looking: bool = True) -> None:
        """Have one look made, and end with what it finds, be it nothing."""
        del is_looking
        self.is_hurried = True
        self._poke()

    def give_back(self) -> None:
        """Want nothing of it: nobody was told what it ended with, and the next client in line has that."""
        if not self.cancel():
            self.add_done_callback(self._return)

    def _return(self, ended: "Future[list[GroupLeased]]") -> None:
        if not ended.cancelled() and not ended.exception():
            for leased in ended.result():
                self._take_back(leased._lease)  # noqa: SLF001 - our own

    def give(self, leased: GroupLeased | None) -> bool:
        """End with this; False: it was cancelled."""
        if self.set_running_or_notify_cancel():
            self.set_result([leased] if leased else [])
            return True
        return False

    def wait(self, timeout: float | timedelta | None) -> GroupLeased | None:
        """Wait for at most so long, and return what came."""
        check_may_wait("a lease")
        try:
            done, _ = wait_for((self,), None if timeout is None else seconds_of(timeout))
            if not done:
                self.hurry()
            found = self.result()
        except BaseException:
            self.give_back()
            raise
        return found[0] if found else None


class GroupLine:
    """The line.

    Args:
        poke: has its head looked after.
    """

    def __init__(self, clock: Clock, poke: Callable[[], None]) -> None:
        self._clock = clock
        self._poke = poke
        self._guard = threading.RLock()
        self._clients: OrderedDict[GroupFuture, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clients)

    def join(self, limit: int, lease: timedelta, take_back: Callable[[GroupLease], None]) -> GroupFuture:
        """Stand in line.

        Raises: OverloadedError: too many do. InvalidOptionError: `lease` is out of range.
        """
        if not isinstance(lease, timedelta) or not LEASE_S_MIN <= lease.total_seconds() <= LEASE_S_MAX:
            raise InvalidOptionError(
                f"lease={shorten(lease)} must be a timedelta of {LEASE_S_MIN:g} s to {LEASE_S_MAX:g} s"
            )
        with self._guard:
            if len(self._clients) >= WAITERS_MAX:
                raise OverloadedError(f"{WAITERS_MAX} wait already: let some of them end first")
            future = GroupFuture(limit, lease.total_seconds(), self._poke, take_back)
            self._clients[future] = None
        future.add_done_callback(self._leave)
        return future

    def _leave(self, future: "Future[list[GroupLeased]]") -> None:
        with self._guard:
            self._clients.pop(future, None)  # type: ignore[call-overload]

    def first(self) -> GroupFuture | None:
        """Return who waits for the longest time."""
        with self._guard:
            return next(iter(self._clients), None)

    def hurried(self) -> list[GroupFuture]:
        """Return those that end with the look that begins now."""
        with self._guard:
            return [each for each in self._clients if each.is_hurried]

    def end(self, clients: Iterable[GroupFuture], error: CassqError | None = None) -> None:
        """Let those that have nothing yet end with nothing, or with an error."""
        for each in clients:
            if each.done():
                continue
            if error is None:
                each.give(None)
            elif each.set_running_or_notify_cancel():
                each.set_exception(error)

    def end_all(self, error: CassqError | None = None) -> None:
        """Let all end."""
        with self._guard:
            clients = list(self._clients)
        self.end(clients, error)
