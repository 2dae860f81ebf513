"""Heals what its owner left behind.

Owns the pipes nobody owns: seals those of dead pushers, drains them, returns runs whose lease has run out,
buries what came back from its last attempt, ends what has expired, and retires what is over. Any number of
reapers may run at once and be killed at any point; each step is conditional on what it was decided on, and is
found half-done and finished by the next pass. What must not break: a pipe's counts enter the queue's totals
exactly once, and before the pipe retires.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError
from cassq.model.ids import LogPlace
from cassq.model.pipe import Phase, PipeEntry
from cassq.pipes import expiry, upkeep, window_steps
from cassq.pipes.fenced_pipe import FencedPipe, Taker
from cassq.pipes.outside_view import is_standing
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.pipe_list import PipeList
from cassq.reaping.duty import PASS_MAX_S
from cassq.reaping.hand_over import rests_for_long
from cassq.reaping.journaling import Journaling
from cassq.reaping.keeper import Keeper
from cassq.reaping.reap_report import ReapReport
from cassq.reaping.totals import Totals
from cassq.runtime.outage_log import log_trouble
from cassq.runtime.reentry import alone

_log = logging.getLogger("cassq.reaper")

#: A pipe that was examined is left alone for so long, unless somebody points at it.
EXAMINE_S = 10.0

#: What an observer is told of a pass.
_FIGURES = "examined", "sealed", "returned", "buried", "expired", "retired", "busy"


class Reaper:
    """Reaps one queue.

    Args:
        holder: the name under which it claims pipes.
        on_pipe_gone: called with each pipe that was deleted.

    Attributes:
        keeper: looks after what is due later.
    """

    def __init__(self, context: QueueContext, holder: str, on_pipe_gone: Callable[[UUID], None]) -> None:
        self._on_pipe_gone = on_pipe_gone
        self._context = context
        self._storage = context.storage
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._holder = holder
        self._record = context.record
        self._clock = context.clock
        self.keeper = Keeper(context, f"{holder}-keeper")
        self._sources = self.keeper.sources
        self._journaling = Journaling(context)
        self._totals = Totals(context)
        self._hand_over = self.keeper.hand_over
        self._pipes = PipeList(context, has_keyed=True)
        self._examined_at: dict[UUID, float] = {}
        self._hinted: set[UUID] = set()
        self._passing = threading.RLock()

    def hint(self, pipe: UUID) -> None:
        """Hear from a popper that a pipe may be over; callable from any thread."""
        self._hinted.add(pipe)

    @property
    def has_hints(self) -> bool:
        """Whether somebody pointed at a pipe since the last pass that could read the list."""
        return bool(self._hinted)

    def run_once(self, pipes_max: int | None = None) -> ReapReport:
        """Make one pass over the queue's pipes.

        Args:
            pipes_max: examine at most so many, those that were hinted at and the oldest first; None
                examines all.

        Raises: StorageUnavailableError, CoordinationUnavailableError: the list cannot be read.
        """
        events = self._context.events
        if events is None:
            return self._pass_alone(pipes_max)
        begun, report, error = events.now(), ReapReport(), None
        try:
            report = self._pass_alone(pipes_max)
        except CassqError as raised:
            error = raised
            raise
        finally:
            figures = {name: getattr(report, name) for name in _FIGURES}
            events.note_reaped(begun, figures | {"failed": len(report.failed)}, error)
        return report

    def _pass_alone(self, pipes_max: int | None) -> ReapReport:
        with alone(self._passing, "reap()"):
            return self._pass(pipes_max)

    def _pass(self, pipes_max: int | None) -> ReapReport:
        report = ReapReport()
        self._pipes.refresh(self._record.publications)
        self._journaling.begin()
        over: list[FencedPipe] = []
        hinted, others = self._candidates(pipes_max)
        pass_s = PASS_MAX_S if pipes_max is not None else float("inf")
        now = self._clock.now()
        ends_at = now + pass_s
        try:
            left = self._sources.left(report, now + pass_s / 2)
            for place, entry in enumerate((*hinted, *left, *others)):
                if self._clock.now() >= ends_at:  # the rest comes first next time
                    self._hinted.update(entry.pipe for entry in hinted[place:])
                    break
                try:
                    self._examine(entry, over, report)
                except CassqError as error:
                    self._note_failure(report, f"pipe {entry.pipe}: {error}", error)
            self._retire(over, report)
            self._tell_late(report)
        finally:
            for fenced in over:
                self._coordinator.release(self._queue, fenced.pipe, self._holder)
        return report

    def _tell_late(self, report: ReapReport) -> None:
        try:
            self._hand_over.tell_late()
        except CassqError as error:
            self._note_failure(report, f"what was listed late is not told: {error}", error)

    def _note_failure(self, report: ReapReport, words: str, error: CassqError) -> None:
        report.note_failure(words, error)
        log_trouble(_log, error, "queue %s: %s", self._queue, words)

    def _candidates(self, pipes_max: int | None) -> tuple[Sequence[PipeEntry], Sequence[PipeEntry]]:
        """Return which pipes to examine: those that were hinted at, and others."""
        entries = self._pipes.entries
        listed = {entry.pipe for entry in entries}
        self._examined_at = {pipe: at for pipe, at in self._examined_at.items() if pipe in listed}
        if pipes_max is None:
            return (), entries
        hinted = self._hinted.copy()
        self._hinted.difference_update(hinted)
        old = self._clock.now() - EXAMINE_S
        due = [entry for entry in entries if self._examined_at.get(entry.pipe, old) <= old]
        return (
            [entry for entry in entries if entry.pipe in hinted],
            [entry for entry in due[:pipes_max] if entry.pipe not in hinted],
        )

    def _examine(self, entry: PipeEntry, over: list[FencedPipe], report: ReapReport) -> None:
        report.examined += 1
        self._examined_at[entry.pipe] = self._clock.now()
        state = self._storage.load_pipe(entry.pipe)
        if not is_standing(state):
            self._finish(entry, state.head.journal if state else None, report)
            return
        owned = OwnedPipe(self._context, entry, state, Taker(self._holder))
        is_open = owned.head.phase is Phase.OPEN
        is_abandoned = self._pipes.is_abandoned(entry, is_open=is_open)
        needs_care = upkeep.needs_care(owned, is_abandoned=is_abandoned)
        is_far = not owned.is_over and rests_for_long(owned)
        if not (owned.is_over or needs_care or is_far or expiry.has_expired(owned)):
            return
        if not self._coordinator.claim(self._queue, entry.pipe, self._holder):
            report.busy += 1
            return
        is_over = False
        try:
            is_done = owned.is_over or self._care(owned, is_abandoned=is_abandoned, report=report)
            if is_far and not is_done:
                report.moved += self._hand_over.put_off(owned)
            is_over = is_done and self._sources.may_retire(owned)  # not where that raises
            if is_done and not is_over:
                self._pipes.forget(entry.pipe)
        finally:
            if is_over:
                over.append(owned)  # released with the others
            else:
                self._coordinator.release(self._queue, entry.pipe, self._holder)

    def _care(self, owned: OwnedPipe, *, is_abandoned: bool, report: ReapReport) -> bool:
        """Seal, drain, return, bury and drop what needs it; True when the pipe is over now."""
        if is_abandoned and owned.head.phase is Phase.OPEN:
            self._record.read()
            if not upkeep.seal(owned):
                return False
            report.sealed += 1
            del self._examined_at[owned.pipe]  # the next pass may find where it ends
        if window_steps.is_over(owned) and not window_steps.take_over(owned):
            return False
        if not (upkeep.step_over(owned) and upkeep.drain(owned)):
            return False
        report.returned += upkeep.return_expired(owned)
        while upkeep.has_spent(owned) or expiry.has_expired(owned):
            result = owned.take(0)
            if result is None or not result.dead:
                break
            for taken in result.dead:
                report.note_ended(taken.run, owned.bury(taken))
        return owned.is_over

    def _retire(self, over: list[FencedPipe], report: ReapReport) -> None:
        """Count pipes that are over, all in one write, then retire and delete them one by one."""
        if not over:
            return
        try:
            ready = self._totals.count(over)
        except CassqError as error:
            self._note_failure(report, f"the totals could not be written: {error}", error)
            return
        looked_at = {fenced.pipe: fenced for fenced in over}
        named: list[tuple[PipeEntry, LogPlace]] = []
        for pipe, fenced in ready.items():
            try:
                if fenced is None or self._journaling.retire(fenced):
                    self._totals.note_retired(pipe)
                    entry, place = looked_at[pipe].entry, looked_at[pipe].head.journal
                    if place:
                        named.append((entry, place))
                    else:
                        self._delete(entry, report)
            except CassqError as error:
                self._note_failure(report, f"pipe {pipe}: {error}", error)
        self._let_go(named, report)

    def _let_go(self, retired: Sequence[tuple[PipeEntry, LogPlace]], report: ReapReport) -> None:
        """Write the events of pipes that have retired, all together, and delete the pipes after that."""
        try:
            self._journaling.write(retired)
            for entry, _ in retired:
                self._delete(entry, report)
        except CassqError as error:
            self._note_failure(report, f"what has retired is left to the next pass: {error}", error)

    def _finish(self, entry: PipeEntry, place: LogPlace | None, report: ReapReport) -> None:
        """Delete what somebody retired, and write its event before where its head names a place."""
        if place is None:
            self._delete(entry, report)
        elif self._coordinator.claim(self._queue, entry.pipe, self._holder):
            try:
                self._let_go([(entry, place)], report)
            finally:
                self._coordinator.release(self._queue, entry.pipe, self._holder)
        else:
            report.busy += 1  # whoever retired it is about to

    def _delete(self, entry: PipeEntry, report: ReapReport) -> None:
        self._storage.delete_pipe(self._queue, entry.pipe, entry.shelf)
        self._pipes.forget(entry.pipe)
        self._on_pipe_gone(entry.pipe)
        self._sources.note_gone(entry)
        report.retired += 1
