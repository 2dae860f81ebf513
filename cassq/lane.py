"""One pusher's way into the database: one pipe after the other, one write at a time.

Owns the pusher's part of the protocol that is about batches: push, unknown, late. Refuses to decide what is
pushed when. Three rules must not break:

- the next numbers are given only after the batch before was acknowledged or settled;
- a number that was sent is never used again, nor is a pipe with an unsettled batch pushed into;
- an acknowledgement that came late is believed only after a look at the head.

    pusher                       database                      reaper
    | open pipe, push 1..5 ----> |                             |
    | push 6..8 ... (frozen)     |  <------- force seal -----  | push_age_max + grace have passed
    |                            |  <------- drain: last = 5   |
    | ... 6..8 acknowledged ---> |                             |
    | late! reads the head: sealed, last = 5: 6..8 were not pushed; push them in a new pipe
"""

import logging
import threading
from concurrent.futures import Executor
from enum import Enum
from functools import partial
from itertools import chain
from typing import Protocol

from cassq import care, windows
from cassq.clock import Clock
from cassq.errors import CassqError, OutcomeUnknownError, StorageUnavailableError
from cassq.limits import SEQ_MAX
from cassq.model.message import Batch, pack_headers
from cassq.model.pipe import Phase, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Seal, Transaction
from cassq.owned_pipe import OwnedPipe
from cassq.parcel import Parcel
from cassq.pipe_supply import OpenPipe, PipeSupply
from cassq.storage.port import Storage

_log = logging.getLogger("cassq.pusher")

#: The first pause after a failed call, and the longest.
PAUSE_S = 0.05
PAUSE_MAX_S = 1.0

#: A batch with an unknown outcome is sent again for so long; after that the pipe is given up by a seal.
RESEND_S = 5.0

_CLEARED_AWAY = "the pipe was cleared away while this push was in flight"


class Outcome(Enum):
    """What is known of a batch that was sent."""

    ACKNOWLEDGED = "acknowledged"
    #: Every attempt was refused before anything was written, and nothing will be.
    REFUSED = "refused"
    #: At least one attempt may have been written, or may still be.
    UNKNOWN = "unknown"


class LaneHost(Protocol):
    """The pusher, as its lanes see it."""

    def check_open(self) -> None:
        """Raise `QueueNotFoundError` when the queue was deleted."""
        ...

    def note_pushed(self, count: int) -> None:
        """Hear that so many messages became durable."""
        ...

    def expire(self) -> None:
        """Fail what waits too long behind a troubled lane."""
        ...


