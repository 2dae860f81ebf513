"""One partition that a relay has: what it brings from the log into the queue.

Owns the pipe that it fills, which belongs to one epoch. Used by one thread at a time. What must not break:

- a pipe is named by the progress before it is created, and sealed before the progress leaves it;
- the last message that its seal lets in tells how far it came: the next relay begins behind it;
- a batch that was sent is sent again until it is acknowledged, before anything else is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CorruptError, GroupNotFoundError, OutcomeUnknownError, PartitionLostError
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, UNDECIDED, WINDOW_OUT
from cassq.model.ids import id_time_ms, new_pipe_id
from cassq.model.message import Batch, size_of
from cassq.model.pipe import Head, Phase, PipeEntry
from cassq.model.topic import OFFSET_HEADER, Position, Progress, ProgressKey, TopicMessage
from cassq.model.transaction import Seal, Transaction
from cassq.pipes import upkeep, window_steps
from cassq.pipes.fenced_pipe import FencedPipe, Taker
from cassq.pipes.outside_view import find_newest
from cassq.pipes.relayed import pusher_of
from cassq.runtime.clock import rest
from cassq.storage.forms import BatchQuery
from cassq.topics.log_reader import LogReader
from cassq.topics.topic_context import TopicContext

#: How often the progress is written while nothing else changes it: so that its lag is seen.
COMMIT_S = 1.0

#: What the header that tells a message's place adds to it, at the most.
_HEADER_BYTES = len(OFFSET_HEADER) + 24

#: The pause of an operator while a popper holds a window.
WINDOW_REST_S = 0.1

#: How often a take-over, or a seal, is tried while others come between.
ATTEMPTS_MAX = 10

_ENDED = "the subscription was ended, or is about to be"

#: The owner of a partition that an operator moves, and of one that nobody is to have any more.
_OPERATOR, _NOBODY = "", "(ended)"


@dataclass(slots=True)
class _Filling:
    """The pipe that is being filled.

    Attributes:
        opened_at: the clock's reading before it was named.
        count, size: messages that are acknowledged, and their bytes.
        sent: a batch that is not acknowledged.
    """

    pipe: UUID
    opened_at: float
    count: int = 0
    size: int = 0
    sent: Batch | None = None


class RelayedPartition:
    """One partition in the hands of a relay.

    Args:
        target: the queue that it fills.
        group: the id of the subscription's group.
        member: who takes it over.
        wants: tells which messages the queue has.
        skips_gone: see `Subscription`.
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
        wants: Callable[[TopicMessage], bool],
        skips_gone: bool,
        on_pushed: Callable[[int], None],
    ) -> None:
        self._context = context
        self._target = target
        self._storage = target.storage
        self._group = group
        self._member = member
        self._wants = wants
        self._skips_gone = skips_gone
        self._on_pushed = on_pushed
        self._progress = Progress(0, 0, "", 1)
        self._filling: _Filling | None = None
        self._log: LogReader | None = None
        self._waiting: list[TopicMessage] = []
        self._is_unsure = False
        self._written_at = float("-inf")
        self.is_leaving = False
        self.is_lost = False

    @classmethod
    def of_operator(cls, context: TopicContext, target: QueueContext, group: UUID, *, is_end: bool) -> Self:
        """Return one that relays nothing.

        Args:
            is_end: no relay is to take a partition over after it.
        """
        return cls(
            *(context, target, group, _NOBODY if is_end else _OPERATOR),
            wants=lambda _: False,
            skips_gone=False,
            on_pushed=lambda _: None,
        )

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
            if seen.owner == _NOBODY and self._member not in {_NOBODY, _OPERATOR}:
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
            self._context, self.partition, self._progress.next, skips_gone=self._skips_gone
        )
        if not self._waiting:
            found = log.read()
            self._waiting = [each for each in found if self._wants(each)]
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

    def stop_at(self, partition: int, offset: int | None = None) -> bool:
        """For an operator: have relays go on at another offset, and nothing come that was under way.

        Args:
            offset: None: nobody goes on.

        Returns: False: others came between.
        """
        try:
            if not self.take_over(partition):
                return False
            while self._progress.pipe and self._is_in_use():
                rest(self._context.clock, WINDOW_REST_S)  # a popper holds a window
            if offset is not None or self._progress.pipe:
                self._write(offset or self._progress.next, None)
        except PartitionLostError:
            return False
        return True

    def _is_in_use(self) -> bool:
        """Leave the named pipe; tell whether it could not be left yet. One that is damaged tells nothing."""
        try:
            self._leave()
        except CorruptError:
            return False
        return self._progress.pipe is not None

    # What it fills

    def _push_some(self) -> None:
        """Append one batch of what waits; open a pipe where there is none with room for it."""
        settings = self._target.settings
        count = size = 0
        for message in self._waiting[: min(BATCH_MESSAGES_MAX, settings.pipe_messages_max)]:
            size += size_of(message.body, message.headers) + _HEADER_BYTES
            if count and size > min(BATCH_BYTES_MAX, settings.pipe_bytes_max):
                break
            count += 1
        filling = self._filling
        if filling and not filling.sent and not self._has_room(filling, count, size):
            self._roll(self._waiting[0].offset)
            return
        filling = filling or self._open(self._waiting[0].offset)
        batch = filling.sent = filling.sent or self._batch(filling.count + 1, self._waiting[:count])
        self._storage.append(filling.pipe, batch)
        filling.sent = None
        filling.count += batch.count
        filling.size += batch.size
        del self._waiting[: batch.count]
        self._on_pushed(batch.count)

    def _batch(self, first: int, messages: Sequence[TopicMessage]) -> Batch:
        headers = tuple(
            {**each.headers, OFFSET_HEADER: str(Position(each.partition, each.offset))} for each in messages
        )
        return Batch(first, tuple(each.body for each in messages), headers, len(messages))

    def _has_room(self, filling: _Filling, count: int, size: int) -> bool:
        settings = self._target.settings
        return not self._is_old(filling) and (
            filling.count + count <= settings.pipe_messages_max
            and filling.size + size <= settings.pipe_bytes_max
        )

    def _is_old(self, filling: _Filling) -> bool:
        age_max_s = self._target.settings.push_age_max.total_seconds()
        return self._context.clock.now() - filling.opened_at >= age_max_s

    def _open(self, following: int) -> _Filling:
        """Name a pipe, then create it; messages before `following` are in the queue."""
        filling = _Filling(self._new_pipe(), self._context.clock.now())
        self._write(following, filling.pipe)
        self._create(filling.pipe)
        self._filling = filling
        return filling

    def _new_pipe(self) -> UUID:
        """Return an id behind that of the pipe before, which another machine's clock may have made."""
        fresh, before = new_pipe_id(), self._progress.before
        return fresh if before is None or fresh.time > before.time else new_pipe_id(id_time_ms(before) + 1)

    def _create(self, pipe: UUID) -> None:
        key = ProgressKey(self._group, self.partition)
        # The same each time: it may be written twice.
        head = Head(op=pipe)
        self._storage.create_pipe(self._target.queue, PipeEntry(pipe, pusher_of(key)), head, named_by=key)

    # How it ends

    def _tend(self, following: int) -> None:
        """Roll what is old; write how far all is in the queue, now and then."""
        if self._filling and self._is_old(self._filling):
            self._roll(following)
        elif following > self._progress.next and self._context.clock.now() - self._written_at >= COMMIT_S:
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
        last = self._settled_end(pipe) if pipe else None
        if pipe is None or last is None:
            return
        following = self._progress.next
        if last:
            following = max(following, self._offset_of(pipe, last) + 1)
        self._write(following, None)
        self._waiting, self._log = [], None

    def _settled_end(self, pipe: UUID) -> int | None:
        """Return where a pipe ends, which is decided from then on; None while a window is out."""
        is_there = False
        for _ in range(ATTEMPTS_MAX):
            newest = find_newest(self._storage, pipe)
            answer = self._storage.transact(pipe, Transaction(Seal(newest.last if newest else 0)))
            if answer.is_applied:
                return newest.last if newest else 0
            is_there = is_there or answer.last is not None
            if answer.last is None or answer.cursor is None:
                self._create(pipe)  # who named it died, or is slow: from here on it finds the pipe sealed
            elif answer.last != UNDECIDED:
                return answer.last
            elif answer.cursor == WINDOW_OUT and not self._end_window(pipe):
                return None
        self._is_unsure = True
        if not is_there:
            raise CorruptError(
                f"{self}: pipe {pipe} was deleted before it was left, and how far it came with it: reset the "
                "subscription to where it is to go on"
            )
        raise OutcomeUnknownError(f"pipe {pipe} of queue {self._target.queue!r}: its end is not decided yet")

    def _end_window(self, pipe: UUID) -> bool:
        """Have a popper's window end, which tells nothing of what was handed out; tell whether it did."""
        state = self._storage.load_pipe(pipe)
        if state is None or not state.window:
            return True
        entry = PipeEntry(pipe, pusher_of(ProgressKey(self._group, self.partition)))
        fenced = FencedPipe(self._target, entry, state, Taker(self._member))
        is_sealed = fenced.head.phase is not Phase.OPEN or upkeep.seal(fenced)
        return is_sealed and window_steps.take_over(fenced)

    def _offset_of(self, pipe: UUID, seq: int) -> int:
        """Return the offset of a message in a pipe of this partition."""
        query = BatchQuery(last=seq, is_newest_first=True)
        batch = next(iter(self._storage.read_batches(pipe, query)), None)
        if batch is None or not batch.first <= seq <= batch.last:
            raise CorruptError(f"pipe {pipe} of queue {self._target.queue!r}: message {seq} is not there")
        told = batch.message(seq)[1].get(OFFSET_HEADER, "")
        _, _, offset = told.partition(":")
        if not offset.isdecimal():
            raise CorruptError(
                f"pipe {pipe} of queue {self._target.queue!r}: message {seq} has {OFFSET_HEADER}={told!r}"
            )
        return int(offset)

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
        self._written_at = self._context.clock.now()
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

    def _lost(self, why: str) -> PartitionLostError:
        self.is_lost = True
        return PartitionLostError(f"{self}: {why}")

    def __str__(self) -> str:
        return f"topic {self._context.name!r}, partition {self.partition}, into queue {self._target.queue!r}"
