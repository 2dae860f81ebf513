"""One partition that a member of a group has: what it reads, what it handed out, what it commits.

Owns the progress in one epoch. What must not break: nothing is handed out before the take-over is known to be
applied; a commit never passes a message that was handed out and has not ended, and never moves back.

    consumer A, epoch 4            progress                    consumer B
    | has 100 to 199; frozen       | 4, next 100               |
    |                              | <-- epoch 5 IF 4, 100 --- | A's session has ended
    |                              | <-- next 150 IF 5, 100 -- | handed out from 100 on
    | thawed: next 200 IF 4, 100 ->| refused: PartitionLostError; A drops what it has
"""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from uuid import UUID

from cassq.errors import CassqError, OutcomeUnknownError, PartitionLostError
from cassq.model.topic import Progress
from cassq.runtime.reentry import alone
from cassq.topics.group_message import GroupMessage
from cassq.topics.log_reader import LogReader
from cassq.topics.topic_context import TopicContext
from cassq.topics.wishes import Wishes

#: How often a take-over is tried again while others change the progress.
TAKE_ATTEMPTS = 10

#: So many messages are handed out and have not ended, at most: what is behind them waits.
OUT_MAX = 10_000


class HeldPartition:
    """One partition in the hands of a member.

    Args:
        group: the group's id.
        member: who takes it over.
        wishes: what it wants to be handed.

    Attributes:
        is_leaving: whether nothing is handed out any more, so that another member can have it.
        is_lost: whether another member has it, or may have it.
    """

    def __init__(
        self,
        context: TopicContext,
        group: UUID,
        member: str,
        wishes: Wishes,
    ) -> None:
        self._storage = context.storage
        self._context = context
        self._group = group
        self._member = member
        self._wishes = wishes
        self._guard = threading.RLock()  # of what stands below it
        self._out: deque[GroupMessage] = deque()
        self._read_to = self._done_to = 0
        self._goes_back_to: int | None = None
        self._committing = threading.RLock()
        self._progress = Progress(0, 0, "", 1)
        self._log: LogReader | None = None
        self.is_leaving = False
        self.is_lost = False

    @property
    def partition(self) -> int:
        """Its number."""
        return self._progress.partition

    @property
    def epoch(self) -> int:
        """The epoch in which the member has it."""
        return self._progress.epoch

    @property
    def is_idle(self) -> bool:
        """Whether all that was handed out has ended."""
        with self._guard:
            return not self._out

    @property
    def is_committed(self) -> bool:
        """Whether the progress has passed all that is done, with all before it."""
        with self._guard:
            return self._done_to <= self._progress.next

    def has_read(self, offset: int) -> bool:
        """Tell whether it is past an offset; where a signal ended a read it is not, and reads it again."""
        return offset < self._read_to

    def take_over(self, partition: int) -> bool:
        """Begin an epoch; tell whether it began.

        Raises: PartitionLostError: the group was deleted.
        """
        self._progress = replace(self._progress, partition=partition)
        for _ in range(TAKE_ATTEMPTS):
            seen = self._storage.read_progress(self._group, partition)
            if seen is None:
                raise self._lost("the group was deleted")
            wanted = Progress(partition, seen.epoch + 1, self._member, seen.next)
            try:
                is_applied = self._storage.change_progress(self._group, seen, wanted)
            except OutcomeUnknownError:
                is_applied = self._storage.read_progress(self._group, partition) == wanted
            if is_applied:
                self._progress, self._read_to = wanted, wanted.next
                self._log = LogReader(
                    self._context, partition, wanted.next, skips_gone=self._wishes.skips_gone
                )
                return True
        return False

    def read(self, ready: deque[GroupMessage]) -> bool:
        """Put what comes next on `ready`; tell whether there was anything. Called by one thread at a time.

        A signal in the middle of it moves nothing: what had come already is dropped, and comes again.

        Raises: OffsetGoneError: what comes next was deleted by retention.
        """
        log = self._log
        if log is None or self.is_leaving or self.is_lost or len(self._out) >= OUT_MAX:
            return False
        with self._guard:
            while self._out and self._out[-1].offset >= self._read_to:
                self._out[-1].is_dropped = True
                self._out.pop()
            if log.next != self._read_to:
                log.seek(self._read_to)
            self._goes_back_to = None
        try:
            found = log.read()
        except CassqError:  # what is gone was skipped, maybe
            self._move_to(log.next)
            raise
        with self._guard:
            if self._goes_back_to is not None or self.is_leaving or self.is_lost:
                return False
            handed = [GroupMessage(each, self) for each in found if self._wishes.wants(each)]
            self._out.extend(handed)
            ready.extend(handed)
            self._read_to = log.next
            return bool(handed)

    def leave(self, ready: Iterable[GroupMessage]) -> None:
        """Hand nothing out any more, and have back what is ready and was not handed out."""
        with self._guard:
            self.is_leaving = True
            waiting = (each for each in ready if each.held is self and each.is_out)
            if first := next(waiting, None):
                self.rewind(first.offset)

    def _move_to(self, offset: int) -> None:
        with self._guard:
            if self._goes_back_to is None:
                self._read_to = offset

    def end(self, message: GroupMessage) -> None:
        """See `GroupMessage.done`."""
        self._context.guard.check(f"a consumer of topic {self._context.name!r}")
        if self.is_lost:
            raise self._lost("another member has it, or may have it")
        with self._guard:
            message.is_done = True
            while self._out and self._out[0].is_done:
                self._done_to = self._out.popleft().offset + 1
        if self._wishes.is_each:
            self.commit_all()

    def rewind(self, offset: int) -> None:
        """See `GroupMessage.again`."""
        with self._guard:
            if offset >= self._read_to:
                return  # it went back before, and is about to come again
            self._goes_back_to = self._read_to = offset
            self._done_to = min(self._done_to, offset)
            for each in self._out:
                each.is_dropped = each.offset >= offset
            self._out = deque(each for each in self._out if not each.is_dropped)

    def commit(self) -> bool:
        """Write how far all is done; tell whether that stands.

        Raises:
            PartitionLostError: another member has it.
            UnavailableError, OutcomeUnknownError: call again.
        """
        with alone(self._committing, "a commit"):
            with self._guard:
                to = min([self._read_to, *(each.offset for each in islice(self._out, 1))])
            if self.is_lost:
                raise self._lost("another member has it, or may have it")
            if to <= self._progress.next:
                return True
            wanted = replace(self._progress, next=to)
            if self._storage.change_progress(self._group, self._progress, wanted):
                self._progress = wanted
                return True
            return self._look()

    def commit_all(self) -> None:
        """Write how far all is done, again and again until it stands.

        Raises: see `commit`.
        """
        while not self.commit():
            pass

    def _look(self) -> bool:
        """See who has it, after a refusal: a commit of this epoch may have landed that was thought lost."""
        self.check()
        return False

    def check(self) -> None:
        """Look at the progress as it stands.

        Raises: PartitionLostError: it is another one's.
        """
        found = self._storage.read_progress(self._group, self.partition)
        if found is None or (found.epoch, found.owner) != (self.epoch, self._member):
            self.is_lost = True
            raise self._lost(f"{found.owner or 'an operator'} moved it" if found else "the group was deleted")
        self._progress = found

    def _lost(self, why: str) -> PartitionLostError:
        return PartitionLostError(
            f"topic {self._context.name!r}, partition {self.partition}: {why}: what was handed out of it and "
            "is not committed comes again, maybe elsewhere"
        )
