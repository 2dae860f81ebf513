"""A member of a group: what it hands out, and when it commits.

Owns the thread that commits and looks after the share. What must not break: what is handed out is of a
partition whose claim stands, and was read in its epoch.
"""

import logging
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Literal
from uuid import UUID

from cassq.errors import (
    CassqError,
    ClosedError,
    InvalidOptionError,
    OutcomeUnknownError,
    PartitionLostError,
    UnavailableError,
)
from cassq.model.arguments import check_count, seconds_of
from cassq.model.ids import new_token, shorten
from cassq.runtime.clock import rest
from cassq.runtime.closing_block import ClosedByBlock
from cassq.runtime.deadline import Deadline
from cassq.runtime.fork_guard import process_name
from cassq.runtime.outage_log import log_trouble
from cassq.runtime.periodic_thread import PeriodicThread
from cassq.runtime.reentry import Closing
from cassq.topics.bell import POLL_MAX_S, POLL_S, Bell, Listener
from cassq.topics.group import Group
from cassq.topics.group_message import GroupMessage
from cassq.topics.held_partition import HeldPartition
from cassq.topics.share import Share
from cassq.topics.topic_context import TopicContext
from cassq.topics.topic_reader import LOOK_S, Start, check_on_gone, filter_of
from cassq.topics.wishes import Wishes

_log = logging.getLogger("cassq.consumer")

#: How often grouped commits are written.
COMMIT_S = 0.1

CommitHow = Literal["grouped", "each", "manual"]


