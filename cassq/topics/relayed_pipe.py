"""The pipes that relays fill: what goes into one, and how it ends when another relay filled it.

Decides nothing about the progress of a relay. What must not break:

- whoever ends a pipe knows where it ends, for ever, before it goes on anywhere else;
- the id of a pipe is behind that of the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CorruptError, OutcomeUnknownError
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, UNDECIDED, WINDOW_OUT
from cassq.model.ids import id_time_ms, new_pipe_id
from cassq.model.message import Batch, size_of
from cassq.model.pipe import Head, Phase, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.topic import OFFSET_HEADER, Position, ProgressKey, TopicMessage
from cassq.model.transaction import Seal, Transaction
from cassq.pipes import upkeep, window_steps
from cassq.pipes.fenced_pipe import FencedPipe, Taker
from cassq.pipes.outside_view import find_newest
from cassq.pipes.relayed import pusher_of
from cassq.storage.forms import BatchQuery

#: What the header that tells a message's place adds to it, at the most.
_HEADER_BYTES = len(OFFSET_HEADER) + 24

#: How often a seal is tried while others come between.
ATTEMPTS_MAX = 10


@dataclass(slots=True)
class Filling:
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

    def has_room(self, count: int, size: int, settings: QueueSettings, now: float) -> bool:
        """Tell whether a batch may go into it."""
        return not self.is_old(settings, now) and (
            self.count + count <= settings.pipe_messages_max and self.size + size <= settings.pipe_bytes_max
        )

    def is_old(self, settings: QueueSettings, now: float) -> bool:
        """Tell whether nothing may go into it any more."""
        return now - self.opened_at >= settings.push_age_max.total_seconds()


def cut_batch(messages: Sequence[TopicMessage], settings: QueueSettings) -> tuple[int, int]:
    """Return how many of the messages make the next batch, and their bytes."""
    count = size = 0
    for message in messages[: min(BATCH_MESSAGES_MAX, settings.pipe_messages_max)]:
        size += size_of(message.body, message.headers) + _HEADER_BYTES
        if count and size > min(BATCH_BYTES_MAX, settings.pipe_bytes_max):
            break
        count += 1
    return count, size


def to_batch(first: int, messages: Sequence[TopicMessage]) -> Batch:
    """Return messages as a pipe has them: each tells its place in the topic."""
    headers = tuple(
        {**each.headers, OFFSET_HEADER: str(Position(each.partition, each.offset))} for each in messages
    )
    return Batch(first, tuple(each.body for each in messages), headers, len(messages))


def pipe_after(before: UUID | None) -> UUID:
    """Return an id behind that of the pipe before, which another machine's clock may have made."""
    fresh = new_pipe_id()
    return fresh if before is None or fresh.time > before.time else new_pipe_id(id_time_ms(before) + 1)


class RelayedPipes:
    """Pipes of a queue that relays fill, in the hands of one of them.

    Args:
        member: who ends what others filled.
    """

    def __init__(self, target: QueueContext, member: str) -> None:
        self._target = target
        self._storage = target.storage
        self._member = member

    def create(self, key: ProgressKey, pipe: UUID) -> None:
        """Create a pipe that a progress names; the same each time: it may be written twice."""
        entry = PipeEntry(pipe, pusher_of(key))
        self._storage.create_pipe(self._target.queue, entry, Head(op=pipe), named_by=key)

    def settle(self, key: ProgressKey, pipe: UUID) -> int | None:
        """Return where a pipe ends, which is decided from then on; None while a popper holds a window of it.

        Raises:
            CorruptError: it is damaged, or gone.
            OutcomeUnknownError: call again, once it is known that the progress names it still.
        """
        is_there = False
        for _ in range(ATTEMPTS_MAX):
            newest = find_newest(self._storage, pipe)
            answer = self._storage.transact(pipe, Transaction(Seal(newest.last if newest else 0)))
            if answer.is_applied:
                return newest.last if newest else 0
            is_there = is_there or answer.last is not None
            if answer.last is None or answer.cursor is None:
                self.create(key, pipe)  # who named it died, or is slow: from here on it finds the pipe sealed
            elif answer.last != UNDECIDED:
                return answer.last
            elif answer.cursor == WINDOW_OUT and not self._end_window(key, pipe):
                return None
        if not is_there:
            raise CorruptError(
                f"queue {self._target.queue!r}, partition {key.partition}: pipe {pipe} was deleted before it "
                "was left, and how far it came with it: reset the subscription to where it is to go on"
            )
        raise OutcomeUnknownError(f"pipe {pipe} of queue {self._target.queue!r}: its end is not decided yet")

    def _end_window(self, key: ProgressKey, pipe: UUID) -> bool:
        """Have a popper's window end, which tells nothing of what was handed out; tell whether it did."""
        state = self._storage.load_pipe(pipe)
        if state is None or not state.window:
            return True
        entry = PipeEntry(pipe, pusher_of(key))
        fenced = FencedPipe(self._target, entry, state, Taker(self._member))
        is_sealed = fenced.head.phase is not Phase.OPEN or upkeep.seal(fenced)
        return is_sealed and window_steps.take_over(fenced)

    def offset_of(self, pipe: UUID, seq: int) -> int:
        """Return the offset of a message in a pipe.

        Raises: CorruptError: it is not there, or tells none.
        """
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
