"""Makes ready what is due soon: piles that are near are sorted, and listed where poppers look.

Owns what becomes of a pile, and of what is staged while one is sorted. Any number of keepers may run at once
and be killed at any point: a claim on the pile only spares wasted work, and each step is found half done and
finished by the next pass. What must not break: a pile leaves the list of scheduled ones only once what it was
moved to has left the staged ones, and stands until that is gone: so whoever knows a message by its first id
finds it.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from cassq.bulk.occurrences import Occurrences, is_of_schedule
from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError
from cassq.model.ids import OLDEST, just_before, new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Phase, PipeEntry, PipeState
from cassq.model.recurrence import ScheduleRecord
from cassq.model.schedule import NEAR_S, open_max_s
from cassq.model.shelf import Shelf
from cassq.model.transaction import Drain, Transaction
from cassq.model.uses import uses_due, uses_schedules
from cassq.pipes import upkeep
from cassq.pipes.batch_reader import read_all
from cassq.pipes.fenced_pipe import FencedPipe, Taker
from cassq.pipes.outside_view import is_standing
from cassq.reaping.duty import PASS_MAX_S
from cassq.reaping.hand_over import HandOver
from cassq.reaping.reap_report import ReapReport
from cassq.reaping.sources import Sources
from cassq.runtime.outage_log import log_trouble
from cassq.runtime.reentry import alone

_log = logging.getLogger("cassq.reaper")

#: What is staged for longer is looked after: whoever staged it decided long ago, or never will.
STAGED_S = 600.0

#: How often that is looked for, and all that is near is read, not only what came of late.
LOOK_AFTER_S = 60.0

#: Of what is staged it reads what came since so long before its last look: the deletions before it are many.
SORTED_S = 3600

#: A pile comes to its list about when its id says, or a little later.
LATE_S = 10.0


class Keeper:
    """Keeps the schedule of one queue.

    Args:
        holder: the name under which it claims piles.

    Attributes:
        hand_over: moves messages, and tells poppers what is listed late.
        sources: pipes that messages were moved from.
        next_at: this process's clock when a schedule needs another pass; infinite where none does.
    """

    def __init__(self, context: QueueContext, holder: str) -> None:
        self._context = context
        self._storage = context.storage
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._holder = holder
        self._clock = context.clock
        self.hand_over = HandOver(context)
        self.sources = Sources(context, self.hand_over)
        self._occurrences = Occurrences(context, holder)
        self._since: UUID | None = None
        self._now_ms, self._near_at = 0, 0.0
        self._looked_after_at = float("-inf")
        self._looked_after_ms: int | None = None
        self._passing = threading.RLock()
        self.next_at = math.inf

    def run_once(self, report: ReapReport) -> bool:
        """Make one pass; tell whether it found anything that is near.

        Raises: StorageUnavailableError: a list cannot be read.
        """
        if not uses_due(self._context.settings):
            return False
        with alone(self._passing, "reap()"):
            return self._pass(report)

    def _pass(self, report: ReapReport) -> bool:
        now = self._clock.now()
        is_looking_after = now - self._looked_after_at >= LOOK_AFTER_S
        if is_looking_after:
            self._since = None
        near = self._near()
        self._each(self._keep, near, report)
        recurring = self._push_occurrences(report)
        self.hand_over.tell_late()
        if is_looking_after:
            self._looked_after_at = now
            try:
                self._look_after_all(report)
            except CassqError as error:  # what is due soon does not wait for it
                self._note_trouble("what is staged", error, report)
        return bool(near or recurring)

    def _push_occurrences(self, report: ReapReport) -> Sequence[ScheduleRecord]:
        """Push what schedules say is due soon; return the schedules of which something is."""
        if not uses_schedules(self._context.settings):
            return ()
        now_ms, now = self._now_ms, self._clock.now()
        near: Sequence[ScheduleRecord] = ()
        try:
            near, later_ms = self._occurrences.near(now_ms)
            self.next_at = math.inf if later_ms is None else now + (later_ms - now_ms) / 1000
        except CassqError as error:
            self._note_trouble("schedules", error, report)
        for record in near:
            passed_s = self._clock.now() - now
            if passed_s >= PASS_MAX_S:
                break  # those that were pushed are near no more: the next pass begins with the others
            try:
                planned = self._occurrences.push(record, now_ms + round(1000 * passed_s))
                report.recurred += len(planned.dues_ms) if planned else 0
                report.missed += planned.missed if planned else 0
            except CassqError as error:
                self._note_trouble(f"schedule {record.schedule.name}", error, report)
        return near

    def _note_trouble(self, what: str, error: CassqError, report: ReapReport) -> None:
        report.note_failure(f"{what}: {error}", error)
        log_trouble(_log, error, "queue %s: %s: %s", self._queue, what, error)

    def _each(
        self, work: Callable[[PipeEntry, ReapReport], None], entries: Iterable[PipeEntry], report: ReapReport
    ) -> list[PipeEntry]:
        """Work on pipes; return those for which there was no time, and those that failed."""
        ends_at = self._clock.now() + PASS_MAX_S
        left: list[PipeEntry] = []
        for entry in entries:
            if self._clock.now() >= ends_at:
                left.append(entry)
                continue
            try:
                work(entry, report)
            except CassqError as error:
                self._note_trouble(f"pipe {entry.pipe}", error, report)
                left.append(entry)
        return left

    def _look_after_all(self, report: ReapReport) -> None:
        # What is staged has an id of about then, or later. Whoever starts reads all; later what the look
        # before found too young, or did not get done, however long ago that was: machines are suspended.
        before_ms = self._looked_after_ms
        since = None if before_ms is None else new_pipe_id(before_ms - 1000 * SORTED_S)
        staged = self._storage.list_pipes(self._queue, since, shelf=Shelf.SORTED)
        old_ms = staged.now_ms - 1000 * STAGED_S
        left = self._each(self._look_after, [e for e in staged.entries if e.created_at_ms < old_ms], report)
        self._looked_after_ms = min((entry.created_at_ms for entry in left), default=staged.now_ms)

    def _near(self) -> Sequence[PipeEntry]:
        """Read what is scheduled, up to what is near."""
        if not self._now_ms:
            self._now_ms = self._storage.list_pipes(self._queue, shelf=Shelf.SCHEDULED, until=OLDEST).now_ms
            self._near_at = self._clock.now()
        passed_ms = round(1000 * (self._clock.now() - self._near_at))
        until = new_pipe_id(self._now_ms + passed_ms + 1000 * NEAR_S)
        self._near_at = self._clock.now()
        listing = self._storage.list_pipes(self._queue, self._since, until=until, shelf=Shelf.SCHEDULED)
        self._now_ms = listing.now_ms
        oldest = [entry.pipe for entry in listing.entries[:1]]
        self._since = min(
            (just_before(pipe, LATE_S) for pipe in (*oldest, new_pipe_id(listing.now_ms))),
            key=lambda pipe: pipe.time,
        )
        return listing.entries

    def _keep(self, entry: PipeEntry, report: ReapReport) -> None:
        report.examined += 1
        state = self._storage.load_pipe(entry.pipe)
        if not is_standing(state):
            self._storage.delete_pipe(self._queue, entry.pipe, Shelf.SCHEDULED)
            return
        if state.head.phase is Phase.OPEN and not self._is_abandoned(entry):
            return
        if not self._coordinator.claim(self._queue, entry.pipe, self._holder):
            report.busy += 1
            return
        try:
            pile = self._load(entry, state)
            if pile.look():
                self._make_ready(pile, report)
        finally:
            self._coordinator.release(self._queue, entry.pipe, self._holder)

    def _make_ready(self, pile: FencedPipe, report: ReapReport) -> None:
        """List a pile for poppers, or what is moved from it."""
        if pile.progress.targets:
            self.sources.finish(pile)
            if pile.progress.is_over:
                self.sources.set_aside(pile.entry)
                return
        if pile.head.phase is Phase.OPEN:
            self._context.record.read()
            if not upkeep.seal(pile):
                return
            report.sealed += 1
        outlines = list(read_all(self._storage, pile.pipe, pile.head.last, is_outline=True))
        if not pile.head.is_decided and not self._drain(pile, outlines):
            return
        batches = [] if _is_taken_from(pile) or _is_sorted(outlines) else self._read(pile)
        if not batches:
            self._storage.publish_pipes(self._queue, [pile.entry], Shelf.DUE)
            self.hand_over.note_listed(pile.entry, self._now_ms)
        else:
            moved = self.hand_over.move(pile, batches, self._now_ms)
            if not moved:
                return
            report.moved += moved
            self.sources.set_aside(pile.entry)
        self.hand_over.wake(pile.entry.type)

    def _read(self, pile: FencedPipe) -> Sequence[Batch]:
        """Read a pile whole; nothing of one of which a batch is gone: whoever takes from it says so."""
        batches = list(read_all(self._storage, pile.pipe, pile.head.last))
        reached = batches[-1].last if batches else 0
        return batches if reached >= pile.head.last else ()

    def _drain(self, pile: FencedPipe, outlines: Sequence[Batch]) -> bool:
        """Decide where a pile that was sealed by force ends: behind all that a read shows since then."""
        op = new_token()
        last = max([pile.head.cursor, *(batch.last for batch in outlines[-1:])])
        return pile.settle(Transaction(Drain(pile.head.op, op, last)), op) and pile.look()

    def _look_after(self, entry: PipeEntry, report: ReapReport) -> None:
        """Publish what is staged for long, or delete it: what its pile does not name, and never will."""
        if is_of_schedule(entry):
            report.removed += self._occurrences.look_after(entry)
            return
        for shelf in (Shelf.SCHEDULED, Shelf.DUE, Shelf.MOVED):
            if self._storage.list_pipes(self._queue, entry.pipe, until=entry.pipe, shelf=shelf).entries:
                self._storage.publish_pipes(self._queue, [entry], shelf)  # once more: that takes it off here
                return
        state = self._storage.load_pipe(entry.moved_from) if entry.moved_from else None
        if entry.moved_from and is_standing(state):
            pile = self._load(replace(entry, pipe=entry.moved_from), state)
            if entry.pipe in pile.progress.targets:
                self.hand_over.publish(entry, self._now_ms)
                return
            if pile.progress.window or not pile.advance(pile.head):
                return
        self._storage.delete_pipe(self._queue, entry.pipe, Shelf.SORTED)
        report.removed += 1

    def _load(self, entry: PipeEntry, state: PipeState) -> FencedPipe:
        return FencedPipe(self._context, entry, state, Taker(self._holder))

    def _is_abandoned(self, entry: PipeEntry) -> bool:
        """Tell whether a pile is so old that its pusher must have sealed it, if it lives."""
        settings = self._context.settings
        gone_after_s = open_max_s(entry.due_class, settings)
        gone_after_s += (settings.push_grace + settings.clock_skew_max).total_seconds()
        return self._now_ms - entry.created_at_ms > 1000 * gone_after_s


def _is_taken_from(pile: FencedPipe) -> bool:
    """Tell whether poppers have seen it, or nothing of it is left: it is listed for them, whatever it is."""
    progress, head = pile.progress, pile.head
    return bool(progress.runs or progress.window) or not progress.count_left(head.cursor + 1, head.last)


def _is_sorted(batches: Iterable[Batch]) -> bool:
    reached = 0
    for batch in batches:
        for due_ms in batch.dues or ():
            if due_ms < reached:
                return False
            reached = due_ms
    return True