class Consumer(ClosedByBlock):
    """One member of a group; made by `Topic.consumer`. One thread polls; messages may end on any.

    Close it, or use it as a context manager, so that others have its partitions at once.
    """

    def __init__(  # noqa: PLR0913 - what a consumer is asked for
        self,
        context: TopicContext,
        bell: Bell,
        group: Group,
        *,
        commit: CommitHow,
        types: Collection[str] | None,
        start: Start,
        on_gone: str = "error",
    ) -> None:
        if commit not in {"grouped", "each", "manual"}:
            raise InvalidOptionError(f"commit={shorten(commit)} must be 'grouped', 'each' or 'manual'")
        self._wishes = Wishes(filter_of(types), commit == "each", check_on_gone(on_gone))
        context.coordinator.may_take()  # where there is none it says so
        self._context = context
        self._commit = commit
        self._name = f"{process_name()}-{str(new_token())[:8]}"
        self._listener = Listener(bell, self._name, context.clock)
        self._closing = Closing(context.clock)
        self._guard = threading.RLock()  # of what is read, and not handed out
        self._ready: deque[GroupMessage] = deque()
        self._turn = 0
        self._error: CassqError | None = None
        self._share = Share(context, group, group.ensure(start), self._name, self)
        thread = PeriodicThread(f"cassq-group-{context.name}", context.clock)
        self._step = thread.repeat(f"group {group.name} of topic {context.name}", self._tend, COMMIT_S)
        self._step.poke()

    @property
    def partitions(self) -> list[int]:
        """The partitions that it has now."""
        return sorted(held.partition for held in self._share.held() if not held.is_leaving)

    def poll(self, limit: int = 100, timeout: float | timedelta | None = 0.0) -> list[GroupMessage]:
        """Return up to `limit` messages, at once where some are there; waits for the first one.

        Args:
            timeout: how long it waits; 0 looks once, None waits for ever.

        Raises:
            OffsetGoneError: what comes next was deleted by retention: `Topic.reset` the group, or open the
                consumer with `on_gone="oldest"`.
            TopicNotFoundError, GroupNotFoundError, ClosedError: the topic or the group was deleted; it was
                closed.
            StorageUnavailableError: nothing was read; call again.
        """
        check_count(limit)
        handed: list[GroupMessage] = []
        try:
            self._poll(limit, seconds_of(timeout), handed)
            return handed  # noqa: TRY300 - a signal may come here, too
        except BaseException:  # they come again
            for message in handed:
                message.again()
            raise

    def _poll(self, limit: int, timeout_s: float, handed: list[GroupMessage]) -> None:
        ends_at = self._context.clock.now() + timeout_s
        poll_s = POLL_S
        while True:
            self._check_open()
            with Deadline(max(ends_at, self._context.clock.now() + LOOK_S)):
                has_moved = self._fill()
            self._take(limit, handed)
            left_s = ends_at - self._context.clock.now()
            if handed or left_s <= 0:
                return
            if not has_moved:
                self._listener.sleep(min(left_s, poll_s), self._fill)
                poll_s = min(2 * poll_s, POLL_MAX_S)

    def __iter__(self) -> Iterator[GroupMessage]:
        """Yield each message as it comes; ends when the consumer is closed.

        Where the database is out of reach it waits for it, and the log tells.
        """
        while not self._listener.is_closed:
            try:
                found = self.poll(1, POLL_MAX_S)
            except UnavailableError as error:
                log_trouble(_log, error, "%s: %s", self, error)
                rest(self._context.clock, POLL_S)
                continue
            except ClosedError:
                if not self._listener.is_closed:
                    raise  # the store was
                return
            yield from found

    def commit(self, messages: Sequence[GroupMessage] = ()) -> None:
        """Say that messages were worked on, and write all progress there is.

        Raises:
            PartitionLostError: another member has a partition now, and may get its messages again; what there
                is of the others is written.
            UnavailableError, OutcomeUnknownError: it may not be written yet: call again.
        """
        self._check_here()
        if not isinstance(messages, Sequence) or not all(isinstance(each, GroupMessage) for each in messages):
            raise InvalidOptionError(f"messages={shorten(messages)} must be a list of what `poll` returned")
        lost: PartitionLostError | None = None
        for message in messages:
            try:
                message.done()
            except PartitionLostError as error:
                lost = error
        # A partition may have gone between the end of a message and now: then it is no more among the held.
        for held in dict.fromkeys([*self._share.held(), *(each.held for each in messages)]):
            try:
                held.commit_all()
            except PartitionLostError as error:
                lost = error
        if lost:
            raise lost

    def close(self) -> None:
        """Write what is done, and let others have the partitions; nothing in a forked child."""
        if self._context.guard.is_here:
            self._closing.run(self._close)

    def _close(self) -> None:
        self._listener.close()
        self._step.close()
        self._let_all_go()

    def _check_here(self) -> None:
        self._context.guard.check(f"a consumer of topic {self._context.name!r}")

    def _check_open(self) -> None:
        self._check_here()
        if self._error:
            raise self._error
        if self._listener.is_closed or self._closing.has_begun:
            raise ClosedError(f"this consumer of topic {self._context.name!r} is closed: make another one")

    # What is handed out

    def _fill(self) -> bool:
        """Read of each partition in turn until one has what is wanted; tell whether there was anything."""
        with self._guard:
            while self._ready and not self._ready[0].is_out:
                self._ready.popleft()
            if self._ready:
                return True
        held = self._share.held()
        self._turn += 1
        for place in range(len(held)):
            each = held[(self._turn + place) % len(held)]
            if self._share.has(each) and each.read(self._ready):
                self._listener.note_found(max(1, len(self._ready)))
                return True
        return False

    def _take(self, limit: int, handed: list[GroupMessage]) -> None:
        with self._guard:
            while self._ready and len(handed) < limit:
                if self._ready[0].is_out:
                    handed.append(self._ready[0])
                self._ready.popleft()

    # What it does besides

    def make_held(self, group: UUID) -> HeldPartition:
        """Return what holds a partition of the group, once it is taken over."""
        return HeldPartition(self._context, group, self._name, self._wishes)

    def leave(self, held: HeldPartition) -> None:
        """Hand nothing out of a partition any more; it goes once what was handed out has ended."""
        with self._guard:
            held.leave(list(self._ready))

    def hear_of_share(self, *, is_urgent: bool = False) -> None:
        """Hear that there are other partitions, or that the share is to be looked at soon."""
        if is_urgent:
            self._step.poke()
        self._listener.stir()

    def _tend(self) -> None:
        """Commit, let go of what others miss, and look at the share."""
        if self._error:
            return
        try:
            self._commit_all()
            self._share.look()
        except (UnavailableError, OutcomeUnknownError) as error:
            log_trouble(_log, error, "%s: its share waits: %s", self, error)
        except CassqError as error:
            # There is no group any more, or a commit was refused for good: who polls hears of it, and of
            # nothing else, and others may have all.
            self._error = error
            self._listener.stir()
            self._let_all_go()
            self._step.close()

    def _commit_all(self) -> None:
        for held in self._share.held():
            try:
                if held.is_lost or not self._share.has(held):
                    self._share.drop(held)
                elif held.is_leaving and held.is_idle:
                    self._settle(held)
                elif self._commit != "manual":
                    held.commit()
            except PartitionLostError as error:
                _log.info("%s", error)
                self._share.drop(held)
            except (UnavailableError, OutcomeUnknownError) as error:
                log_trouble(_log, error, "%s: its progress waits to be written: %s", self, error)

    def _settle(self, held: HeldPartition) -> None:
        """Let a partition go that others miss, once what is done is committed."""
        if self._commit != "manual":
            held.commit_all()
        if held.is_committed:
            self._share.drop(held)

    def _let_all_go(self) -> None:
        for held in self._share.held():
            self._let_go(held)
        self._share.close()

    def _let_go(self, held: HeldPartition) -> None:
        try:
            if self._commit != "manual":
                held.commit_all()
        except CassqError as error:
            log_trouble(_log, error, "%s: what was done may come again: %s", self, error)
        self._share.drop(held)

    def __repr__(self) -> str:
        return f"<Consumer {self._name} of {self._share}>"
