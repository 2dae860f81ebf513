"""One process's seat in the sidecar file, and the heart that keeps it.

Owns the seat, its renewal and the moment at which it is lost. Refuses to know what hangs on it. A seat ends
with its process, by the lock it has; the beats are there for a process that is frozen, which keeps its lock.
The rule that must not break: a seat that was not renewed for its ttl is lost, even if nobody has noticed yet;
its owner judges by the same reading of the same clock as everybody else, and takes a new one.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from sqlite3 import Connection
from typing import Any, Protocol

from cassq.coordination.local.sidecar import LIVE, Sidecar, read_boot_id
from cassq.errors import ClosedError, CoordinationUnavailableError
from cassq.runtime.clock import Clock


class SeatListener(Protocol):
    """Who is told what becomes of the seat."""

    def on_lost(self) -> None:
        """Forget what hung on the seat; called with the session's lock held."""
        ...

    def on_beat(self, db: Connection, seat: str) -> None:
        """Do what is still owed to the file; called inside each beat's transaction."""
        ...

    def on_alive(self) -> None:
        """Tell those who lost something; called after each beat, with no lock held."""
        ...


@dataclass(frozen=True, slots=True)
class Seat:
    """A row that stands while its beat is younger than `ttl` seconds."""

    name: str
    boot: str
    beat_at: float
    ttl: float

    def is_standing(self, now: float) -> bool:
        """Tell whether the last beat is young enough."""
        return now < self.beat_at + self.ttl


class LocalSession:
    """A seat that is taken when something is first hung on it, and kept until it is given up.

    Args:
        file: where the seats are.
        clock: comparable between the processes that share the file.
        ttl: seconds that a seat stands without a beat; infinite for a seat that needs no heart.
        listener: is told of losses.
    """

    def __init__(self, file: Sidecar, clock: Clock, ttl: float, listener: SeatListener) -> None:
        self.lock = threading.RLock()
        self._file = file
        self._clock = clock
        self._ttl = ttl
        self._listener = listener
        self._pid = os.getpid()
        self._boot = read_boot_id()
        self._changed = threading.Condition(self.lock)
        self._seat: Seat | None = None
        self._heart: threading.Thread | None = None
        self._is_due = False
        self._is_closed = False

    @property
    def seat_name(self) -> str | None:
        """The seat that this process took last, standing or not."""
        seat = self._seat
        return seat.name if seat is not None else None

    @property
    def may_take(self) -> bool:
        """Whether nothing was lost: the seat stands, or none was needed yet."""
        self.check_process()
        seat = self._seat
        return not self._is_closed and (seat is None or seat.is_standing(self._clock.now()))

    def now(self) -> dict[str, Any]:
        """Return what `LIVE` needs. Inside a transaction: while one waits to begin, others beat."""
        return {"boot": self._boot, "now": self._clock.now()}

    def check_process(self) -> None:
        """Refuse to serve a forked child: it would share its parent's seat.

        Raises:
            ClosedError: this is not the process that made the coordinator.
        """
        if os.getpid() != self._pid:
            raise ClosedError("the coordinator was made before a fork: connect again in the child")

    def check_open(self) -> None:
        """Refuse what cannot be done any more.

        Raises:
            ClosedError: closed, or in a forked child.
        """
        self.check_process()
        if self._is_closed:
            raise ClosedError("the coordinator was closed")

    @contextmanager
    def seated(self) -> Iterator[tuple[Connection, str]]:
        """Run a transaction in which the seat stands; a new one is taken when the last was lost.

        Raises:
            ClosedError: closed, or in a forked child.
            CoordinationUnavailableError: the file cannot be written now.
        """
        self.check_open()
        with self.lock:
            seat = self._seat
            with self._file.write() as db:
                if seat is None or not seat.is_standing(self._clock.now()) or not _is_there(db, seat):
                    seat = self._take(db)
                yield db, seat.name
            if seat is not self._seat:
                self._change(seat)

    def close(self, *others: Callable[[], None]) -> None:
        """Give up the seat; in a forked child, or the second time, do nothing.

        Args:
            others: close what the heart may still use, once it has stopped; the seat goes first.
        """
        if os.getpid() != self._pid:
            return
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
        if self._heart is not None and self._heart is not threading.current_thread():
            self._heart.join()
        if self._seat is not None:
            with suppress(CoordinationUnavailableError), self._file.write() as db:
                db.execute("DELETE FROM seats WHERE seat = ?", (self._seat.name,))
        for close in others:
            close()

    def _take(self, db: Connection) -> Seat:
        if self._seat is not None:
            db.execute("DELETE FROM seats WHERE seat = ?", (self._seat.name,))
        seat = Seat(token_hex(16), self._boot, self._clock.now(), self._ttl)
        db.execute("INSERT INTO seats VALUES (?, ?, ?, ?)", (seat.name, seat.boot, seat.beat_at, seat.ttl))
        lock = self._file.locks.take()
        if lock is not None:
            # A byte that was free was a dead seat's, which the new lock must not bring back to life.
            db.execute(
                "DELETE FROM seats WHERE seat IN (SELECT seat FROM locks WHERE inode = ? AND byte = ?)",
                (lock.inode, lock.byte),
            )
            db.execute("INSERT INTO locks VALUES (?, ?, ?)", (seat.name, lock.inode, lock.byte))
        return seat

    def _change(self, seat: Seat) -> None:
        had_one, self._seat = self._seat is not None, seat
        if had_one:
            self._listener.on_lost()
            self._is_due = True
            self._changed.notify_all()
        elif self._ttl != float("inf"):
            self._heart = threading.Thread(target=self._keep_beating, name="cassq-heart", daemon=True)
            self._heart.start()

    def _keep_beating(self) -> None:
        pause = self._ttl / 3
        while True:
            with self._changed:
                if not self._is_due and not self._is_closed:
                    self._clock.wait(self._changed, pause)
                if self._is_closed:
                    return
                self._is_due = False
            # A beat that failed is tried again while the seat still stands.
            pause = self._ttl / 3 if self._beat() else self._ttl / 10
            self._listener.on_alive()

    def _beat(self) -> bool:
        try:
            with self.lock:
                with self.seated() as (db, name):
                    now = self.now()
                    db.execute("UPDATE seats SET beat_at = :now WHERE seat = :seat", now | {"seat": name})
                    db.execute(f"DELETE FROM seats WHERE NOT {LIVE}", now)  # noqa: S608 (a fixed text)
                    self._listener.on_beat(db, name)
                if self._seat is not None:
                    self._seat = replace(self._seat, beat_at=now["now"])
                self._is_due = False
        except (CoordinationUnavailableError, ClosedError):
            return False
        return True


def _is_there(db: Connection, seat: Seat) -> bool:
    return bool(db.execute("SELECT 1 FROM seats WHERE seat = ?", (seat.name,)).fetchall())
