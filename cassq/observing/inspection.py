"""Looks into a queue without taking anything.

Owns `peek`, `status` and `runs`: what a reader of the database sees of single messages, and of who has which.
It writes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.model.ids import MessageId
from cassq.model.message import Batch, Message, size_of, to_datetime
from cassq.model.pipe import End, PipeEntry, PipeState, Run, RunState
from cassq.model.progress import Progress
from cassq.model.shelf import Shelf
from cassq.model.uses import uses_keys
from cassq.pipes.batch_reader import BatchReader, check_disjoint, read_all
from cassq.pipes.expiry import Lifetime, lifetime_in
from cassq.pipes.outside_view import find_newest, load_seen, progress_seen
from cassq.pipes.pipe_order import in_order
from cassq.pipes.shelves import find_entry, find_moved, list_pipes
from cassq.storage.forms import BatchQuery

#: Batches that `peek` reads at once.
PEEK_BATCHES = 8


class MessageState(Enum):
    """What became of a message.

    Attributes:
        WAITING: it may be delivered now; with a key, once what it waits for has ended.
        PENDING: a consumer has it, or a popper that took it ahead, also of its due time, or while its key is
            busy.
        DELAYED: it is not due yet, or was rolled back with a delay that still runs.
        COMMITTED: a consumer committed it.
        DEAD: it is a dead letter.
        PURGED: a purge ended it, or it was cancelled.
        EXPIRED: it waited for longer than its ttl, and was dropped.
        ENDED: its pipe has moved on or retired: it was committed, purged, cancelled or dropped, and nobody
            remembers which.
        UNKNOWN: no such message is in its pipe.
    """

    WAITING = "waiting"
    PENDING = "pending"
    DELAYED = "delayed"
    COMMITTED = "committed"
    DEAD = "dead"
    PURGED = "purged"
    EXPIRED = "expired"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """What became of a message, and what is known of it.

    Attributes:
        state: what became of it.
        attempt: how often it was handed out; None where nobody remembers.
        due: from when it may be delivered, in UTC: its due time, or the end of its rest or lease. None where
            it may be now, or never.
        reason: why it came back last, or became a dead letter; "" where it never did.
        holder: the popper that has it; "" where none does.
        waits_for: the first message of its key and its pipe, where keys are in order, that has not ended: no
            consumer has it before. None where there is none, and where nobody can tell: where keys are
            exclusive, and of messages in other pipes.
    """

    state: MessageState
    attempt: int | None = None
    due: datetime | None = None
    reason: str = ""
    holder: str = ""
    waits_for: MessageId | None = None


@dataclass(frozen=True, slots=True)
class RunStats:
    """Messages of one pipe that were handed out together, and have not all ended.

    Attributes:
        pipe, first, last: where they are.
        left: how many of them have not ended.
        state: PENDING, DELAYED, or WAITING to be taken again.
        holder: the popper that has them, or had them last: host, process, number in it and queue.
        attempt: how often they were handed out.
        since: since when that popper has them, or extended the lease, in UTC; None where nobody has.
        due: when the lease ends, or the rest; None where they may be taken now.
        reason: why they came back last; "" where they never did.
    """

    pipe: UUID
    first: int
    last: int
    left: int
    state: MessageState
    holder: str
    attempt: int
    since: datetime | None
    due: datetime | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; times in ISO 8601."""
        times = {name: time and time.isoformat() for name, time in (("since", self.since), ("due", self.due))}
        return asdict(self) | times | {"pipe": str(self.pipe), "state": self.state.value}


