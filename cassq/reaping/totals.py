"""Brings the counts of pipes that are over into their queue's totals.

What must not break: they enter exactly once, however many reapers count (`cassq.model.queue_record` draws the
race).
"""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CorruptError, OutcomeUnknownError
from cassq.model.ids import new_token
from cassq.model.pipe import Phase
from cassq.model.queue_record import QueueRecord
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.outside_view import is_standing

#: How often the totals are tried again when other reapers change them at the same time.
COUNT_ATTEMPTS = 8


class Totals:
    """The totals of one queue, as a reaper writes them."""

    def __init__(self, context: QueueContext) -> None:
        self._storage = context.storage
        self._queue = context.queue
        self._retired: set[UUID] = set()

    def note_retired(self, pipe: UUID) -> None:
        """Hear that a pipe was retired."""
        self._retired.add(pipe)

    def count(self, over: list[FencedPipe]) -> dict[UUID, FencedPipe | None]:
        """Bring the pipes' counts into the totals; return those that may retire (None: is retired)."""
        for _ in range(COUNT_ATTEMPTS):
            record = self._read_record()
            if record is None:
                return {}
            # The record first, then each head: see the race in `cassq.model.queue_record`.
            ready = {fenced.pipe: self._look(fenced) for fenced in over}
            alive = {pipe: fenced for pipe, fenced in ready.items() if fenced and fenced.is_over}
            gone = [pipe for pipe, fenced in ready.items() if fenced is None]
            new = [fenced for pipe, fenced in alive.items() if pipe not in record.counted]
            if new and not self._write_totals(record, new):
                continue
            return {**alive, **dict.fromkeys(gone)}
        raise OutcomeUnknownError(f"{COUNT_ATTEMPTS} attempts met other reapers' changes")

    def _look(self, fenced: FencedPipe) -> FencedPipe | None:
        is_there = fenced.look()
        return fenced if is_there and fenced.head.phase is not Phase.RETIRED else None

    def _write_totals(self, record: QueueRecord, new: Iterable[FencedPipe]) -> bool:
        self._retired &= record.counted
        still_there = frozenset(pipe for pipe in record.counted if not self._is_retired(pipe))
        totals = sum((fenced.tally(fenced.head.last) for fenced in new), record.totals)
        counted = still_there | {fenced.pipe for fenced in new}
        wanted = replace(record, op=new_token(), totals=totals, counted=counted)
        try:
            return self._storage.change_queue(record, wanted)
        except OutcomeUnknownError:
            # Not seen now may still land, until another change of the record was applied; `count` tries
            # again with the record it then reads, and that write settles it.
            return False

    def _is_retired(self, pipe: UUID) -> bool:
        if pipe in self._retired:
            return True
        try:
            return not is_standing(self._storage.load_pipe(pipe))
        except CorruptError:
            return False  # whatever it is, it still stands; the others are counted all the same

    def _read_record(self) -> QueueRecord | None:
        return next(iter(self._storage.read_queues(self._queue)), None)
