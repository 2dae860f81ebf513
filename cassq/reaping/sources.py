"""Pipes that messages were moved from: they stand for what their marks name.

Owns when such a pipe may go. By its marks a message is found that people know by its first id. What must not
break: a pipe leaves its list only once what it names has left the staged ones, and retires once that is gone.
"""

import logging
from collections.abc import Sequence
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError
from cassq.model.ids import just_before
from cassq.model.pipe import PipeEntry
from cassq.model.progress import Progress
from cassq.model.shelf import Shelf
from cassq.model.uses import uses_due
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.outside_view import is_standing
from cassq.pipes.relayed import is_named
from cassq.reaping.hand_over import HandOver
from cassq.reaping.reap_report import ReapReport
from cassq.runtime.outage_log import log_trouble

_log = logging.getLogger("cassq.reaper")

#: How often it looks for pipes that are left after what they were moved to: mostly a reaper tells.
LET_GO_S = 3600.0


class Sources:
    """The pipes of one queue that messages were moved from."""

    def __init__(self, context: QueueContext, hand_over: HandOver) -> None:
        self._context = context
        self._storage = context.storage
        self._queue = context.queue
        self._clock = context.clock
        self._hand_over = hand_over
        self._let_go_at = float("-inf")
        self._to_look: list[PipeEntry] = []  # the next one last
        self._left: dict[UUID, PipeEntry] = {}
        # Of a pipe one of those for which it stands: until that is gone nobody looks.
        self._awaited: dict[UUID, UUID] = {}

    def finish(self, source: FencedPipe) -> None:
        """List what messages of a pipe were moved to, for somebody who died."""
        targets = source.progress.targets
        first = min(targets, key=lambda pipe: pipe.time)
        staged = self._storage.list_pipes(self._queue, just_before(first), shelf=Shelf.SORTED)
        for entry in staged.entries:
            if entry.pipe in targets:
                self._hand_over.publish(entry, staged.now_ms)
                self._hand_over.wake(entry.type)

    def may_retire(self, source: FencedPipe) -> bool:
        """Tell whether all is gone that was moved from a pipe that is over, and no relay goes on from it.

        Otherwise it goes to those that stand until then, once all of that is listed.
        """
        is_moved = not all(map(self._is_gone, source.progress.targets))
        if is_moved:
            self.finish(source)
        if is_named(self._storage, source.entry):
            return False
        if not is_moved:
            return True
        if source.entry.shelf is not Shelf.MOVED:
            self.set_aside(source.entry)
        return False

    def set_aside(self, entry: PipeEntry) -> None:
        """Keep a pipe that is over for what its marks name alone."""
        self._storage.publish_pipes(self._queue, [entry], Shelf.MOVED)
        if entry.moved_from is None:  # else they tell which message is which
            self._storage.delete_batches(entry.pipe)

    def left(self, report: ReapReport, ends_at: float) -> Sequence[PipeEntry]:
        """Return the pipes of which nothing is left but what names what was moved, and that is gone, too.

        They retire from the list in which they stand: none comes back to one that it has left.

        Args:
            ends_at: the clock's reading at which it looks for no other one; the next call goes on there.
        """
        now = self._clock.now()
        if not self._to_look and uses_due(self._context.settings) and now - self._let_go_at >= LET_GO_S:
            self._let_go_at = now
            moved = self._storage.list_pipes(self._queue, shelf=Shelf.MOVED).entries
            self._to_look = [*reversed(moved)]
            standing = {entry.pipe for entry in moved}
            self._awaited = {pipe: one for pipe, one in self._awaited.items() if pipe in standing}
        while self._to_look and self._clock.now() < ends_at:
            self._note_left(self._to_look.pop(), report)
        return tuple(self._left.values())

    def note_gone(self, entry: PipeEntry) -> None:
        """Hear that a pipe is gone: the one that its messages were moved from may go, too."""
        self._left.pop(entry.pipe, None)
        self._awaited.pop(entry.pipe, None)
        source = entry.moved_from
        if source and self._awaited.get(source, entry.pipe) == entry.pipe:
            listing = self._storage.list_pipes(self._queue, source, until=source, shelf=Shelf.MOVED)
            for each in listing.entries:
                self._note_left(each, ReapReport())

    def _note_left(self, entry: PipeEntry, report: ReapReport) -> None:
        """Note a pipe for the reaper once what was moved from it is gone."""
        try:
            state = self._storage.load_pipe(entry.pipe)
            targets = Progress(state).targets if state else ()
            awaited = next((target for target in targets if not self._is_gone(target)), None)
            if awaited:
                self._awaited[entry.pipe] = awaited
            else:
                self._awaited.pop(entry.pipe, None)
                self._left[entry.pipe] = entry
        except CassqError as error:
            report.note_failure(f"pipe {entry.pipe}: {error}", error)
            log_trouble(_log, error, "queue %s: pipe %s: %s", self._queue, entry.pipe, error)

    def _is_gone(self, pipe: UUID) -> bool:
        return not is_standing(self._storage.load_pipe(pipe))
