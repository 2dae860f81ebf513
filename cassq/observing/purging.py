"""Ends messages that nobody has: all of a queue, or one.

Owns `purge` and `cancel`. Each ends messages by a transaction on their pipe that moves the fence: whoever
planned to take them is refused, and looks again. What must not break:

- what came back from its last attempt is to be a dead letter, and stays;
- a cancellation that was told to come to nothing never does, also later.

    canceller                       database                       popper
    | load: 3 waits, op 1 --------> |                              |
    |                               | <-------------- load: op 1   |
    | cancel 3 IF cursor < 3 -----> | applied: op 2, 3 is purged   |
    |                               | <--- take 1..5 IF op = 1 --- | refused: it loads again
    |                               | <--- take 1..5 IF op = 2 --- | applied, and hands out 1, 2, 4, 5
"""

from collections import Counter
from dataclasses import replace
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import InvalidOptionError, OutcomeUnknownError, UnavailableError
from cassq.model.ids import MessageId, new_token
from cassq.model.pipe import End, Mark, PipeEntry, Run
from cassq.model.shelf import Shelf
from cassq.model.transaction import Advance, Cancel, Transaction
from cassq.model.uses import uses_due
from cassq.pipes import upkeep
from cassq.pipes.by_hand import ATTEMPTS_MAX, ByHand, busy, is_idle, is_pushed, run_with
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.outside_view import is_spent
from cassq.pipes.shelves import find_entry, find_moved, list_pipes

_PURGED = Shelf.READY, Shelf.SCHEDULED, Shelf.MOVED, Shelf.DUE, Shelf.KEYED


class Purging:
    """One queue, for those who end messages by hand."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._storage = context.storage
        self._by_hand = ByHand(context)

    def purge(self) -> int:
        """End every message that is in nobody's hands, but for dead letters to be; return how many."""
        purged: Counter[UUID] = Counter()
        for entry in list_pipes(self._context, *_PURGED):
            purged[entry.pipe] += self._purge_pipe(entry)  # it may be a target of one before
            # What was moved meanwhile, and what is moved and not listed yet.
            seen = [entry] if uses_due(self._context.settings) else []
            while seen:
                for target in self._by_hand.targets_of(seen.pop()) - purged.keys():
                    seen.append(replace(entry, pipe=target))
                    purged[target] = self._purge_pipe(seen[-1])
            self._by_hand.end_if_over(entry, self._put_aside)
        return purged.total()

    def cancel(self, message_id: MessageId, *, is_running_meant: bool) -> bool:
        """End one message; see `Queue.cancel`."""
        now_at: MessageId | None = message_id
        while now_at and (entry := find_entry(self._context, now_at.pipe)):
            if entry.is_keyed and is_running_meant:
                raise InvalidOptionError(
                    f"message {message_id} has a key, and running=True is refused, as the next one of the "
                    "key would come while a consumer works on it: let that consumer reject it; or pause "
                    "the queue, stop the consumer or await its lease, and cancel it without running=True"
                )
            if self._cancel_in(entry, now_at.seq, is_running_meant=is_running_meant):
                self._by_hand.end_if_over(entry, self._put_aside)
                return True
            now_at = find_moved(self._storage, self._by_hand.targets_of(entry), message_id)
        return False

    def _put_aside(self, fenced: FencedPipe) -> None:
        """Leave a pipe to reapers, who do not look at what is due in a year."""
        if not fenced.progress.targets:
            self._storage.publish_pipes(self._context.queue, [fenced.entry], Shelf.MOVED)

    def _cancel_in(self, entry: PipeEntry, seq: int, *, is_running_meant: bool) -> bool:
        lost: _Lost | None = None
        refused = 0
        knocked: set[UUID] = set()
        while refused + len(knocked) < ATTEMPTS_MAX:
            try:
                fenced = self._by_hand.load(entry)
                plan = _plan(fenced, seq, is_running_meant=is_running_meant)
                if fenced and plan is None:
                    refused += self._by_hand.make_way(fenced, knocked)
                    continue
                if not (fenced and isinstance(plan, Transaction)):
                    if plan or lost is None or lost.is_in_vain(fenced, seq):
                        return bool(plan)
                    break
                plan = replace(plan, marks=tuple(self._context.timed(plan.marks)))
                try:
                    if self._storage.transact(entry.pipe, plan).is_applied:
                        return True
                except OutcomeUnknownError as error:
                    lost = _Lost(error, fenced.head.op)
            except UnavailableError:
                if lost:
                    raise lost.error from None  # what was sent before may still be applied
                raise
            refused += 1
        raise lost.error if lost else busy(entry)

    def _purge_pipe(self, entry: PipeEntry) -> int:
        refused = 0
        knocked: set[UUID] = set()
        while refused + len(knocked) < ATTEMPTS_MAX:
            fenced = self._by_hand.load(entry)
            if fenced is None:
                return 0
            if fenced.progress.window:
                self._by_hand.end_window(fenced, knocked)
                continue
            count = upkeep.purge(fenced)
            if count is not None:
                return count
            refused += 1
        raise busy(entry)


class _Lost:
    """A cancellation that was sent, and whose outcome nobody knows.

    Args:
        op: that of the head when it was sent.
    """

    def __init__(self, error: OutcomeUnknownError, op: UUID) -> None:
        self.error = error
        self._op = op

    def is_in_vain(self, fenced: FencedPipe | None, seq: int) -> bool:
        """Tell whether it never will be applied, of a message that somebody has or that ended."""
        return fenced is not None and seq > fenced.head.floor and fenced.head.op != self._op


def _plan(fenced: FencedPipe | None, seq: int, *, is_running_meant: bool) -> Transaction | bool | None:
    """Return what ends a message, or whether that was done; None: a window or a lease has to end first."""
    if fenced is None or seq <= fenced.head.floor:
        return False
    progress, head = fenced.progress, fenced.head
    ending = progress.ending_of(seq)
    if ending:
        return ending is End.PURGED
    marks = (Mark(seq, seq, End.PURGED),)
    run = run_with(fenced, seq)
    if run and not (is_idle(fenced, run) or (is_running_meant and _is_running(fenced, run))):
        return False
    if progress.window or run in fenced.expired():
        return None
    if run:
        return Transaction(Advance(head.op, replace(progress.raise_floor(), op=new_token())), marks=marks)
    return is_pushed(fenced, seq) and Transaction(Cancel(new_token(), seq), marks=marks)


def _is_running(fenced: FencedPipe, run: Run) -> bool:
    """Tell whether a consumer has a run, which is to be no dead letter."""
    return not run.is_burial and not is_spent(run, fenced.attempts_max)
