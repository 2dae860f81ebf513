"""The leases that a run reader holds.

Owns which runs it holds, and how each lease is kept alive, begun anew and given up. Refuses to know the
claim on the reader's name: the reader looks after that. What must not break: a run is committed only under
the lease that was written down, and a lease that somebody else has by now is never used again.
"""

import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from cassq.bulk.leased_run import LeasedRun, written_down
from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, DeliveryExpiredError, OutcomeUnknownError
from cassq.model.pipe import PipeEntry, Run, RunState
from cassq.model.progress import Progress
from cassq.model.ranges import Ranges
from cassq.model.take_plan import Taken
from cassq.model.transaction import RunChange, Transaction
from cassq.pipes.held_run import HeldRun
from cassq.popping.commits import commit_run

REVIVE_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class _Held:
    run: LeasedRun
    held: HeldRun


class ReaderLeases:
    """The runs that one reader holds; its threads share them.

    Args:
        context: of the queue, with the lease of this reader.
        name: the reader's.
    """

    def __init__(self, context: QueueContext, name: str) -> None:
        self._storage = context.storage
        self._name = name
        self._clock = context.clock
        self._lease_ms = round(1000 * context.lease.total_seconds())
        self._hold = partial(HeldRun, context, on_row_changed=lambda *_: None)
        self._held: dict[UUID, _Held] = {}
        self._lock = threading.RLock()

    def ids(self) -> set[UUID]:
        """Return the lease ids of the runs that are held."""
        return set(self._held)

    def note(self, held: HeldRun, taken: Taken) -> LeasedRun:
        """Hold a run that was taken; return it as it is written down."""
        parts = Ranges((part.first, part.last) for part in taken.parts)
        run = written_down(held.entry, taken.run, tuple(parts))
        with self._lock:
            self._held[run.lease_id] = _Held(run, held)
        return run

    def is_held(self, run: LeasedRun) -> bool:
        """Tell whether the lease of a run still runs, for this process."""
        held = self.held_of(run)
        return held is not None and held.is_live

    def begin_anew(self, run: LeasedRun) -> HeldRun | None:
        """Begin the lease of a run anew; None when it does not stand any more.

        Raises: OutcomeUnknownError, StorageUnavailableError: not known.
        """
        for _ in range(REVIVE_ATTEMPTS):
            row = self._find(run)
            if row is None:
                return None
            sent_at = self._clock.latest()
            wanted = replace(row, lease_ms=self._lease_ms)
            change = RunChange(wanted, row.lease_id, row.leased_at_ms, is_leased_now=True)
            try:
                is_applied = self._storage.transact(run.pipe, Transaction(runs=(change,))).is_applied
            except OutcomeUnknownError:
                continue  # applied or not, the next attempt is conditional on what it then reads
            if is_applied:
                ends_at = sent_at + self._lease_ms / 1000
                held = self._hold(
                    PipeEntry(run.pipe, self._name), Taken(wanted, (), (row.read_from,)), ends_at
                )
                with self._lock:
                    self._held[run.lease_id] = _Held(run, held)
                return held
        raise OutcomeUnknownError(f"pipe {run.pipe}: a lease of reader {self._name!r} could not be settled")

    def commit(self, run: LeasedRun) -> bool:
        """Commit a run under the lease that it has, or that begins anew; False when it is lost."""
        held = self.held_of(run)
        if held:
            with suppress(DeliveryExpiredError):
                commit_run(held, Ranges(run.parts))
                return True
        held = self.begin_anew(run)
        if held:
            commit_run(held, Ranges(run.parts))
        return held is not None

    def has_ended(self, run: LeasedRun) -> bool:
        """Tell whether every message of a run has ended, by whomever."""
        state = self._storage.load_pipe(run.pipe)
        if state is None:
            return True
        progress = Progress(state)
        return all(
            part.last <= state.head.floor
            or not any(progress.missing(max(part.first, state.head.floor + 1), part.last))
            for part in run.parts
        )

    def extend_all(self) -> list[CassqError]:
        """Extend every lease, those that end first before the others; return what failed."""
        with self._lock:
            held = sorted(self._held.values(), key=lambda each: each.held.ends_at)
        failed: list[CassqError] = []
        for each in held:
            try:
                self._extend(each)
            except CassqError as error:
                failed.append(error)
        return failed

    def forget(self, run: LeasedRun) -> None:
        """Hold a run no more."""
        with self._lock:
            self._held.pop(run.lease_id, None)

    def clear(self) -> None:
        """Hold nothing any more."""
        with self._lock:
            self._held.clear()

    def _extend(self, each: _Held) -> None:
        try:
            each.held.extend()
        except DeliveryExpiredError:
            with self._lock:
                is_current = self._held.get(each.run.lease_id) is each
            if is_current and not self.begin_anew(each.run):
                with self._lock:
                    if self._held.get(each.run.lease_id) is each:
                        del self._held[each.run.lease_id]

    def held_of(self, run: LeasedRun) -> HeldRun | None:
        """Return a run as this process holds it."""
        with self._lock:
            each = self._held.get(run.lease_id)
        return each.held if each else None

    def _find(self, run: LeasedRun) -> Run | None:
        state = self._storage.load_pipe(run.pipe)
        for row in state.runs if state else ():
            if row.lease_id == run.lease_id and row.state is RunState.LEASED:
                return row
        return None