class Lane:
    """Fills one pipe at a time.

    Args:
        queue: the queue's name.
        number: which of the pusher's lanes it is.
        executor: opens pipes ahead of time.
    """

    def __init__(  # noqa: PLR0913 - what a lane needs is what it is
        self,
        storage: Storage,
        queue: str,
        settings: QueueSettings,
        *,
        host: LaneHost,
        pusher: str,
        number: int,
        executor: Executor,
        clock: Clock,
    ) -> None:
        self._storage = storage
        self._pusher = pusher
        self._own = partial(OwnedPipe, storage, queue, settings=settings, holder=pusher, clock=clock)
        self._host = host
        self._clock = clock
        self._pipes = PipeSupply(
            storage, queue, settings, pusher=pusher, number=number, executor=executor, clock=clock
        )
        self._pause = threading.Condition()
        self._reason: CassqError | None = None
        self._is_closing = False

    def write(self, parcels: list[Parcel]) -> None:
        """Store the parcels in order; returns when each of them has ended."""
        pause = PAUSE_S
        while left := [parcel for parcel in parcels if not parcel.is_finished]:
            if self._reason:
                _fail(left, self._not_pushed(), None if self._is_closing else self._clock.now())
                left = [parcel for parcel in left if not parcel.is_finished]
                if not left:
                    return
            try:
                self._host.check_open()
                opened = self._pipes.writable(sum(p.count for p in left), sum(p.size for p in left))
            except (StorageUnavailableError, OutcomeUnknownError) as error:
                self._reason = error
                pause = self._rest(pause)
            except CassqError as error:
                _fail(left, error)
            except Exception as error:
                _log.exception("a pipe could not be opened, for a reason that nobody expected")
                _fail(left, StorageUnavailableError(f"not pushed: {error!r}"))
            else:
                self._send_or_fail(opened, left)

    def tend(self) -> float:
        """Seal what is too old; return seconds until it should be called again."""
        return self._pipes.tend()

    def stop_waiting(self) -> None:
        """Let a troubled lane give up: what it cannot settle now it reports as unknown."""
        with self._pause:
            self._is_closing = True
            self._pause.notify_all()

    def close(self) -> None:
        """Seal what is open."""
        self._pipes.close()

    def _send_or_fail(self, opened: OpenPipe, parcels: list[Parcel]) -> None:
        try:
            self._send(opened, parcels)
        except Exception as error:
            # Not a matter of waiting: the store is damaged, closed, or the code is. Nobody may be left
            # waiting for it, and the lane goes on.
            if not isinstance(error, CassqError):
                _log.exception("a push ended in an error that nobody expected")
            self._pipes.give_up()
            _fail(parcels, OutcomeUnknownError(f"the messages may or may not be stored: {error!r}"))

    def _send(self, opened: OpenPipe, parcels: list[Parcel]) -> None:
        """Write one batch until it is acknowledged, settled, or nobody waits for it any more."""
        bodies = tuple(chain.from_iterable(parcel.bodies for parcel in parcels))
        headers = pack_headers(chain.from_iterable(parcel.headers for parcel in parcels))
        batch = Batch(opened.acked + 1, bodies, headers, len(bodies))
        outcome = self._append(opened, batch, parcels)
        if outcome is Outcome.ACKNOWLEDGED and not self._pipes.is_late(opened):
            opened.acked = batch.last
            opened.size += batch.size
            self._reason = None
            self._store(opened, batch, parcels, batch.last)
            return
        # From here on the pipe takes no further message, whatever the outcome.
        self._pipes.give_up()
        if outcome is Outcome.REFUSED:
            self._pipes.finish(opened)
            return
        if outcome is Outcome.ACKNOWLEDGED:
            reached = self._look(opened, batch, parcels)
        else:
            reached = self._settle(opened, opened.acked, parcels)
        if reached is not None:
            self._store(opened, batch, parcels, reached)

    def _append(self, opened: OpenPipe, batch: Batch, parcels: list[Parcel]) -> Outcome:
        """Send the batch, again and again as it is, until it is acknowledged or time is up."""
        outcome = Outcome.REFUSED
        pause = PAUSE_S
        started = self._clock.now()
        deadline = max(parcel.deadline for parcel in parcels)
        give_up_at = min(started + RESEND_S, (started + deadline) / 2)
        while True:
            try:
                self._storage.append(opened.pipe, batch)
            except StorageUnavailableError as error:
                self._reason = error
            except OutcomeUnknownError as error:
                self._reason = error
                outcome = Outcome.UNKNOWN
            else:
                return Outcome.ACKNOWLEDGED
            if self._clock.now() >= give_up_at or self._is_closing:
                return outcome
            pause = self._rest(pause)

    def _look(self, opened: OpenPipe, batch: Batch, parcels: list[Parcel]) -> int | None:
        """Judge an acknowledgement that came late by the head; return how far the pipe reaches."""
        pause = PAUSE_S
        while True:
            try:
                state = self._storage.load_pipe(opened.pipe)
            except CassqError as error:
                if self._has_given_up(parcels, error):
                    return None
                pause = self._rest(pause)
                continue
            if state is None:
                _fail(parcels, OutcomeUnknownError(_CLEARED_AWAY))
                return None
            if state.head.is_decided:
                return state.head.last
            if state.head.phase is not Phase.OPEN:
                return self._settle(opened, batch.last, parcels)
            # Open: whoever seals it by force later reads what is waiting after that, and finds the batch.
            opened.acked = batch.last
            self._pipes.finish(opened)
            return batch.last

    def _settle(self, opened: OpenPipe, acked: int, parcels: list[Parcel]) -> int | None:
        """Decide by a seal behind `acked` how far the pipe reaches; return that, or None if it is unknown.

        A seal that is refused because more was handed out meanwhile (so it did happen) is tried again
        behind that. A seal with an unknown outcome may still land: it is repeated until the database has
        answered one, and nothing later of this lane is sent before. A window that refuses it tells nothing of
        the batch: it is ended first.
        """
        pause = PAUSE_S
        while True:
            try:
                answer = self._storage.transact(opened.pipe, Transaction(Seal(acked)))
            except CassqError as error:
                if self._has_given_up(parcels, error):
                    return None
                pause = self._rest(pause)
                continue
            if answer.is_applied:
                return acked
            if answer.last is None or answer.cursor is None:
                _fail(parcels, OutcomeUnknownError(_CLEARED_AWAY))
                return None
            if answer.last != SEQ_MAX:
                return answer.last
            if answer.cursor != SEQ_MAX:
                acked = answer.cursor
                continue
            if self._has_given_up(parcels, self._end_window(opened)):
                return None
            pause = self._rest(pause)

    def _end_window(self, opened: OpenPipe) -> CassqError:
        """Do a step towards the end of a popper's window; return what to tell those who cannot wait longer.

        A window tells nothing of what was handed out. By a forced seal no other one begins; then this one is
        cut by its holder, or here once it is over.
        """
        try:
            state = self._storage.load_pipe(opened.pipe)
            if state and state.window:
                owned = self._own(PipeEntry(opened.pipe, self._pusher), state)
                if care.seal(owned):
                    windows.take_over(owned)
        except CassqError as error:
            return error
        return OutcomeUnknownError(f"a popper holds a window of pipe {opened.pipe}")

    def _store(self, opened: OpenPipe, batch: Batch, parcels: list[Parcel], reached: int) -> None:
        """Tell the parcels which of their messages are stored: those up to number `reached`."""
        seq = batch.first
        for parcel in parcels:
            count = parcel.count
            parcel.store(opened.pipe, seq, max(0, min(count, reached - seq + 1)))
            seq += count
        stored = min(reached, batch.last) - batch.first + 1
        if stored > 0:
            self._host.note_pushed(stored)

    def _not_pushed(self) -> StorageUnavailableError:
        return StorageUnavailableError(f"not pushed: {self._reason}")

    def _has_given_up(self, parcels: list[Parcel], error: CassqError) -> bool:
        """Tell those whose time is up that the outcome is unknown; True when the lane must end now."""
        unknown = OutcomeUnknownError(f"the messages may or may not be stored: {error}")
        _fail(parcels, unknown, None if self._is_closing else self._clock.now())
        return self._is_closing

    def _rest(self, pause: float) -> float:
        with self._pause:
            if not self._is_closing:
                self._clock.wait(self._pause, pause)
        self._host.expire()
        return min(2 * pause, PAUSE_MAX_S)


def _fail(parcels: list[Parcel], error: CassqError, now: float | None = None) -> None:
    for parcel in parcels:
        if now is None or parcel.deadline <= now:
            parcel.fail(error)
