"""Gives one message another due time, or another priority.

Owns `reschedule` and `reprioritise`. The message is moved to a pipe of its own, by the steps of `HandOver`;
its id stays, and so does what is known of its attempts. What must not break:

- a message is in one pipe: what was decided on stands, and what was not is behind the fence;
- what a consumer has, or is to be a dead letter, stays where it is.

    who reschedules 3                the pipe (op 1: 1 2 3 4)     popper
    | reads it, stages T: 3          |                            |
    |                                | <-- takes 1..2 IF op = 1 - | applied: op 2
    | 3 is in T IF op = 1 ---------> | refused: T is deleted      |
    | reads it, stages T': 3         |                            |
    | 3 is in T' IF op = 2 --------> | applied: op 3              |
    | lists T'                       | <-- takes 3..4 IF op = 2 - | refused: it looks, and takes 4
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, InvalidOptionError, OutcomeUnknownError, UnavailableError
from cassq.model.ids import MessageId
from cassq.model.pipe import PipeEntry, Run
from cassq.model.ranges import Range
from cassq.model.schedule import class_of
from cassq.model.shelf import Shelf
from cassq.pipes.by_hand import ATTEMPTS_MAX, ByHand, busy, is_idle, is_pushed, run_with
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.shelves import find_entry, find_moved
from cassq.reaping.hand_over import HandOver, items_of, resting
from cassq.reaping.sources import Sources
from cassq.storage.forms import BatchQuery

#: The pusher of pipes into which single messages were moved.
BY_HAND = "by hand"


class Place(NamedTuple):
    """What steers a message from now on.

    Attributes:
        due_ms: when it is due, by the database's clock; 0 for at once, None for when it was.
        priority: None for the one it had.
    """

    due_ms: int | None = None
    priority: int | None = None


@dataclass(slots=True)
class _Tries:
    """How often a pipe was tried, what for, under which op last, and whose windows were asked to end."""

    staged: dict[UUID, PipeEntry] = field(default_factory=dict)
    knocked: set[UUID] = field(default_factory=set)
    refused: int = 0
    sent_under: UUID | None = None


class Rescheduling:
    """One queue, for those who move single messages by hand."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._storage = context.storage
        self._by_hand = ByHand(context)
        self._hand_over = HandOver(context)
        self._sources = Sources(context, self._hand_over)

    def move(self, message_id: MessageId, place: Place) -> bool:
        """Move a message; see `Queue.reschedule`."""
        now_at: MessageId | None = message_id
        while now_at and (entry := find_entry(self._context, now_at.pipe)):
            if entry.is_keyed:
                raise InvalidOptionError(
                    f"message {message_id} has a key, and is not moved: it would lose its place among others "
                    "of the key; cancel it, and push it again"
                )
            if entry.shelf is Shelf.SORTED and now_at != message_id:
                self._list(entry)  # who moved it there before died
            if self._move_from(entry, now_at.seq, place):
                self._by_hand.end_if_over(entry, self._sources.may_retire)
                return True
            now_at = find_moved(self._storage, self._by_hand.targets_of(entry), message_id)
        return False

    def _move_from(self, entry: PipeEntry, seq: int, place: Place) -> bool:
        lost: OutcomeUnknownError | None = None
        tries = _Tries()
        while tries.refused + len(tries.knocked) < ATTEMPTS_MAX:
            try:
                source = self._by_hand.load(entry)
                is_moved = source is not None and self._try(source, seq, place, tries)
                if is_moved is False and lost and (source is None or source.head.op == tries.sent_under):
                    break  # what was sent before may still be applied
                if is_moved is not None:
                    return is_moved
            except OutcomeUnknownError as error:
                lost = error
                tries.refused += 1
            except UnavailableError:
                if lost:
                    raise lost from None  # what was sent before may still be applied
                raise
        raise lost or busy(entry)

    def _try(self, source: FencedPipe, seq: int, place: Place, tries: "_Tries") -> bool | None:
        """Tell whether it was moved; None: something came between."""
        if named := source.progress.targets & tries.staged.keys():
            self._list(tries.staged[named.pop()])
            return True
        if not _may_move(source, seq):
            return False
        run = run_with(source, seq)
        if source.progress.window or run in source.expired():
            tries.refused += self._by_hand.make_way(source, tries.knocked)
            return None
        target = self._stage(source, seq, run, place)
        if target:
            tries.staged[target.pipe] = target
            tries.sent_under = source.head.op
            head = source.progress.raise_floor()
            if self._hand_over.decide(source, head, target, [Range(seq, seq)]):
                self._list(target)
                return True
        tries.refused += 1
        return None

    def _stage(self, source: FencedPipe, seq: int, run: Run | None, place: Place) -> PipeEntry | None:
        query = BatchQuery(last=seq, is_newest_first=True)
        batch = next(iter(self._storage.read_batches(source.pipe, query)), None)
        if batch is None or batch.last < seq:
            return None
        now_ms = source.estimate_now_ms()
        item = next(items_of(source.pipe, [batch], [Range(seq, seq)]))
        if place.due_ms is not None:
            item = item._replace(due_ms=place.due_ms or now_ms)
        like = replace(source.entry, pusher=BY_HAND, due_class=class_of((item.due_ms - now_ms) / 1000))
        if place.priority is not None:
            like = replace(like, priority=place.priority)
        rest_ms = run.not_before_ms if run and place.due_ms is None else item.due_ms
        runs = [resting(run, 1, 1, rest_ms)] if run else []
        return self._hand_over.stage(like, [item], max(now_ms, rest_ms), runs)

    def _list(self, entry: PipeEntry) -> None:
        now_ms = self._context.clock.database_at_most_ms()
        try:
            self._hand_over.publish(entry, now_ms)
        except UnavailableError as error:
            raise OutcomeUnknownError(
                f"it is moved to pipe {entry.pipe}, which is not listed yet: a keeper does that within ten "
                f"minutes, and so does the next call: {error}"
            ) from error
        with suppress(CassqError):  # it is listed: without this it comes late
            self._hand_over.tell_late()
        self._hand_over.wake(entry.type)


def _may_move(source: FencedPipe, seq: int) -> bool:
    """Tell whether a message waits, or came back, or will have come back once a lease or a window ends."""
    progress = source.progress
    if progress.is_ended(seq):
        return False
    run = run_with(source, seq)
    return is_idle(source, run) if run else is_pushed(source, seq)
