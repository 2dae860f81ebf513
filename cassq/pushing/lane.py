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
from typing import Protocol

from cassq.catalog.queue_context import QueueContext
from cassq.errors import (
    AccessDeniedError,
    CassqError,
    CorruptError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from cassq.limits import UNDECIDED, WINDOW_OUT
from cassq.model.ids import Source
from cassq.model.message import Batch
from cassq.model.pipe import Phase
from cassq.model.schedule import is_pile
from cassq.model.transaction import Seal, Transaction
from cassq.pushing.callers import CALL_S, Callers
from cassq.pushing.pipe_rotation import OpenPipe, PipeRotation
from cassq.pushing.push_request import PushRequest
from cassq.runtime.deadline import Deadline

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

    def latest_ms(self) -> int:
        """Return what the database's clock shows at the most."""
        ...

    def note_pushed(self, count: int, kind: str) -> None:
        """Hear that so many messages of a type became durable."""
        ...

    def expire(self) -> None:
        """Fail what waits too long behind a troubled lane."""
        ...


class Lane:
    """Fills one pipe at a time.

    Args:
        host: whoever hears what became of a push.
        source: whose pipes they are.
        executor: opens pipes ahead of time.
    """

    def __init__(self, context: QueueContext, source: Source, *, host: LaneHost, executor: Executor) -> None:
        self._storage = context.storage
        self._host = host
        self._clock = context.clock
        self._type = source.type
        self._is_pile = is_pile(source.due_class)
        self._pipes = PipeRotation(context, source, executor, host.latest_ms)
        self._pause = threading.Condition()
        self._reason: CassqError | None = None
        self._is_closing = False

    def write(self, requests: list[PushRequest]) -> None:
        """Store the requests in order; returns when each of them has ended."""
        pause = PAUSE_S
        callers = Callers(requests, self._clock)
        while callers.still_wait():
            if self._reason:
                callers.fail(self._not_pushed(), only_late=not self._is_closing)
                if not callers.still_wait():
                    return
            try:
                with callers.in_time():
                    self._host.check_open()
                    opened = self._pipes.writable(callers.count, callers.size, callers.due_ms)
            except (StorageUnavailableError, OutcomeUnknownError) as error:
                self._reason = error
                pause = self._rest(pause, callers)
            except CassqError as error:
                callers.fail(error)
            except Exception as error:
                _log.exception("a pipe could not be opened, for a reason that nobody expected")
                callers.fail(StorageUnavailableError(f"not pushed: {error!r}"))
            else:
                self._send_or_fail(opened, callers)

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

    def _send_or_fail(self, opened: OpenPipe, callers: Callers) -> None:
        try:
            self._send(opened, callers)
        except Exception as error:
            # Not a matter of waiting: the store is damaged, closed, or the code is. Nobody may be left
            # waiting for it, and the lane goes on.
            if not isinstance(error, CassqError):
                _log.exception("a push ended in an error that nobody expected")
            self._pipes.give_up()
            callers.fail(OutcomeUnknownError(f"the messages may or may not be stored: {error!r}"))

    def _send(self, opened: OpenPipe, callers: Callers) -> None:
        """Write one batch until it is acknowledged, settled, or nobody waits for it any more."""
        batch = callers.batch(opened.acked + 1)
        outcome = self._append(opened, batch, callers)
        if outcome is Outcome.ACKNOWLEDGED and not self._pipes.is_late(opened):
            opened.acked = batch.last
            opened.size += batch.size
            self._reason = None
            self._store(opened, batch, callers, batch.last)
            return
        # From here on the pipe takes no further message, whatever the outcome.
        self._pipes.give_up()
        if outcome is Outcome.REFUSED:
            if isinstance(self._reason, AccessDeniedError):
                callers.fail(self._reason)  # waiting will not help
            else:
                callers.fail(self._not_pushed(), only_late=True)  # who has no time waits for no seal
            with Deadline(self._clock.now() + CALL_S):
                self._pipes.finish(opened)  # what fails now is tried again, when nobody waits
            return
        if outcome is Outcome.ACKNOWLEDGED:
            reached = self._look(opened, batch, callers)
        else:
            reached = self._settle(opened, opened.acked, callers)
        if reached is not None:
            self._store(opened, batch, callers, reached)

    def _append(self, opened: OpenPipe, batch: Batch, callers: Callers) -> Outcome:
        """Send the batch, again and again as it is, until it is acknowledged or time is up."""
        outcome = Outcome.REFUSED
        pause = PAUSE_S
        started = self._clock.now()
        deadline = callers.deadline
        give_up_at = min(started + RESEND_S, (started + deadline) / 2)
        while True:
            try:
                with callers.in_time():
                    self._storage.append(opened.pipe, batch)
            except StorageUnavailableError as error:
                self._reason = error
            except AccessDeniedError as error:
                self._reason = error
                return outcome
            except OutcomeUnknownError as error:
                self._reason = error
                outcome = Outcome.UNKNOWN
            else:
                return Outcome.ACKNOWLEDGED
            if self._clock.now() >= give_up_at or self._is_closing:
                return outcome
            pause = self._rest(pause, callers)

    def _look(self, opened: OpenPipe, batch: Batch, callers: Callers) -> int | None:
        """Judge an acknowledgement that came late by the head; return how far the pipe reaches."""
        pause = PAUSE_S
        while True:
            try:
                with callers.in_time():
                    state = self._storage.load_pipe(opened.pipe)
            except CassqError as error:
                if self._has_given_up(callers, error):
                    return None
                pause = self._rest(pause, callers)
                continue
            if state is None:
                callers.fail(OutcomeUnknownError(_CLEARED_AWAY))
                return None
            if state.head.is_decided:
                self._pipes.check_end(opened, state.head.last)
                return state.head.last
            if state.head.phase is not Phase.OPEN:
                return self._settle(opened, batch.last, callers)
            # Open: whoever seals it by force later reads what is waiting after that, and finds the batch.
            opened.acked = batch.last
            self._pipes.finish(opened)
            return batch.last

    def _settle(self, opened: OpenPipe, acked: int, callers: Callers) -> int | None:
        """Decide by a seal behind `acked` how far the pipe reaches; return that, or None if it is unknown.

        A seal that is refused because more was handed out meanwhile (so it did happen) is tried again
        behind that. A seal with an unknown outcome may still land: it is repeated until the database has
        answered one, and nothing later of this lane is sent before. A window that refuses it tells nothing of
        the batch: it is ended first.
        """
        pause = PAUSE_S
        while True:
            try:
                with callers.in_time():
                    answer = self._storage.transact(opened.pipe, Transaction(Seal(acked)))
            except CassqError as error:
                if self._has_given_up(callers, error):
                    return None
                pause = self._rest(pause, callers)
                continue
            if answer.is_applied:
                return acked
            if answer.last is None or answer.cursor is None:
                callers.fail(OutcomeUnknownError(_CLEARED_AWAY))
                return None
            if answer.last != UNDECIDED:
                self._pipes.check_end(opened, answer.last)
                return answer.last
            if answer.cursor != WINDOW_OUT:
                acked = answer.cursor
                continue
            with callers.in_time():
                reason = self._pipes.end_window(opened)
            if self._has_given_up(callers, reason):
                return None
            pause = self._rest(pause, callers)

    def _store(self, opened: OpenPipe, batch: Batch, callers: Callers, reached: int) -> None:
        """Tell the callers which of their messages are stored: those up to number `reached`."""
        stored = callers.store(opened.pipe, batch, reached)
        if stored and not self._is_pile:  # of which nobody takes yet
            self._host.note_pushed(stored, self._type)

    def _not_pushed(self) -> StorageUnavailableError:
        when = "before the queue was closed" if self._is_closing else "in the time that was given"
        return StorageUnavailableError(f"not pushed {when}; the last try: {self._reason}")

    def _has_given_up(self, callers: Callers, error: CassqError) -> bool:
        """Tell those whose time is up that the outcome is unknown; True when nothing more will be known.

        Of a pipe that cannot be decoded nothing will: it is left as it is, and nobody takes from it either.
        """
        is_over = self._is_closing or isinstance(error, CorruptError)
        unknown = OutcomeUnknownError(f"the messages may or may not be stored: {error}")
        callers.fail(unknown, only_late=not is_over)
        return is_over

    def _rest(self, pause: float, callers: Callers) -> float:
        with self._pause:
            if not self._is_closing:
                left = callers.deadline - self._clock.now()
                self._clock.wait(self._pause, min(pause, max(left, PAUSE_S)))
        self._host.expire()
        return min(2 * pause, PAUSE_MAX_S)
