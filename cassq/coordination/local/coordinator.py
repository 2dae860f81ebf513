"""Claims and hungry poppers of one machine: a file between processes, memory between threads.

Owns what this process claimed and announced, and whom to call here. Refuses to be exact about fairness, or
to keep anything over a restart. The rule that must not break: what hangs on a lost seat is lost for its
owner at the same moment as for everybody else.

    popper A                    file                       popper B
    | claim(P): seat a holds P   |                            |
    | (stopped)                  | a's beat grows old         |
    |                            |<- claim(P): a is dead, mine |
    | (goes on) is_held(P)?  clock.now() is past a's last beat + ttl: no
    | beat: seat a is gone -> new seat; poppers are woken, to announce again and hunt
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_bytes
from sqlite3 import Connection
from typing import Any
from uuid import UUID

from cassq.coordination.local.doorbell import Doorbell
from cassq.coordination.local.session import LocalSession
from cassq.coordination.local.sidecar import LIVE, Sidecar
from cassq.errors import ClosedError, CoordinationUnavailableError, InvalidOptionError
from cassq.runtime.clock import Clock

_LOG = logging.getLogger("cassq.coordination")
_WOKEN = b"w"
_CROWDED = b"c"
_CLAIMS = f"FROM claims JOIN seats USING (seat) WHERE queue = :queue AND {LIVE}"
_LINE = f"FROM hungry JOIN seats USING (seat) WHERE queue = :queue AND popper <> :popper AND {LIVE}"
_FITTING = f"{_LINE} AND (instr(popper, '~') = 0 OR takes(popper, :types))"
_STANDING = (
    f"SELECT count(*) {_LINE} AND place < (SELECT place FROM hungry WHERE token = :token)"  # noqa: S608
    " AND takes_all_of(popper, :popper)"
)
_UNCLAIM = "DELETE FROM claims WHERE queue = ? AND pipe = ? AND seat = ?"


@dataclass(frozen=True, slots=True)
class _Announcement:
    """A popper of this process that waits; others name it by its token."""

    token: bytes
    wake: Callable[[], None]
    on_crowded: Callable[[], None] | None


class LocalCoordinator:
    """A seat among the processes of one machine.

    Args:
        path: the sidecar file, made when it is missing; None for the threads of this process alone.
        clock: must be comparable between the processes.
        claim_ttl: seconds until the claims of a silent process are free.
        patience: seconds a call waits for another process's transaction.
    """

    def __init__(
        self, path: str | None, clock: Clock, *, claim_ttl: float = 5.0, patience: float = 1.0
    ) -> None:
        if claim_ttl <= 0 or patience <= 0:
            raise InvalidOptionError(f"claim_ttl and patience are positive seconds: {claim_ttl}, {patience}")
        self._is_shared = path is not None
        self._path = path
        self._file = Sidecar(path, clock, patience)
        self._session = LocalSession(self._file, clock, claim_ttl if path else float("inf"), self)
        self._bell = Doorbell(self._on_ring)
        self._lock: threading.RLock = self._session.lock
        self._claims: dict[tuple[str, UUID], tuple[str, str]] = {}
        self._unreleased: set[tuple[str, UUID]] = set()
        self._announced: dict[tuple[str, str], _Announcement] = {}
        self._stranded: dict[tuple[str, str], Callable[[], None]] = {}

    def __str__(self) -> str:
        return f"the coordination file {self._path!r}" if self._path else "the coordination of this process"

    def may_take(self) -> bool:
        """Tell whether this process's seat stands, if it ever took one."""
        return self._session.may_take

    def claim(self, queue: str, pipe: UUID, holder: str) -> bool:
        """Take the pipe's row, or find that somebody has it."""
        if self.is_held(queue, pipe, holder):
            return True
        values = {"queue": queue, "pipe": pipe.bytes, "holder": holder}
        with self._lock:
            with self._session.seated() as (db, seat):
                values |= self._session.now() | {"seat": seat}
                rows = db.execute(f"SELECT holder, seat {_CLAIMS} AND pipe = :pipe", values).fetchall()
                if not rows:
                    db.execute(
                        "INSERT OR REPLACE INTO claims (queue, pipe, holder, seat)"
                        " VALUES (:queue, :pipe, :holder, :seat)",
                        values,
                    )
            is_mine = not rows or rows[0] == (holder, seat)
            if is_mine:
                self._claims[queue, pipe] = (holder, seat)
                self._unreleased.discard((queue, pipe))
            return is_mine

    def release(self, queue: str, pipe: UUID, holder: str) -> None:
        """Delete the pipe's row; when the file is busy for too long, a later beat does it."""
        self._session.check_process()
        with self._lock, suppress(ClosedError):
            if not self.is_held(queue, pipe, holder):
                return
            _, seat = self._claims.pop((queue, pipe))
            try:
                with self._file.write() as db:
                    db.execute(_UNCLAIM, (queue, pipe.bytes, seat))
            except CoordinationUnavailableError:
                self._unreleased.add((queue, pipe))

    def is_held(self, queue: str, pipe: UUID, holder: str) -> bool:
        """Tell whether the claim hangs on a seat that stands; never touches the file."""
        return self._session.may_take and self._claims.get((queue, pipe)) == (holder, self._session.seat_name)

    def holders(self, queue: str) -> Mapping[UUID, str]:
        """Read the rows whose seats stand."""
        self._session.check_open()
        rows = self._file.read(f"SELECT pipe, holder {_CLAIMS}", {"queue": queue} | self._session.now())
        return {UUID(bytes=pipe): holder for pipe, holder in rows}

    def announce_hunger(
        self,
        queue: str,
        popper: str,
        wake: Callable[[], None],
        *,
        on_crowded: Callable[[], None] | None = None,
    ) -> int:
        """Add a row, or keep the one that stands, and tell the one popper that was alone until now."""
        others: list[Any] = []
        self._session.check_open()
        with self._lock:
            port = self._listen()
            with self._session.seated() as (db, seat):
                values = {"queue": queue, "popper": popper, "seat": seat, "port": port} | self._session.now()
                rows = db.execute(
                    "SELECT token FROM hungry WHERE queue = :queue AND popper = :popper AND seat = :seat",
                    values,
                ).fetchall()
                token = rows[0][0] if rows else token_bytes(16)
                if not rows:
                    others = db.execute(f"SELECT seat, port, token {_LINE} LIMIT 2", values).fetchall()
                    db.execute(
                        "INSERT OR REPLACE INTO hungry (queue, popper, seat, port, token)"
                        " VALUES (:queue, :popper, :seat, :port, :token)",
                        values | {"token": token},
                    )
                standing = int(db.execute(_STANDING, values | {"token": token}).fetchone()[0])
            self._stranded.pop((queue, popper), None)
            self._announced[queue, popper] = _Announcement(token, wake, on_crowded)
        if len(others) == 1:
            self._ring(others, _CROWDED)
        if others and on_crowded is not None:
            _call(on_crowded)
        return standing

    def withdraw_hunger(self, queue: str, popper: str) -> None:
        """Delete the row; one that cannot be deleted now wakes nobody, and goes with its seat."""
        self._session.check_process()
        with self._lock:
            self._stranded.pop((queue, popper), None)
            announcement = self._announced.pop((queue, popper), None)
            if announcement is not None:
                with suppress(CoordinationUnavailableError, ClosedError), self._file.write() as db:
                    db.execute("DELETE FROM hungry WHERE token = ?", (announcement.token,))

    def hungry(self, queue: str, besides: str = "", *, types: int = 0) -> int:
        """Count the rows whose seats stand; nothing while the file cannot be read."""
        self._session.check_process()
        with suppress(CoordinationUnavailableError, ClosedError):
            values = {"queue": queue, "popper": besides, "types": types} | self._session.now()
            return int(self._file.read(f"SELECT count(*) {_FITTING}", values)[0][0])
        return 0

    def wake(self, queue: str, count: int, besides: str = "", *, types: int = 0) -> int:
        """Delete the oldest rows in one transaction, so that no two wake the same, then ring."""
        if count <= 0 or not self.hungry(queue, besides, types=types):
            return 0
        try:
            with self._file.write() as db:
                rows = db.execute(
                    f"SELECT seat, port, token {_FITTING} ORDER BY place LIMIT :count",
                    {"queue": queue, "popper": besides, "types": types, "count": count} | self._session.now(),
                ).fetchall()
                db.executemany("DELETE FROM hungry WHERE token = ?", [row[2:] for row in rows])
        except (CoordinationUnavailableError, ClosedError):
            return 0
        self._ring(rows, _WOKEN)
        return len(rows)

    def close(self) -> None:
        """Give up the seat with all that hangs on it; in a forked child, do nothing."""
        self._session.close(self._bell.close, self._file.close)

    def on_lost(self) -> None:
        """Forget what hung on the lost seat; its poppers are woken with the next beat."""
        self._claims.clear()
        self._unreleased.clear()
        self._stranded |= {key: each.wake for key, each in self._announced.items()}
        self._announced.clear()

    def on_beat(self, db: Connection, seat: str) -> None:
        """Delete the rows of claims that were given up while the file was busy."""
        db.executemany(_UNCLAIM, [(queue, pipe.bytes, seat) for queue, pipe in self._unreleased])

    def on_alive(self) -> None:
        """Wake who was announced on a lost seat."""
        with self._lock:
            stranded, self._stranded = self._stranded, {}
        for wake in stranded.values():
            _call(wake)

    def _listen(self) -> int:
        try:
            return self._bell.listen() if self._is_shared else 0
        except OSError as error:
            raise CoordinationUnavailableError(f"no loopback port to be woken at: {error}") from error

    def _ring(self, targets: list[Any], kind: bytes) -> None:
        for seat, port, token in targets:
            if seat == self._session.seat_name:
                self._on_ring(kind + token)
            else:
                self._bell.ring(port, kind + token)

    def _on_ring(self, payload: bytes) -> None:
        kind, token = payload[:1], payload[1:]
        with self._lock:
            found = [(key, each) for key, each in self._announced.items() if each.token == token]
            if not found:
                return
            key, announcement = found[0]
            if kind == _WOKEN:
                del self._announced[key]
        call = announcement.wake if kind == _WOKEN else announcement.on_crowded
        if call is not None:
            _call(call)


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        _LOG.exception("a callback failed")
