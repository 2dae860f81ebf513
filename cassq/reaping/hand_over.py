"""Moves messages to another pipe: what waits in a pile, what rests for long, or one message by hand.

Owns the order of steps: stage, decide, publish. The source's own head decides, in one transaction that marks
what was moved and names the pipe it was moved to. What must not break:

- the pipe is staged, filled and sealed before that is decided, and published after it;
- the decision is conditional on the op under which the source was read; an attempt has a pipe of its own, and
  sends its decision once;
- what is staged is deleted only where the source does not name it, and never will: behind the fence.

    keeper A                        the pile (op 1: m1 m2 m3)     keeper B
    | reads it, stages T1: m2 m1 m3 |                             |
    | (frozen)                      | <-- cancel m2 (op 2)        | reads it, stages T2: m1 m3
    |                               | <-- moved to T2, IF op = 2  | publishes T2
    | moved to T1, IF op = 1 -----> | refused: A deletes T1       |
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import AccessDeniedError, CoordinationUnavailableError
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, TAKE_RUNS_MAX
from cassq.model.ids import id_time_ms, new_pipe_id, new_token
from cassq.model.label import Label
from cassq.model.message import Batch, Headers, Origin, pack_headers, size_of
from cassq.model.pipe import End, Head, Mark, PipeEntry, Run, RunState
from cassq.model.ranges import Range
from cassq.model.schedule import NEAR_S, SOON, class_of
from cassq.model.shelf import Shelf
from cassq.model.transaction import Advance, RunChange, Seal, Transaction
from cassq.model.uses import bits_of, is_told, with_uses
from cassq.pipes.batch_reader import BatchReader
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.outside_view import is_spent

#: What came back and rests for longer is moved out of the poppers' sight: longer than any rest by default.
FAR_S = 900


class Item(NamedTuple):
    """One message that is moved."""

    due_ms: int
    ttl_ms: int
    origin: Origin
    body: bytes
    headers: Headers


class HandOver:
    """Moves messages of one queue."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._storage = context.storage
        self._queue = context.queue
        self._is_late = False

    def move(self, pile: FencedPipe, batches: Sequence[Batch], now_ms: int) -> int:
        """Move what is left of a pile whose end is decided; return how many messages, 0 where it was refused.

        Args:
            batches: all of the pile's.

        Raises: OutcomeUnknownError: whoever reads the pile next sees whether they were moved.
        """
        head = pile.head
        left = list(pile.progress.missing(head.cursor + 1, head.last))
        items = sorted(items_of(pile.pipe, batches, left), key=lambda item: item.due_ms)
        entry = self.stage(pile.entry, items, max(now_ms, items[0].due_ms))
        if entry is None:
            return 0
        moved = replace(
            pile.progress.raise_floor(),
            cursor=head.last,
            read_from=head.last + 1,
            skipped=head.skipped + head.last - head.cursor,
        )
        if not self.decide(pile, moved, entry, left):
            return 0
        self.publish(entry, now_ms)
        return len(items)

    def put_off(self, source: FencedPipe) -> int:
        """Schedule what came back and rests for long; return how many messages, 0 where it was refused.

        Raises: OutcomeUnknownError: as `move`.
        """
        told = Label(due_class=SOON)
        if not is_told(self._context.settings, told):
            self._context.record.change(lambda record: with_uses(record, told))
        now_ms = source.estimate_now_ms()
        runs = sorted(source.progress.runs.values(), key=lambda run: run.not_before_ms)[:TAKE_RUNS_MAX]
        items, rows, parts = list[Item](), list[Run](), list[Range]()
        for run in runs:
            left = list(source.progress.left_of(run))
            found = list(items_of(source.pipe, source.reader.read_run(run, left[-1].last), left))
            rows.append(resting(run, len(items) + 1, len(found), run.not_before_ms))
            items += found
            parts += left
        from_ms = runs[0].not_before_ms
        like = replace(source.entry, due_class=class_of((from_ms - now_ms) / 1000))
        entry = self.stage(like, items, from_ms, rows)
        if entry is None or not self.decide(source, source.progress.raise_floor(), entry, parts):
            return 0
        self.publish(entry, now_ms)
        return len(items)

    def decide(self, source: FencedPipe, head: Head, entry: PipeEntry, parts: Iterable[Range]) -> bool:
        """Mark what was moved to a staged pipe; False: it was refused, and the pipe is deleted.

        Args:
            head: of the source as it shall be, with another op.

        Raises: OutcomeUnknownError: whoever reads the source next sees whether it was moved.
        """
        marks = tuple(Mark(*part, End.MOVED, entry.pipe) for part in parts)
        decision = Transaction(Advance(source.head.op, replace(head, op=new_token())), marks=marks)
        if self._storage.transact(source.pipe, decision).is_applied:
            return True
        self._storage.delete_pipe(self._queue, entry.pipe, Shelf.SORTED)
        return False

    def publish(self, entry: PipeEntry, now_ms: int) -> None:
        """Take a pipe that was decided on over into the list for its first due time: the id tells that."""
        near = new_pipe_id(now_ms + 1000 * NEAR_S)
        to = Shelf.DUE if entry.pipe.time <= near.time else Shelf.SCHEDULED
        self._storage.publish_pipes(self._queue, [entry], to)
        self.note_listed(entry, now_ms)

    def note_listed(self, entry: PipeEntry, now_ms: int) -> None:
        """Note that a pipe came to a list, be it after the time from which on poppers read it."""
        settings = self._context.settings
        window_s = (settings.push_age_max + settings.push_grace).total_seconds()
        self._is_late |= id_time_ms(entry.pipe) < now_ms - 1000 * window_s / 2

    def tell_late(self) -> None:
        """Have poppers read all of the list where a pipe came there late: they read it from some time on."""
        if not self._is_late:
            return
        self._is_late = False
        try:
            self._context.record.change(lambda seen: replace(seen, publications=seen.publications + 1))
        except BaseException:
            self._is_late = True
            raise

    def stage(
        self, like: PipeEntry, items: Sequence[Item], from_ms: int, runs: Iterable[Run] = ()
    ) -> PipeEntry | None:
        """Stage a pipe with these messages; None where that took so long that somebody has deleted it.

        Args:
            like: the source, with what steers the messages from now on.
            from_ms: from when on poppers have to know it, by the database's clock.
            runs: what came back stays so: its runs, by the numbers that the messages have now, of them all.
        """
        pipe = new_pipe_id(from_ms)
        entry = replace(like, pipe=pipe, moved_from=like.pipe, shelf=Shelf.SORTED)
        head = Head(op=new_token())
        self._storage.create_pipe(self._queue, entry, head)
        firsts = [1]
        for batch in _cut(items):
            self._storage.append(pipe, replace(batch, first=firsts[-1]))
            firsts.append(firsts[-1] + batch.count)
        steps = [Transaction(Seal(len(items)))]
        if runs:
            # Their source counts that they were handed out.
            count = len(items)
            taken = replace(head, op=new_token(), cursor=count, read_from=count + 1, skipped=count)
            rows = [replace(run, read_from=firsts[bisect_right(firsts, run.first) - 1]) for run in runs]
            steps.append(Transaction(Advance(head.op, taken), tuple(map(RunChange, rows))))
        if all(self._storage.transact(pipe, step).is_applied for step in steps):
            return entry
        self._storage.delete_pipe(self._queue, pipe, Shelf.SORTED)  # with what came after the deletion
        return None

    def wake(self, kind: str) -> None:
        """Wake a popper for messages of this type that were listed."""
        with suppress(CoordinationUnavailableError, AccessDeniedError):
            self._context.coordinator.wake(self._queue, 1, types=bits_of(self._context.settings, (kind,)))


