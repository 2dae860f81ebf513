"""Leases runs for a consumer that writes down what it has, dies, and comes again under the same name.

Owns when its runs are taken, kept alive, found again after a restart, and committed: when it is told that
what was written down is done. It refuses to read messages; `read_leased` does, in whatever process. A stream
processor's checkpoint is the writing it is made for:

    the stream                       this reader                    the database
    | what comes next? ------------->| take R, for ten minutes ---->| R leased to "reader orders"
    | writes R down                  | (keeps R alive)
    | works on R; is killed
    | again: works on R ------------>| R, by its lease id: extend ->| still leased to it, or refused
    | what comes next? R is done --->| mark R --------------------->|
    |                                | what it took and nobody wrote down: found by its name, comes next

What must not break: a run is committed only under the lease that was written down, and a lease that somebody
else has by now is never used again.
"""

import logging
import threading
from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID

from cassq.bulk.leased_run import LeasedRun, left_of, tag
from cassq.bulk.reader_claim import ReaderClaim
from cassq.bulk.reader_leases import ReaderLeases
from cassq.catalog.queue_context import QueueContext
from cassq.errors import (
    CassqError,
    CorruptError,
    InvalidOptionError,
    OutcomeUnknownError,
    UnavailableError,
)
from cassq.limits import TAKE_MESSAGES_MAX
from cassq.model.pipe import PipeEntry, PipeState
from cassq.model.shelf import Shelf
from cassq.model.uses import uses_keys
from cassq.pipes.batch_reader import read_all
from cassq.pipes.dues import due_after
from cassq.pipes.outside_view import find_pushed
from cassq.pipes.shelves import list_pipes_of
from cassq.popping.fetcher import Fetcher
from cassq.popping.reach import Reach
from cassq.runtime.outage_log import log_trouble
from cassq.runtime.periodic_thread import PeriodicThread
from cassq.runtime.reentry import Closing

_log = logging.getLogger("cassq.reader")

#: A reader that found nothing and that nobody wakes looks again after so long.
POLL_S = 0.25

#: Leases are extended this often in their time.
EXTEND_PER_LEASE = 3


