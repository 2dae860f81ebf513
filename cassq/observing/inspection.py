"""Looks into a queue without taking anything.

Owns `peek`, `status` and `purge`: the operator's view of single messages. Only `purge` writes, and does so
as an owner would, behind the fence.
"""

import threading
from collections.abc import Iterator, Sequence
from enum import Enum
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import OutcomeUnknownError
from cassq.model.ids import MessageId
from cassq.model.message import Batch, Message, to_datetime
from cassq.model.pipe import PipeEntry, Run, RunState
from cassq.model.progress import Progress
from cassq.pipes import upkeep, window_steps
from cassq.pipes.batch_reader import BatchReader, check_disjoint
from cassq.pipes.fenced_pipe import FencedPipe, Taker
from cassq.pipes.outside_view import find_pushed, load_seen, progress_seen
from cassq.pipes.pipe_order import in_order
from cassq.storage.port import BatchQuery

#: How often a purge of one pipe is tried again while a popper takes from it.
PURGE_ATTEMPTS = 50

#: The time between two looks whether a popper's window has ended.
PURGE_PAUSE_S = 0.05

#: Batches that `peek` reads at once.
PEEK_BATCHES = 8


class MessageStatus(Enum):
    """What became of a message.

    Attributes:
        WAITING: it may be delivered now.
        PENDING: a consumer has it.
        DELAYED: it was rolled back with a delay that still runs.
        COMMITTED: a consumer committed it.
        DEAD: it is a dead letter.
        PURGED: a purge ended it.
        ENDED: its pipe has moved on or retired: it was committed or purged, and nobody remembers which.
        UNKNOWN: no such message is in its pipe.
    """

    WAITING = "waiting"
    PENDING = "pending"
    DELAYED = "delayed"
    COMMITTED = "committed"
    DEAD = "dead"
    PURGED = "purged"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Inspection:
    """One queue, for those who only look."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._storage = context.storage
        self._queue = context.queue
        self._clock = context.clock
        self._pause = threading.Condition()

    def peek(self, count: int) -> list[Message]:
        """Return the next `count` messages that may be delivered now, in the order of the pipes."""
        found: list[Message] = []
        for entry in in_order(self._storage.list_pipes(self._queue).entries):
            for message in self._waiting_in(entry):
                found.append(message)
                if len(found) == count:
                    return found
        return found

    def status(self, message_id: MessageId) -> MessageStatus:
        """Return what became of a message, as far as its pipe, or the dead letters, remember."""
        pipe, seq = message_id
        state = load_seen(self._storage, pipe)
        if state is None:
            return MessageStatus.DEAD if self._is_dead(message_id) else MessageStatus.ENDED
        progress = progress_seen(state, self._context.settings.max_attempts)
        ending = progress.ending_of(seq)
        if ending:
            return MessageStatus(ending.value)
        if seq <= state.head.floor:
            return MessageStatus.DEAD if self._is_dead(message_id) else MessageStatus.ENDED
        if seq > state.head.cursor:
            is_there = seq <= find_pushed(self._storage, pipe, state.head)
            return MessageStatus.WAITING if is_there else MessageStatus.UNKNOWN
        run = next((run for run in progress.runs.values() if run.first <= seq <= run.last), None)
        if run is None or run.state is RunState.LEASED:
            return MessageStatus.PENDING
        return MessageStatus.WAITING if run.is_due(state.now_ms) else MessageStatus.DELAYED

    def purge(self) -> int:
        """End every message that is in nobody's hands, but for dead letters to be; return how many."""
        return sum(self._purge_pipe(entry) for entry in self._storage.list_pipes(self._queue).entries)

    def _purge_pipe(self, entry: PipeEntry) -> int:
        refused = 0
        knocked: set[UUID] = set()
        while refused + len(knocked) < PURGE_ATTEMPTS:
            state = self._storage.load_pipe(entry.pipe)
            if state is None:
                return 0
            fenced = FencedPipe(self._context, entry, state, Taker("purge"))
            if state.window:
                self._end_window(fenced, state.window, knocked)
                continue
            count = upkeep.purge(fenced)
            if count is not None:
                return count
            refused += 1
        raise OutcomeUnknownError(
            f"pipe {entry.pipe} was taken from {PURGE_ATTEMPTS} times meanwhile: pause the queue, then purge"
        )

    def _end_window(self, fenced: FencedPipe, window: Run, knocked: set[UUID]) -> None:
        """Bring a window nearer to its end, and wait a moment: its holder cuts it, or it runs out."""
        if window_steps.is_over(fenced):
            window_steps.take_over(fenced)
            return
        if window.lease_id not in knocked:
            knocked.add(window.lease_id)
            window_steps.knock(fenced)
        with self._pause:
            self._clock.wait(self._pause, PURGE_PAUSE_S)

    def _waiting_in(self, entry: PipeEntry) -> Iterator[Message]:
        state = load_seen(self._storage, entry.pipe)
        if state is None:
            return
        progress = progress_seen(state, self._context.settings.max_attempts)
        reader = BatchReader(self._storage, entry.pipe)
        for run in sorted(progress.runs.values(), key=lambda run: run.first):
            if run.is_due(state.now_ms):
                yield from _messages(entry, reader.read_run(run, run.last), progress, (run.first, run.last))
        first = state.head.read_from
        while batches := self._storage.read_batches(entry.pipe, BatchQuery(first, limit=PEEK_BATCHES)):
            check_disjoint(entry.pipe, batches)
            yield from _messages(entry, batches, progress, (state.head.cursor + 1, state.head.last))
            first = batches[-1].last + 1

    def _is_dead(self, message_id: MessageId) -> bool:
        before = MessageId(message_id.pipe, message_id.seq - 1)
        return bool(self._storage.read_dead(self._queue, before, 1, until=message_id))


def _messages(
    entry: PipeEntry, batches: Sequence[Batch], progress: Progress, bounds: tuple[int, int]
) -> Iterator[Message]:
    for batch in batches:
        for seq in range(max(batch.first, bounds[0]), min(batch.last, bounds[1]) + 1):
            if not progress.is_ended(seq):
                pushed_at = to_datetime(batch.pushed_at_ms or 0)
                yield Message(MessageId(entry.pipe, seq), *batch.message(seq), pushed_at)
