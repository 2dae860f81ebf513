"""One partition that a relay has: what it brings from the log into the queue.

Owns the pipe that it fills, which belongs to one epoch. Used by one thread at a time. What must not break:

- a pipe is named by the progress before it is created, and sealed before the progress leaves it;
- the last message that its seal lets in tells how far it came: the next relay begins behind it;
- a batch that was sent is sent again until it is acknowledged, before anything else is.
"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CorruptError, GroupNotFoundError, OutcomeUnknownError, PartitionLostError
from cassq.model.topic import Progress, ProgressKey, TopicMessage
from cassq.model.transaction import Seal, Transaction
from cassq.topics.log_reader import LogReader
from cassq.topics.relayed_pipe import Filling, RelayedPipes, cut_batch, pipe_after, to_batch
from cassq.topics.topic_context import TopicContext
from cassq.topics.wishes import Wishes

#: How often the progress is written while nothing else changes it: so that its lag is seen.
COMMIT_S = 1.0

#: How often a take-over is tried while others come between.
ATTEMPTS_MAX = 10

_ENDED = "the subscription was ended, or is about to be"

#: The owner of a partition that an operator moves, and of one that nobody is to have any more.
OPERATOR, NOBODY = "", "(ended)"


class RelayedPartition:
    """One partition in the hands of a relay.

    Args:
        target: the queue that it fills.
        group: the id of the subscription's group.
        member: who takes it over.
        wishes: which messages the queue has.
        on_pushed: hears how many messages became durable.

    Attributes:
        is_leaving: whether another relay is to have it.
        is_lost: whether another relay has it, or may have it.
    """

    def __init__(  # noqa: PLR0913 - what a relay is told
        self,
        context: TopicContext,
        target: QueueContext,
        group: UUID,
        member: str,
        *,
        wishes: Wishes,
        on_pushed: Callable[[int], None],
    ) -> None:
        self._context = context
        self._target = target
        self._storage = target.storage
        self._group = group
        self._member = member
        self._wishes = wishes
        self._on_pushed = on_pushed
        self._progress = Progress(0, 0, "", 1)
        self._pipes = RelayedPipes(target, member)
        self._filling: Filling | None = None
        self._log: LogReader | None = None
        self._waiting: list[TopicMessage] = []
        self._is_unsure = False
        self._written_at = float("-inf")
        self.is_leaving = False
        self.is_lost = False

    @property
    def partition(self) -> int:
        """Its number."""
        return self._progress.partition

    def take_over(self, partition: int) -> bool:
        """Begin an epoch; tell whether it began.

        Raises: GroupNotFoundError, PartitionLostError: the subscription was ended, or is about to be.
        """
        self._progress = replace(self._progress, partition=partition)
        for _ in range(ATTEMPTS_MAX):
            seen = self._context.storage.read_progress(self._group, partition)
            if seen is None:
                raise self._lost(_ENDED)
            if seen.owner == NOBODY and self._member not in {NOBODY, OPERATOR}:
                raise GroupNotFoundError(f"{self}: {_ENDED}")
            if self._change(seen, replace(seen, epoch=seen.epoch + 1, owner=self._member)):
                return True
        return False

    def check(self) -> None:
        """Look at the progress as it stands: a change whose answer got lost may have been applied.

        Raises: PartitionLostError: it is another one's.
        """
        found = self._context.storage.read_progress(self._group, self.partition)
        if found is None or found.owner != self._member:
            raise self._lost(f"{found.owner or 'an operator'} moved it" if found else _ENDED)
        self._progress, self._is_unsure = found, False
        if self._filling and found.pipe != self._filling.pipe:
            self._filling, self._waiting, self._log = None, [], None

    def step(self) -> bool:
        """Bring what comes next into the queue; tell whether there was anything.

        Raises:
            OffsetGoneError: what comes next was deleted by retention.
            PartitionLostError: another relay has it.
            UnavailableError, OutcomeUnknownError: call again.
        """
        self._target.record.check_open()
        if self._is_unsure:
            self.check()
        if self._progress.pipe and not self._filling:  # another relay's, or of before an answer got lost
            self._leave()
            if self._progress.pipe:
                return False
        log = self._log = self._log or LogReader(
            self._context, self.partition, self._progress.next, skips_gone=self._wishes.skips_gone
        )
        if not self._waiting:
            found = log.read()
            self._waiting = [each for each in found if self._wishes.wants(each)]
            has_moved = bool(found)
        else:
            has_moved = True
        while self._waiting:
            self._push_some()
            if self._progress.pipe and not self._filling:  # sealed, and not left
                return True
        if self._log is log:  # else its pipe was left, and what is behind that is read anew
            self._tend(log.next)
        return has_moved

    def leave(self) -> None:
        """Seal what it fills, so that another relay goes on at once.

        Raises: as `step`.
        """
        if self._filling and not self._waiting and self._log:
            self._roll(self._log.next)

    # What it fills

    def _push_some(self) -> None:
        """Append one batch of what waits; open a pipe where there is none with room for it."""
        filling, settings = self._filling, self._target.settings
        count, size = cut_batch(self._waiting, settings)
        if filling and not filling.sent and not filling.has_room(count, size, settings, self._now()):
            self._roll(self._waiting[0].offset)
            return
        filling = filling or self._open(self._waiting[0].offset)
        batch = filling.sent = filling.sent or to_batch(filling.count + 1, self._waiting[:count])
        self._storage.append(filling.pipe, batch)
        filling.sent = None
        filling.count += batch.count
        filling.size += batch.size
        del self._waiting[: batch.count]
        self._on_pushed(batch.count)

    def _open(self, following: int) -> Filling:
        """Name a pipe, then create it; messages before `following` are in the queue."""
        filling = Filling(pipe_after(self._progress.before), self._now())
        self._write(following, filling.pipe)
        self._pipes.create(self._key, filling.pipe)
        self._filling = filling
        return filling

    # How it ends

    def _tend(self, following: int) -> None:
        """Roll what is old; write how far all is in the queue, now and then."""
        if self._filling and self._filling.is_old(self._target.settings, self._now()):
            self._roll(following)
        elif following > self._progress.next and self._now() - self._written_at >= COMMIT_S:
            self._write(following, self._progress.pipe)

    def _roll(self, following: int) -> None:
        """Seal the pipe behind what is in it; then leave it."""
        filling = self._filling
        if filling is None:
            return
        self._filling = None  # where an answer gets lost, what stands there tells how far it came
        answer = self._storage.transact(filling.pipe, Transaction(Seal(filling.count, is_free=True)))
        if not answer.is_applied:
            self._leave()
        else:
            self._write(following, None)

    def _leave(self) -> None:
        """Have the pipe that the progress names end, and go on behind what is in it.

        While a popper holds a window of it nothing happens: the next call finds it over.

        Raises: CorruptError: the pipe is damaged, or gone.
        """
        pipe = self._progress.pipe
        try:
            self._leave_at(pipe)
        except CorruptError:
            self._target.record.read()  # it may have gone with the queue
            self.check()
            if self._progress.pipe == pipe:
                raise
            # A change that left it was applied after all, and it is gone since.

    def _leave_at(self, pipe: UUID | None) -> None:
        try:
            last = self._pipes.settle(self._key, pipe) if pipe else None
        except OutcomeUnknownError:
            self._is_unsure = True
            raise
        if pipe is None or last is None:
            return
        following = self._progress.next
        if last:
            following = max(following, self._pipes.offset_of(pipe, last) + 1)
        self._write(following, None)
        self._waiting, self._log = [], None

    # Its progress

    def _write(self, following: int, pipe: UUID | None) -> None:
        """Write that all before an offset is in the queue, and which pipe is filled.

        Raises: PartitionLostError: another relay has it.
        """
        seen = self._progress
        wanted = replace(
            seen, next=following, pipe=pipe, before=seen.before if pipe else seen.pipe or seen.before
        )
        # Two changes on the same epoch and offset might land in any order.
        if wanted.pipe != seen.pipe or following < seen.next:
            wanted = replace(wanted, epoch=seen.epoch + 1)
        self._written_at = self._now()
        if not self._change(seen, wanted):
            self.check()
            raise OutcomeUnknownError(f"{self}: its progress was another one than was thought; it goes on")

    def _change(self, seen: Progress, wanted: Progress) -> bool:
        storage, self._is_unsure = self._context.storage, True
        try:
            is_applied = storage.change_progress(self._group, seen, wanted)
        except OutcomeUnknownError:
            is_applied = storage.read_progress(self._group, seen.partition) == wanted
        self._is_unsure = False
        if is_applied:
            self._progress = wanted
        return is_applied

    @property
    def _key(self) -> ProgressKey:
        return ProgressKey(self._group, self.partition)

    def _now(self) -> float:
        return self._context.clock.now()

    def _lost(self, why: str) -> PartitionLostError:
        self.is_lost = True
        return PartitionLostError(f"{self}: {why}")

    def __str__(self) -> str:
        return f"topic {self._context.name!r}, partition {self.partition}, into queue {self._target.queue!r}"