class RunReader:
    """Leases runs under a stable name. One thread calls it; a loop of its own keeps the leases alive.

    Args:
        context: of the queue, with the lease of this reader.
        fetcher: takes, under the name that `tag` makes of `name`.
        name: the reader's name, the same after every restart.

    Raises: InvalidOptionError: another process reads under this name, or messages of the queue have keys.
    """

    def __init__(self, context: QueueContext, fetcher: Fetcher, name: str) -> None:
        _check_keyless(context)
        self._fetcher = fetcher
        self._context = context
        self._storage = context.storage
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._name = name
        self._holder = fetcher.holder
        self._check_takes = context.record.may_take
        self._clock = context.clock
        self._leases = ReaderLeases(context, name)
        self._pause = threading.Condition()
        self._closing = Closing(context.clock)
        self._is_woken = True
        self._looked_at = float("-inf")
        self._until: dict[UUID, int] | None = None
        self._claim = ReaderClaim(context, name, self._holder)
        self._claim.take()
        seconds = context.lease.total_seconds() / EXTEND_PER_LEASE
        thread = PeriodicThread(f"cassq-reader-{name}", context.clock)
        self._loop = thread.repeat(f"reader {name}", self.keep_alive, seconds)

    def take(self, wanted: int | None) -> list[LeasedRun]:
        """Lease up to about `wanted` messages; everything there is for None. Empty when there is nothing now.

        Claims on pipes are given up before this returns: what is leased needs none. Trouble with a service is
        no error here: it is logged, and the next call tries again.

        Raises:
            QueueNotFoundError, CorruptError: nothing was taken.
            InvalidOptionError: another process reads under this name by now, or messages have keys.
        """
        found: list[LeasedRun] = []
        if not self._is_worth_a_look() or not self._check_takes():
            return found
        _check_keyless(self._context)
        is_woken, self._is_woken = self._is_woken, False
        self._looked_at = self._clock.now()
        try:
            self._check_named()
            self._take(wanted, found, is_woken=is_woken)
            if found:
                self._looked_at = float("-inf")  # there may be more at once
        except (UnavailableError, OutcomeUnknownError) as error:
            words = "queue %s: reader %s takes nothing for now: %s"
            log_trouble(_log, error, words, self._queue, self._name, error)
        except CassqError:
            if not found:
                raise
            _log.exception("queue %s: reader %s takes no more for now", self._queue, self._name)
        finally:
            self._fetcher.let_go()
        return found

    def _take(self, wanted: int | None, found: list[LeasedRun], *, is_woken: bool) -> None:
        left = wanted
        while left is None or left > 0:
            most = TAKE_MESSAGES_MAX if left is None else min(left, TAKE_MESSAGES_MAX)
            try:
                fetched = self._fetcher.feed(most, Reach.DRAINED if is_woken else Reach.BUSY)
            except CorruptError:
                # That pipe is left alone from now on; the others are as good as before.
                fetched = self._fetcher.feed(most)
            if not fetched:
                return
            is_woken = False
            found += [self._leases.note(held, taken) for held, taken in fetched]
            if left is not None:
                left -= sum(taken.count for _, taken in fetched)

    def adopt(self, written: Iterable[LeasedRun]) -> list[LeasedRun]:
        """Return what an earlier process of this name leased and did not write down.

        It keeps its lease id: what another process of this name wrote down meanwhile is then the same run,
        and whoever writes the batch down first has it.

        Args:
            written: what it wrote down last.
        """
        self._check_named()
        known = {run.lease_id for run in written} | self._leases.ids()
        found: list[LeasedRun] = []
        for entry in self._list_poppable():
            state = self._storage.load_pipe(entry.pipe)
            for row in state.runs if state else ():
                is_ours = row.holder == tag(self._name) and row.lease_id not in known
                if state and is_ours and not row.is_burial:
                    run = left_of(entry, state, row)
                    if run and self._leases.begin_anew(run):
                        found.append(run)
        return found

    def hold(self, runs: Iterable[LeasedRun]) -> list[LeasedRun]:
        """Make sure that runs which were written down are leased to this reader; return those that are not.

        A lease that ran out, and that nobody took since, begins anew.
        """
        self._check_named()
        return [run for run in runs if not (self._leases.is_held(run) or self._leases.begin_anew(run))]

    def commit(self, runs: Iterable[LeasedRun]) -> None:
        """Commit runs that were written down and are done; again does no harm.

        What others took because a lease had ended is logged: it comes to them, too.

        Raises: OutcomeUnknownError, StorageUnavailableError: not known to be committed; call it again.
        """
        self._check_named()
        for run in runs:
            is_committed = self._leases.commit(run)
            if not is_committed and not self._leases.has_ended(run):
                _log.warning(
                    "queue %s: %d messages of pipe %s were done by reader %s after their lease had ended: "
                    "others have them, too; give the reader a longer lease",
                    *(self._queue, run.count, run.pipe, self._name),
                )
            self._leases.forget(run)

    def stop_at_present(self) -> None:
        """Take nothing from now on that is pushed, or due, after this call."""
        until: dict[UUID, int] = {}
        for entry in self._list_poppable():
            state = self._storage.load_pipe(entry.pipe)
            if state:
                last = min(state.head.last, find_pushed(self._storage, entry.pipe, state.head))
                until[entry.pipe] = self._find_due(entry, state, last) if entry.due_class else last
        self._until = until
        self._fetcher.stop_at(dict(until))

    def _list_poppable(self) -> list[PipeEntry]:
        return list_pipes_of(self._storage, self._queue, self._context.settings, (Shelf.READY, Shelf.DUE))

    def _find_due(self, entry: PipeEntry, state: PipeState, last: int) -> int:
        """Return the last number of a pipe up to which its messages are due now."""
        first = state.head.read_from
        batches = read_all(self._storage, entry.pipe, last, is_outline=True, read_from=first)
        return min(last, next((seq - 1 for seq, _ in due_after(batches, 0, state.now_ms)), last))

    def is_at_stop(self) -> bool:
        """Tell whether everything up to `stop_at_present` was handed out, by whomever."""
        until = self._until or {}
        for pipe, last in list(until.items()):
            state = self._storage.load_pipe(pipe)
            if state is not None:
                window = state.window
                cursor = window.first - 1 if window else state.head.cursor
                if cursor < min(last, state.head.last):
                    return False
            del until[pipe]
        return True

    def may_take(self) -> bool:
        """Tell whether takes are allowed now: False while the queue is paused."""
        return self._check_takes()

    def wait(self) -> None:
        """Wait until it is worth taking again."""
        with suppress(UnavailableError):
            self._coordinator.announce_hunger(self._queue, self._holder, self._wake)
        with self._pause:
            if not self._is_woken:
                self._clock.wait(self._pause, POLL_S)
        self._coordinator.withdraw_hunger(self._queue, self._holder)

    def keep_alive(self) -> None:
        """Extend every lease that is held, those that end first before the others."""
        if not self._claim.is_held():
            return  # another process may read under this name: the next call looks
        for error in self._leases.extend_all():
            words = "queue %s: a lease of reader %s: %s"
            log_trouble(_log, error, words, self._queue, self._name, error)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closing.has_begun

    @property
    def has_closed(self) -> bool:
        """Whether its closing has ended."""
        return self._closing.has_closed

    def close(self) -> None:
        """Give the claims up; the leases stay, for whoever comes under this name.

        May be called twice: the second call waits for the first.
        """
        self._closing.run(self._close)

    def _close(self) -> None:
        self._loop.close()
        self._coordinator.withdraw_hunger(self._queue, self._holder)
        self._fetcher.close()
        self._claim.release()

    def _check_named(self) -> None:
        """Make sure that no other process reads under this name; what is held otherwise is given up.

        Raises: InvalidOptionError: one does.
        """
        if self._claim.is_held():
            return
        self._leases.clear()  # another process of the name may have come, adopted it, and gone
        self._claim.take(0.0)

    def _is_worth_a_look(self) -> bool:
        return self._is_woken or self._clock.now() - self._looked_at >= POLL_S

    def _wake(self) -> None:
        with self._pause:
            self._is_woken = True
            self._pause.notify_all()


def _check_keyless(context: QueueContext) -> None:
    if uses_keys(context.settings):
        raise InvalidOptionError(
            f"queue {context.queue!r} has messages with keys, of which a reader takes none: it takes many at "
            "once. Pop them, or push those without a key into another queue"
        )