def rests_for_long(source: FencedPipe) -> bool:
    """Tell whether all that is left of a pipe came back and rests: poppers need not see it.

    What may expire stays, which takes a read: where it was moved its time-to-live would begin anew. So does
    what has a key: others of it may wait for it.
    """
    runs = source.progress.runs.values()
    far_ms = source.read_ms + 1000 * FAR_S
    return (
        source.is_exhausted
        and not source.entry.is_keyed
        and bool(runs)
        and all(
            run.state is RunState.RETURNED
            and run.not_before_ms > far_ms
            and not (run.is_burial or is_spent(run, source.attempts_max))
            for run in runs
        )
        and not _may_expire(source)
    )


def _may_expire(source: FencedPipe) -> bool:
    """Tell whether anything can expire that is left of what was handed out."""
    if source.settings.ttl > timedelta(0):
        return True
    reader, progress = BatchReader(source.storage, source.pipe, is_outline=True), source.progress
    batches = (batch for run in progress.runs.values() for batch in reader.read_run(run, run.last))
    return any(batch.ttl_ms and progress.count_left(batch.first, batch.last) for batch in batches)


def resting(run: Run, first: int, count: int, not_before_ms: int) -> Run:
    """Return the row of messages that came back, in the pipe that they are moved to.

    Args:
        first: the number that the first of them has there.
    """
    return replace(
        run,
        first=first,
        last=first + count - 1,
        state=RunState.RETURNED,
        lease_id=new_token(),
        leased_at_ms=0,
        not_before_ms=not_before_ms,
        rolled_back=0,
    )


def items_of(pipe: UUID, batches: Iterable[Batch], left: Sequence[Range]) -> Iterator[Item]:
    """Yield what is left of a pipe; what was due at once expires by the time when it was pushed."""
    for batch in batches:
        for part in left:
            first, last = max(part.first, batch.first), min(part.last, batch.last)
            for seq in range(first, last + 1):
                place = seq - batch.first
                origin = batch.origin(pipe, seq)
                due_ms = batch.dues[place] if batch.dues else origin.pushed_at_ms
                yield Item(due_ms, batch.ttl_ms, origin, *batch.message(seq))


def _cut(items: Iterable[Item]) -> Iterator[Batch]:
    """Cut messages into batches, each of one time-to-live."""
    part: list[Item] = []
    size = 0
    for item in items:
        weight = size_of(item.body, item.headers)
        is_full = len(part) >= BATCH_MESSAGES_MAX or size + weight > BATCH_BYTES_MAX
        if part and (is_full or item.ttl_ms != part[0].ttl_ms):
            yield _batch(part)
            part, size = [], 0
        part.append(item)
        size += weight
    yield _batch(part)


def _batch(items: Sequence[Item]) -> Batch:
    return Batch(
        1,
        tuple(item.body for item in items),
        pack_headers(item.headers for item in items),
        len(items),
        ttl_ms=items[0].ttl_ms,
        dues=tuple(item.due_ms for item in items),
        origins=tuple(item.origin for item in items),
    )
