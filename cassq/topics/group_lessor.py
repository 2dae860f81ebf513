"""A member of a group that lends what it reads: each client has the next messages of one partition.

Owns one thread, which has the partitions, and the line of clients, which need none. A client is known by the
text that it was given, at any process. What must not break: of one partition one client has messages at a
time; what a client had that was given up it cannot commit once others have it.

    client                      member                     progress, epoch 4, next 100
    | lease ------------------> | reads 100 to 149         |
    | <--- 4, 100 to 149 ------ |                          |
    | commit, at any process ---------------------------> | next 150 IF 4, 100
    | (says nothing)            | its time is over:        |
    |                           | lets the partition go    | epoch 5, by whoever takes it
    | commit ---------------------------------------------> | refused: PartitionLostError
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from cassq.errors import (
    CassqError,
    ClosedError,
    OutcomeUnknownError,
    UnavailableError,
)
from cassq.model.arguments import check_count
from cassq.model.group_lease import GroupLease
from cassq.runtime.closing_block import ClosedByBlock
from cassq.runtime.outage_log import log_trouble
from cassq.runtime.periodic_thread import PeriodicStep, PeriodicThread
from cassq.runtime.reentry import Closing
from cassq.topics.bell import POLL_S, Bell
from cassq.topics.group import Group
from cassq.topics.group_leases import GroupLeases
from cassq.topics.group_line import GroupFuture, GroupLeased, GroupLine
from cassq.topics.lending import Lending
from cassq.topics.share import SHARE_S
from cassq.topics.topic_context import TopicContext
from cassq.topics.topic_reader import check_on_gone, filter_of
from cassq.topics.wishes import Wishes

_log = logging.getLogger("cassq.consumer")

#: So long a client has what it was lent, unless it says otherwise.
LEASE = timedelta(seconds=30)


class GroupLessor(ClosedByBlock):
    """Lends the messages of a group to clients; threads may share it. Made by `Topic.lessor`.

    Attributes:
        group: the group's name.
    """

    def __init__(self, context: TopicContext, bell: Bell, group: Group, on_gone: str) -> None:
        wishes = Wishes(filter_of(None), skips_gone=check_on_gone(on_gone))
        context.coordinator.may_take()  # where there is none it says so
        self.group = group.name
        self._context = context
        self._bell = bell
        self._lending = Lending(context, group, wishes, self._poke)
        self._leases = GroupLeases(context, self._lending.group_id)
        self._line = GroupLine(context.clock, self._poke)
        self._told: deque[Callable[[], None]] = deque()  # what the thread has to hear of
        self._closing = Closing(context.clock)
        self._guard = threading.RLock()  # of the step
        self._step: PeriodicStep | None = None
        self._error: CassqError | None = None
        self._is_listening = False
        self._poll_s = POLL_S

    def lease(
        self, limit: int = 100, timeout: float | timedelta | None = 0.0, *, lease: timedelta = LEASE
    ) -> GroupLeased | None:
        """Return the next messages of one partition, up to `limit`; waits for the first one.

        Args:
            timeout: how long it waits; 0 looks once, None waits for ever.
            lease: for how long they are this client's; then they are lent again.

        Returns: None where none came in time.

        Raises: as `Consumer.poll`.
        """
        return self.lease_soon(limit, lease=lease).wait(timeout)

    def lease_soon(self, limit: int = 100, *, lease: timedelta = LEASE) -> GroupFuture:
        """Return a future of what `lease` returns, in a list; thousands may wait, and need no thread.

        Raises: OverloadedError: 20 000 wait already.
        """
        check_count(limit)
        self._check_open()
        future = self._line.join(limit, lease, self._take_back)
        with self._guard:
            if self._step is None:
                thread = PeriodicThread(f"cassq-lend-{self._context.name}", self._context.clock)
                self._step = thread.repeat(f"{self}", self._run_once, SHARE_S)
        self._poll_s = POLL_S
        self._poke()
        if self.is_over:  # meanwhile: who ended the line may have done so before this
            self._line.end([future])
        return future

    def commit(self, token: str) -> None:
        """Say that the messages of a lease, of whatever process, were worked on; again does nothing.

        Raises:
            PartitionLostError: the partition changed hands: what was not committed before comes again.
            InvalidOptionError: the token is none of this group.
            OutcomeUnknownError, UnavailableError: call again.
        """
        self._check_open()
        lease = self._leases.commit(token)
        self._hear(partial(self._lending.note_committed, lease))

    def release(self, token: str) -> None:
        """Give back what was leased, at whatever process: it is lent again at once. Raises as `commit`."""
        self._check_open()
        lease = self._leases.release(token)
        self._hear(partial(self._lending.drop, lease))

    @property
    def is_busy(self) -> bool:
        """Whether clients wait, or have something."""
        return len(self._line) > 0 or any(held.lent for held in self._lending.held)

    @property
    def is_over(self) -> bool:
        """Whether it lends nothing any more: it was closed, or the group is gone."""
        return self._closing.has_begun or self._error is not None

    def close(self) -> None:
        """End its waits, and let others have the partitions; nothing in a forked child."""
        if self._context.guard.is_here:
            self._closing.run(self._close)

    def _close(self) -> None:
        with self._guard:
            step = self._step
        if step:
            step.close()
        self._bell.unlisten(self._lending.name)
        self._line.end_all()
        self._lending.close()

    def _check_open(self) -> None:
        self._context.guard.check(f"a lessor of topic {self._context.name!r}")
        if self._error:
            raise self._error
        if self._closing.has_begun:
            raise ClosedError(f"this lessor of topic {self._context.name!r} is closed: make another one")

    # What the thread does

    def _poke(self) -> None:
        if step := self._step:
            step.poke()

    def _hear(self, told: Callable[[], None]) -> None:
        self._told.append(told)
        self._poke()

    def _take_back(self, lease: GroupLease) -> None:
        self._hear(partial(self._lending.take_back, lease))

    def _hear_bell(self) -> None:
        self._is_listening = False
        self._poke()

    def _run_once(self) -> None:
        if self._error:
            return
        hurried = self._line.hurried()
        try:
            self._work()
        except (UnavailableError, OutcomeUnknownError) as error:
            log_trouble(_log, error, "%s: %s", self, error)
            self._line.end(hurried, error)
        except CassqError as error:  # there is no group, or no topic, any more
            self._error = error
            self._line.end_all(error)
            self._lending.close()
        else:
            self._line.end(hurried)

    def _work(self) -> None:
        while self._told:
            self._told.popleft()()
        self._lending.look(is_asked=len(self._line) > 0)
        self._poll_s = POLL_S if self._line and self._serve() else min(2 * self._poll_s, SHARE_S)
        if self._step:
            now = self._context.clock.now()
            self._step.seconds = max(
                0.0, min([self._poll_s, *(each - now for each in self._lending.ends_at())])
            )

    def _serve(self) -> bool:
        has_lent = self._lending.serve(self._line)
        if self._line and not self._is_listening:
            self._is_listening = self._bell.listen(self._lending.name, self._hear_bell)
            has_lent = self._lending.serve(self._line) or has_lent
        return has_lent

    def __repr__(self) -> str:
        return f"<GroupLessor {self._lending.name} of {self._context.name}~{self.group}>"
