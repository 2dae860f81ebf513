"""A run in a popper's hands, from the take until its last message has ended or its lease has.

Owns the holder's half of the protocol: marks, rollback, extend, give back. Runs stay with their holder
when the claim on the pipe moves on, so nothing here needs the claim. What must not break:

- the lease ends for its holder first: it is counted from before the take was sent, on this process's clock;
- a mark is believed only if it was acknowledged while the lease ran; `popping.commits` begins it only then.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, DeliveryExpiredError, OutcomeUnknownError, StorageUnavailableError
from cassq.limits import RETURN_PARTS_MAX
from cassq.model.pipe import Mark, PipeEntry, Run, RunState
from cassq.model.ranges import Ranges
from cassq.model.retrying import NO_REASON, rest_ms, to_delay_ms, to_reason
from cassq.model.take_plan import Handout, Taken
from cassq.model.transaction import RunChange, Transaction
from cassq.pipes.burial import bury
from cassq.pipes.held_window import HeldWindow
from cassq.pipes.run_rows import Return, RunRows
from cassq.runtime.deadline import Deadline
from cassq.runtime.reentry import alone, check_may_wait, check_outside, unawaited

_log = logging.getLogger("cassq.popper")

#: A lease that has ended for good, whatever the clock says.
_ENDED = float("-inf")


class HeldRun:
    """The rows of one taken run, under one lease.

    Args:
        entry: of its pipe.
        taken: what the take brought.
        ends_at: the clock's latest reading when the lease ends for this process.
        on_row_changed: called with acknowledged marks and returned rows, for the owner of the pipe.
    """

    def __init__(
        self,
        context: QueueContext,
        entry: PipeEntry,
        taken: Taken,
        ends_at: float,
        *,
        on_row_changed: Callable[..., None],
    ) -> None:
        self._context = context
        self._guard = context.guard
        self.events = context.events
        self.tracer = context.tracer
        self.queue = context.queue
        self._storage = context.storage
        self.entry = entry
        self.pipe = entry.pipe
        self.ends_at = ends_at
        self.clock = context.clock
        self._ahead_s = self.clock.latest() - self.clock.now()
        self._on_row_changed = on_row_changed
        self._window_lease_s = taken.run.lease_ms / 1000  # of a window: longer than the queue's by its time
        self.lease_s = (taken.run.lease_ms - taken.run.window_ms) / 1000
        self.taken, self.attempt = taken.run, taken.run.attempt
        self._rows = RunRows(taken, entry.attempt_of(taken.run))
        self._window: HeldWindow | None = None
        self._changing = threading.RLock()

    def be_of(self, window: HeldWindow) -> None:
        """Note the window that the run is of, while more may be handed out of it: then `grow` adds that.

        Its row stands only once the window has ended, so whatever changes the row waits for that.
        """
        self._window = window

    def grow(self, taken: Taken) -> None:
        """Add what was handed out of the same window since."""
        self._rows.grow(taken)

    @property
    def is_window_out(self) -> bool:
        """Whether it is of a window that has not ended."""
        return self._window is not None and self._window.is_out

    @property
    def is_live(self) -> bool:
        """Whether the lease still runs, for this process."""
        return self.clock.latest() < self.ends_at

    def still_runs(self) -> bool:
        """Tell whether the lease still runs; asks the database when a witness of time alone says no.

        Others count from `leased_at` on, and add the most that nodes' clocks differ. So it runs on for at
        least as long as the node that answers says.
        """
        if self.clock.latest() < self.ends_at:
            return True
        if self.clock.now() + self._ahead_s < self.ends_at:  # a witness of time says no
            ended_at = self.ends_at
            ahead_s, asked_at = self.clock.latest() - self.clock.now(), self.clock.latest()
            with suppress(CassqError):
                state = self._storage.load_pipe(self.pipe)
                rows = self._rows.standing(state) if state else []
                if state and self._rows.is_leased(rows):
                    left_ms = min(row.leased_at_ms + row.lease_ms for row in rows) - state.now_ms
                    with unawaited(self._changing, "a look at a lease"):
                        if self.ends_at == ended_at:  # nobody extended it meanwhile, or gave it up for good
                            self.ends_at, self._ahead_s = asked_at + left_ms / 1000, ahead_s
        return self.is_live

    @property
    def left_s(self) -> float:
        """Seconds until the lease ends."""
        return self.ends_at - self.clock.latest()

    def marks(self, parts: Ranges) -> list[Mark]:
        """Return the marks that commit these messages; each lies within one row."""
        self._guard.check("the delivery")
        with alone(self._changing, "a commit"):
            return list(self._rows.cut(parts))

    def write(self, marks: Sequence[Mark]) -> bool:
        """Write marks once; False when they were not acknowledged while the lease ran.

        Raises: OutcomeUnknownError, StorageUnavailableError, AccessDeniedError: as `Storage.mark`.
        """
        with Deadline(self.clock.now() + self.left_s):
            self._storage.mark(self.pipe, self._context.timed(marks))
        if not self.still_runs():
            return False
        self._on_row_changed(*marks)
        return True

    def note_rows(self, *rows: Mark | Run) -> None:
        """Tell the owner of marks or rows that this process wrote under the lease by its token."""
        self._on_row_changed(*rows)

    def after_failure(self, seq: int, reason: str, delay: timedelta | None = None) -> Return:
        """Return how a message goes back that a consumer could not deal with; None: as the settings say.

        Raises: InvalidOptionError: the reason or the delay is none.
        """
        settings = self._context.settings
        reason = to_reason(reason) or NO_REASON
        delay_ms = None if delay is None else to_delay_ms(delay)
        if self.attempt >= settings.max_attempts:
            return Return(reason=reason, is_last=True)
        if delay_ms is None:
            delay_ms = rest_ms(settings, self.pipe, seq, self.attempt)
        return Return(delay_ms, reason=reason)

    def give_back(self, returned: Ranges, how: Return, messages: Iterable[Handout] = ()) -> bool:
        """Return messages, so that they are delivered again; False when they come again by themselves.

        A lost race or an outage is no error here: they come back when the lease ends. Ends a window first.

        Args:
            messages: of those that go back for the last time: they become dead letters.

        Raises: AccessDeniedError: the role may not write; the lease runs as before.
        """
        self._guard.check("the delivery")
        check_outside(self._changing, "a rollback")
        # Without a known row it is leased until the lease ends, and nothing more can be done.
        has_row = self._has_row()
        with alone(self._changing, "a rollback"):
            back = self._return_all(returned, how) if has_row else None
        if back and how.is_last:
            self._bury(back, {message[0]: message for message in messages})
        return back is not None

    def _bury(self, rows: Sequence[Run], messages: Mapping[int, Handout]) -> None:
        """Write what is leased for it to the dead letters; what fails is left to the pipe's next owner."""
        try:
            with Deadline(self.clock.now() + self.lease_s):
                for row in rows:
                    own = (messages[seq] for seq in range(row.first, row.last + 1))
                    self._on_row_changed(*bury(self._context, self.entry, row, own))
        except CassqError as error:
            _log.warning(
                "queue %s: messages of pipe %s become dead letters when their lease of %g s ends: %s",
                *(self.queue, self.pipe, self.lease_s, error),
            )

    def _return_all(self, returned: Ranges, how: Return) -> list[Run] | None:
        """Return messages by as many transactions as that takes; None where not all of it was written."""
        back: list[Run] = []
        for portion in returned.portions(RETURN_PARTS_MAX):
            rows = self._return(portion, how)
            if rows is None:
                return None
            back += rows
        return back

    def _return(self, returned: Ranges, how: Return) -> list[Run] | None:
        """Write rows as they shall be; return those that went back, or None when that was not written."""
        if not self.still_runs():
            return None
        try:
            not_before_ms = self._database_ms() + how.delay_ms if how.delay_ms else 0
            rows, changes = self._rows.split(returned, not_before_ms, how)
            if not changes:
                return []
            if not self._storage.transact(self.pipe, Transaction(runs=tuple(changes))).is_applied:
                self.ends_at = _ENDED
                return None
            self._rows.keep(rows)
            # All rows, also those that stay: over one that its owner does not know of the floor would pass.
            # Before anybody changes them again: what is told last counts. In one call: a signal ends a loop.
            self._on_row_changed(*rows)
        except StorageUnavailableError:
            return None  # nothing was written: the others of the run are leased as before
        except OutcomeUnknownError:
            # Which rows there are now is not known: nothing more is done under this lease.
            self.ends_at = _ENDED
            return None
        except CassqError:
            raise  # refused: nothing was written
        except BaseException:  # interrupted: not known either
            self.ends_at = _ENDED
            raise
        return [row for row in rows if row.state is RunState.RETURNED or row.is_burial]

    def extend(self) -> None:
        """Begin the lease anew, for every message of the run. A window is ended first.

        Raises:
            DeliveryExpiredError: the lease had ended, or was taken over; the messages come again.
            OutcomeUnknownError, StorageUnavailableError: not known to be extended; the old lease stands.
            AccessDeniedError: the role may not write; the old lease stands.
        """
        self._guard.check("the delivery")
        check_outside(self._changing, "extend()")
        has_row = self._has_row()
        with alone(self._changing, "extend()"):
            if not self.still_runs():
                raise DeliveryExpiredError("the lease has ended, not extended: the message comes again")
            if not has_row:
                raise StorageUnavailableError(
                    "its window was not ended, or the rest of it was not returned: not extended, the old "
                    "lease stands"
                )
            state = self._storage.load_pipe(self.pipe)
            rows = self._rows.standing(state) if state else []
            if not self._rows.is_leased(rows):
                rows = []
            ahead_s, sent_at = self.clock.latest() - self.clock.now(), self.clock.latest()
            if not (rows and self._extend_all(rows)):
                self.ends_at = _ENDED
                raise DeliveryExpiredError(
                    "the lease was taken over: the message is delivered again, unless it was cancelled"
                )
            self.ends_at, self._ahead_s = sent_at + self._window_lease_s, ahead_s

    def _extend_all(self, rows: Sequence[Run]) -> bool:
        """Lease all rows anew; False where one is refused. Until all are written the old lease stands."""
        lease_id = self._rows.lease_id
        changes = tuple(RunChange(row, lease_id, row.leased_at_ms, is_leased_now=True) for row in rows)
        portions = (changes[at : at + RETURN_PARTS_MAX] for at in range(0, len(changes), RETURN_PARTS_MAX))
        return all(self._storage.transact(self.pipe, Transaction(runs=own)).is_applied for own in portions)

    def _has_row(self) -> bool:
        """Tell whether it is known where the run ends; of a window that is out, once it has been ended."""
        window = self._window
        if window is None:
            return True
        check_may_wait("a rollback or extend()")  # another thread ends the window
        last = window.wait_end(self.clock, self.ends_at)
        if last is None:
            last = self._read_end()
        if last is None:
            return False
        with unawaited(self._changing, "a rollback or extend()"):
            if self._window:
                self._rows.end_window(last)
                # Others ended it behind all that was pushed. Who extends this lease has not got the rest.
                if window.reached < last:
                    unseen = Ranges(((window.reached + 1, last),))
                    if self._return(unseen, Return(is_counted=False)) is None:
                        return False  # the next call returns them
                self._window = None
        return True

    def _read_end(self) -> int | None:
        """Read where others ended the window: once they have, the row stays under this lease as it is."""
        with suppress(CassqError):
            state = self._storage.load_pipe(self.pipe)
            for run in state.runs if state else ():
                if run.lease_id == self._rows.lease_id and not run.window_ms:
                    return run.last
        return None

    def _database_ms(self) -> int:
        state = self._storage.load_pipe(self.pipe)
        return state.now_ms if state else 0