class Inspection:
    """One queue, for those who only look."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._storage = context.storage
        self._queue = context.queue

    def peek(self, count: int, bytes_max: int | None = None) -> list[Message]:
        """Return the next messages that may be delivered now, in the order of the pipes; see `Queue.peek`."""
        found: list[Message] = []
        size = 0
        listed = list_pipes(self._context, Shelf.READY, Shelf.DUE, Shelf.KEYED)
        for entry in in_order(listed, self._context.settings.ageing):
            for message in self._waiting_in(entry):
                size += size_of(message.body, message.headers)
                if found and bytes_max is not None and size > bytes_max:
                    return found
                found.append(message)
                if len(found) == count:
                    return found
        return found

    def has(self, message_id: MessageId) -> bool:
        """Tell whether a message is in a pipe of the queue, or among its dead letters."""
        return bool(find_entry(self._context, message_id.pipe) or self._status_of_letter(message_id))

    def status(self, message_id: MessageId) -> MessageStatus:
        """Return what became of a message, as far as its pipe, or the dead letters, remember."""
        at = message_id
        while isinstance(found := self._status_at(at, message_id), MessageId):
            at = found
        return found

    def _status_at(self, at: MessageId, message_id: MessageId) -> MessageStatus | MessageId:
        """Return what became of a message, or where it was moved to."""
        pipe, seq = at
        state = load_seen(self._storage, pipe)
        if state is None or seq <= state.head.floor:
            return self._status_of_letter(message_id) or MessageStatus(MessageState.ENDED)
        run = next((run for run in state.runs if run.first <= seq <= run.last), None)
        progress = progress_seen(state, self._context.settings.max_attempts)
        ending = progress.ending_of(seq)
        if ending is End.MOVED:
            moved = find_moved(self._storage, progress.targets, message_id)
            return moved or self._status_of_letter(message_id) or MessageStatus(MessageState.ENDED)
        if ending:
            found = _told_by(run, MessageState(ending.value), None)
            return (found.state is MessageState.DEAD and self._status_of_letter(message_id)) or found
        is_live = seq <= state.head.cursor
        told = _told_of_live(run, state) if is_live else MessageStatus(MessageState.WAITING, 0)
        is_waiting = told.state is MessageState.WAITING
        if not (is_waiting or uses_keys(self._context.settings)):
            return told
        batch = find_newest(self._storage, pipe, seq)  # what this process knows of the queue may be old
        if batch is None or seq > batch.last:
            return self._status_of_gone(at, state, told) if is_waiting else told
        if is_waiting and (due_ms := batch.due_ms(seq)) > state.now_ms:
            told = replace(told, state=MessageState.DELAYED, due=to_datetime(due_ms))
        return replace(told, waits_for=self._find_before(at, batch, progress))

    def _status_of_gone(
        self, at: MessageId, state: PipeState, told: MessageStatus
    ) -> MessageStatus | MessageId:
        """Return what is known where a pipe has no row of a message; the place itself where that is news."""
        seen = load_seen(self._storage, at.pipe)
        if seen is None or at.seq <= seen.head.floor or state.head.cursor < at.seq <= seen.head.cursor:
            return at
        if progress_seen(seen, self._context.settings.max_attempts).ending_of(at.seq):
            return at
        is_there = seen.head.is_decided and at.seq <= seen.head.last
        return told if is_there else MessageStatus(MessageState.UNKNOWN)

    def _find_before(self, at: MessageId, its_batch: Batch, progress: Progress) -> MessageId | None:
        """Return the first message of the key and pipe of another that has not ended, and goes before it."""
        if not its_batch.keys or self._context.settings.keys != "ordered":
            return None
        pipe, seq = at
        key, first = its_batch.keys[seq - its_batch.first], progress.first_left
        begins = (run.read_from for run in progress.runs.values() if run.first <= first <= run.last)
        read_from = next(begins, progress.head.read_from)
        for batch in read_all(self._storage, pipe, seq - 1, is_outline=True, read_from=read_from):
            for number, each in enumerate(batch.keys or (), batch.first):
                if number < seq and each == key and not progress.is_ended(number):
                    return MessageId(pipe, number)
        return None

    def runs(self, count: int) -> list[RunStats]:
        """Return up to `count` runs that have not ended, in the order of the pipes."""
        found: list[RunStats] = []
        listed = list_pipes(self._context, Shelf.READY, Shelf.DUE, Shelf.KEYED, Shelf.SCHEDULED)
        # Of what is scheduled, what was moved there: of a pile nothing was ever handed out.
        seen = [each for each in listed if each.shelf is not Shelf.SCHEDULED or each.moved_from]
        for entry in in_order(seen, self._context.settings.ageing):
            if state := load_seen(self._storage, entry.pipe):
                progress = progress_seen(state, self._context.settings.max_attempts)
                runs = sorted(progress.runs.values(), key=lambda run: run.first)
                found += [_stats_of(entry.pipe, run, state, progress) for run in runs]
            if len(found) >= count:
                break
        return found[:count]

    def _waiting_in(self, entry: PipeEntry) -> Iterator[Message]:
        state = load_seen(self._storage, entry.pipe)
        if state is None:
            return
        progress = progress_seen(state, self._context.settings.max_attempts)
        lifetime = lifetime_in(self._context.settings, entry, state.now_ms)
        reader = BatchReader(self._storage, entry.pipe)
        for run in sorted(progress.runs.values(), key=lambda run: run.first):
            if run.is_due(state.now_ms):
                living = _in_time(reader.read_run(run, run.last), lifetime)
                yield from _messages(entry, living, progress, (run.first, run.last), state.now_ms)
        first = state.head.read_from
        while batches := self._storage.read_batches(entry.pipe, BatchQuery(first, limit=PEEK_BATCHES)):
            check_disjoint(entry.pipe, batches)
            bounds = state.head.cursor + 1, state.head.last
            yield from _messages(entry, _in_time(batches, lifetime), progress, bounds, state.now_ms)
            first = batches[-1].last + 1

    def _status_of_letter(self, message_id: MessageId) -> MessageStatus | None:
        before = MessageId(message_id.pipe, message_id.seq - 1)
        for letter in self._storage.read_dead(self._queue, before, 1, until=message_id):
            return MessageStatus(MessageState.DEAD, letter.attempts, reason=letter.reason)
        return None


def _in_time(batches: Sequence[Batch], lifetime: Lifetime) -> list[Batch]:
    living = (part for batch in batches for part in (_each_of(batch) if batch.dues else (batch,)))
    return [part for part in living if not lifetime.is_over(part)]


def _each_of(batch: Batch) -> Iterator[Batch]:
    return (batch.part(seq, seq) for seq in range(batch.first, batch.last + 1))


def _stats_of(pipe: UUID, run: Run, state: PipeState, progress: Progress) -> RunStats:
    told = _told_of_live(run, state)
    since = to_datetime(run.leased_at_ms) if told.state is MessageState.PENDING else None
    return RunStats(
        *(pipe, run.first, run.last, progress.count_left(run.first, run.last), told.state),
        *(run.holder, run.attempts, since, told.due, run.reason),
    )


def _told_of_live(run: Run | None, state: PipeState) -> MessageStatus:
    """Return what is known of a message that was handed out, and has not ended."""
    if run is None or run.state is RunState.LEASED:
        due_ms = run.leased_at_ms + run.lease_ms if run else None
        return replace(_told_by(run, MessageState.PENDING, due_ms), holder=run.holder if run else "")
    if run.is_due(state.now_ms):
        return _told_by(run, MessageState.WAITING, None)
    return _told_by(run, MessageState.DELAYED, run.not_before_ms)


def _told_by(run: Run | None, state: MessageState, due_ms: int | None) -> MessageStatus:
    due = None if due_ms is None else to_datetime(due_ms)
    return MessageStatus(state, run.attempts if run else None, due, run.reason if run else "")


def _messages(
    entry: PipeEntry, batches: Sequence[Batch], progress: Progress, bounds: tuple[int, int], now_ms: int
) -> Iterator[Message]:
    for batch in batches:
        for seq in range(max(batch.first, bounds[0]), min(batch.last, bounds[1]) + 1):
            if not progress.is_ended(seq) and batch.due_ms(seq) <= now_ms:
                message_id, pushed_at_ms = batch.origin(entry.pipe, seq)
                yield Message(
                    message_id,
                    *batch.message(seq),
                    to_datetime(pushed_at_ms),
                    priority=entry.priority,
                    type=entry.type or None,
                    key=batch.keys[seq - batch.first] if batch.keys else None,
                )
