"""One pusher's way into the database: one pipe after the other, one write at a time.

Owns the pusher's half of the protocol: open, push, unknown, roll, late. Refuses to decide what is pushed
when. Three rules must not break:

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

import threading
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from cassq.clock import Clock
from cassq.errors import CassqError, OutcomeUnknownError, StorageUnavailableError
from cassq.limits import SEQ_MAX
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.message import Batch, pack_headers
from cassq.model.pipe import Head, Phase, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.transaction import Seal, Transaction
from cassq.parcel import Parcel
from cassq.storage.port import Storage

#: The first pause after a failed call, and the longest.
PAUSE_S = 0.05
PAUSE_MAX_S = 1.0

#: A batch with an unknown outcome is sent again for so long; after that the pipe is given up by a seal.
RESEND_S = 5.0

_CLEARED_AWAY = "the pipe was cleared away while this push was in flight"

#: From this part of a pipe's age or size on, an idle lane opens the next one.
OPEN_AHEAD = 0.5


@dataclass(slots=True)
class OpenPipe:
    """The pipe that a lane pushes into.

    Attributes:
        opened_at: the clock's reading from before the head was written.
        acked: number of the last acknowledged message.
        size: bytes of the acknowledged bodies.
    """

    pipe: UUID
    opened_at: float
    acked: int = 0
    size: int = 0


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
        clock: Clock,
    ) -> None:
        self._storage = storage
        self._queue = queue
        self._settings = settings
        self._host = host
        self._pusher = pusher
        self._number = number
        self._clock = clock
        self._current: OpenPipe | None = None
        self._next: OpenPipe | None = None
        self._unsealed: list[OpenPipe] = []
        self._pause = threading.Condition()
        self._is_closing = False

    def write(self, parcels: list[Parcel]) -> None:
        """Store the parcels in order; returns when each of them has ended."""
        pause = PAUSE_S
        while left := [parcel for parcel in parcels if not parcel.is_finished]:
            try:
                self._host.check_open()
                opened = self._writable(sum(p.count for p in left), sum(p.size for p in left))
            except (StorageUnavailableError, OutcomeUnknownError) as error:
                late = None if self._is_closing else self._clock.now()
                _fail(left, StorageUnavailableError(f"not pushed: {error}"), late)
                pause = self._rest(pause)
            except CassqError as error:
                _fail(left, error)
            else:
                self._send(opened, left)

    def tend(self) -> float:
        """Do what can be done ahead of time, or was left over; never raises.

        Returns: seconds until it should be called again.
        """
        age_max = self._settings.push_age_max.total_seconds()
        if self._current and self._age(self._current) >= age_max:
            old, self._current = self._current, None
            self._finish(old)
        if self._next and self._age(self._next) >= age_max:
            old, self._next = self._next, None
            self._finish(old)
        current = self._current
        for opened in self._unsealed[:]:
            self._unsealed.remove(opened)
            self._finish(opened)
        if current and not self._next and self._is_well_used(current):
            try:
                self._next = self._open()
            except (StorageUnavailableError, OutcomeUnknownError):
                return PAUSE_MAX_S  # the next push will say so if it lasts
        if self._unsealed:
            return PAUSE_MAX_S
        opened_at = [opened.opened_at for opened in (self._current, self._next) if opened]
        return max(0.0, min(opened_at, default=self._clock.now()) + age_max - self._clock.now())

    def stop_waiting(self) -> None:
        """Let a troubled lane give up: what it cannot settle now it reports as unknown."""
        with self._pause:
            self._is_closing = True
            self._pause.notify_all()

    def close(self) -> None:
        """Seal what is open. A pipe that cannot be sealed now is left to the reaper."""
        for opened in (self._current, self._next, *self._unsealed):
            if opened:
                self._finish(opened)
        self._current = self._next = None
        self._unsealed.clear()

    # -- pipes ---------------------------------------------------------------------------------------

    def _writable(self, count: int, size: int) -> OpenPipe:
        """Return a pipe with room for so much, rolling to the next one when the current one is full."""
        current = self._current
        if current and not self._has_room(current, count, size):
            self._current = None
            self._finish(current)
        if self._current is None:
            ahead, self._next = self._next, None
            if ahead and not self._has_room(ahead, count, size):
                self._finish(ahead)
                ahead = None
            self._current = ahead or self._open()
        return self._current

    def _has_room(self, opened: OpenPipe, count: int, size: int) -> bool:
        settings = self._settings
        if self._age(opened) >= settings.push_age_max.total_seconds():
            return False
        # An empty pipe takes any batch: the parcels are cut so that one batch never exceeds a pipe.
        return opened.acked == 0 or (
            opened.acked + count <= settings.pipe_messages_max
            and opened.size + size <= settings.pipe_bytes_max
        )

    def _open(self) -> OpenPipe:
        # Outcome unknown: never the same id again. The next attempt takes a new one; what may be left
        # behind is an empty pipe, which the reaper seals and retires.
        opened = OpenPipe(new_pipe_id(), self._clock.now())
        entry = PipeEntry(opened.pipe, self._pusher, lane=self._number)
        self._storage.create_pipe(self._queue, entry, Head(op=new_token()))
        return opened

    def _finish(self, opened: OpenPipe) -> None:
        """Seal a pipe whose every batch is acknowledged; if that fails now, `tend` tries again."""
        try:
            self._storage.transact(opened.pipe, Transaction(Seal(opened.acked)))
        except OutcomeUnknownError:
            self._unsealed.append(opened)
        except CassqError:
            # Certainly not sealed. Past the age at which the reaper takes over, it is the reaper's.
            if self._age(opened) < self._reaped_after():
                self._unsealed.append(opened)

    def _reaped_after(self) -> float:
        return (self._settings.push_age_max + self._settings.push_grace).total_seconds()

    def _age(self, opened: OpenPipe) -> float:
        return self._clock.now() - opened.opened_at

    def _is_well_used(self, opened: OpenPipe) -> bool:
        return (
            opened.acked >= OPEN_AHEAD * self._settings.pipe_messages_max
            or opened.size >= OPEN_AHEAD * self._settings.pipe_bytes_max
        )

    # -- batches -------------------------------------------------------------------------------------

    def _send(self, opened: OpenPipe, parcels: list[Parcel]) -> None:
        """Write one batch until it is acknowledged, settled, or nobody waits for it any more."""
        bodies = tuple(body for parcel in parcels for body in parcel.bodies)
        headers = pack_headers(h for parcel in parcels for h in parcel.headers)
        batch = Batch(opened.acked + 1, bodies, headers, len(bodies))
        is_acknowledged = self._is_acknowledged(opened, batch, parcels)
        if is_acknowledged and not self._is_late(opened):
            opened.acked = batch.last
            opened.size += sum(map(len, bodies))
            self._store(opened, batch, parcels, batch.last)
            return
        # From here on the pipe takes no further message, whatever the outcome.
        self._current = None
        if is_acknowledged:
            reached = self._look(opened, batch, parcels)
        else:
            reached = self._settle(opened, opened.acked, parcels)
        if reached is not None:
            self._store(opened, batch, parcels, reached)

    def _is_acknowledged(self, opened: OpenPipe, batch: Batch, parcels: list[Parcel]) -> bool:
        """Send the batch, again and again as it is, until it is acknowledged or time is up."""
        pause = PAUSE_S
        started = self._clock.now()
        deadline = max(parcel.deadline for parcel in parcels)
        give_up_at = min(started + RESEND_S, (started + deadline) / 2)
        while True:
            try:
                self._storage.append(opened.pipe, batch)
            except (StorageUnavailableError, OutcomeUnknownError):
                if self._clock.now() >= give_up_at or self._is_closing:
                    return False
                pause = self._rest(pause)
            else:
                return True

    def _is_late(self, opened: OpenPipe) -> bool:
        settings = self._settings
        return self._age(opened) > (settings.push_age_max + settings.push_grace / 2).total_seconds()

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
            self._finish(opened)
            return batch.last

    def _settle(self, opened: OpenPipe, acked: int, parcels: list[Parcel]) -> int | None:
        """Decide by a seal behind `acked` how far the pipe reaches; return that, or None if it is unknown.

        A seal that is refused because more was handed out meanwhile (so it did happen) is tried again
        behind that. A seal with an unknown outcome may still land: it is repeated until the database has
        answered one, and nothing later of this lane is sent before.
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
            acked = answer.cursor

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

    # -- callers -------------------------------------------------------------------------------------

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
