"""The SQLite file beside an embedded store, in which its processes see each other.

Owns the file: its tables, connections and transactions, and what to do when it is damaged. Refuses to know
what a claim means. The rule that must not break: all of it is disposable. Nothing here is worth waiting
for a disk, and a file that cannot be read is thrown away, never mended.

A seat is to this file what a session is to ZooKeeper: it stands while its process lives and renews it, and
what hangs on it goes when it goes.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from cassq.coordination.local.seat_locks import SeatLocks
from cassq.coordination.port import takes, takes_all_of
from cassq.errors import ClosedError, CoordinationUnavailableError
from cassq.runtime.clock import Clock
from cassq.runtime.deadline import seconds_left
from cassq.runtime.files import make_file, mode_of
from cassq.runtime.quiet_forks import FileId, forks, identify
from cassq.runtime.reentry import noted

_TABLES = """
CREATE TABLE IF NOT EXISTS seats (
    seat TEXT PRIMARY KEY, boot TEXT NOT NULL, beat_at REAL NOT NULL, ttl REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (
    queue TEXT, pipe BLOB, holder TEXT NOT NULL,
    seat TEXT NOT NULL REFERENCES seats ON DELETE CASCADE,
    PRIMARY KEY (queue, pipe)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS claims_by_seat ON claims (seat);
CREATE TABLE IF NOT EXISTS hungry (
    place INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, popper TEXT NOT NULL,
    seat TEXT NOT NULL REFERENCES seats ON DELETE CASCADE, port INTEGER NOT NULL, token BLOB NOT NULL,
    UNIQUE (queue, popper)
);
CREATE INDEX IF NOT EXISTS hungry_by_seat ON hungry (seat);
CREATE TABLE IF NOT EXISTS locks (
    seat TEXT PRIMARY KEY REFERENCES seats ON DELETE CASCADE, inode INTEGER NOT NULL, byte INTEGER NOT NULL
) WITHOUT ROWID;
"""

#: Which seats stand; takes `:boot` and `:now`. A beat from the future is from before a reboot that the boot
#: id did not tell; the allowance of one ttl is for readings taken just before somebody else's beat. The seat
#: of a dead process has a young beat and no lock.
LIVE = (
    "(boot = :boot AND beat_at < :now + ttl AND beat_at + ttl > :now AND NOT EXISTS ("
    "SELECT 1 FROM locks WHERE locks.seat = seats.seat AND NOT is_locked(inode, byte)))"
)

# The last one: the file was cut short under an open connection.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_SHORT_READ)
_RETRY_SECONDS = 0.01


def _is_damage(error: BaseException) -> bool:
    # Errors of the module itself carry no code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code in _DAMAGED or code & 0xFF in _DAMAGED


def read_boot_id() -> str:
    """Return what changes with each start of the machine, or nothing where it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


class Sidecar:
    """One connection to write and one to read, which never waits for a writer; opened at first use.

    Args:
        path: the file, or None for a private one in memory (a single connection then).
        clock: bounds the waiting.
        patience: seconds to wait for another process's transaction; less where a deadline is nearer.

    Attributes:
        locks: the locks of the seats in it.
    """

    def __init__(self, path: str | None, clock: Clock, patience: float) -> None:
        self.locks = SeatLocks(f"{path}-lock" if path else None)
        self._path = path
        self._clock = clock
        self._patience = patience
        self._write_lock = threading.RLock()
        self._read_lock = threading.RLock() if path else self._write_lock
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._inode = 0
        self._file_id: FileId | None = None
        self._is_damaged = False
        self._is_closed = False
        self._falls_quiet = False
        forks.register(self)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction; nobody else writes meanwhile.

        Raises:
            ClosedError: after `close`.
            CoordinationUnavailableError: it could not be begun in time, or not be committed.
        """
        with self._mapped():
            self._renew()
        with noted(), self._held(self._write_lock), self._mapped():
            db = self._open()[0]
            db.execute(f"PRAGMA busy_timeout = {1000 * self._patience_s():.0f}")
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise

    def read(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a query, as of the last commit.

        Raises:
            ClosedError: after `close`.
            CoordinationUnavailableError: the file cannot be read.
        """
        with self._mapped():
            self._renew()
        with noted(), self._held(self._read_lock), self._mapped():
            with self._held(self._write_lock) if self._reader is None else nullcontext():
                db = self._reader or self._open()[1]
            return db.execute(query, values).fetchall()

    def close(self) -> None:
        """Close the connections; may be called twice."""
        with noted(), self._read_lock, self._write_lock:
            self._is_closed = True
            self._disconnect()
            self.locks.close()

    def fall_quiet(self, end: float) -> None:
        """See `QuietFile.fall_quiet`; a private one in memory stays open, and out of use."""
        locks = self._read_lock, self._write_lock
        if any(lock._is_owned() for lock in locks) or self._falls_quiet:  # type: ignore[attr-defined]  # noqa: SLF001
            return
        self._falls_quiet = True
        if all(lock.acquire(timeout=max(0.0, end - time.monotonic())) for lock in locks) and self._path:
            self._disconnect()

    def go_on(self) -> None:
        """See `QuietFile.go_on`."""
        if self._falls_quiet:
            self._falls_quiet = False
            for lock in (self._write_lock, self._read_lock):
                while lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
                    lock.release()

    def opened(self) -> FileId | None:
        """See `QuietFile.opened`."""
        return self._file_id if self._writer or self._reader else None

    def _held(self, lock: threading.RLock) -> AbstractContextManager[Any]:
        """Return what holds a lock; a caller with a deadline waits for it no longer than that."""
        left_s = seconds_left(self._clock, float("inf"))
        # The lock itself where that will do: whom Ctrl-C tears out of the block leaves it free.
        return lock if left_s == float("inf") else self._held_soon(lock, left_s)

    @contextmanager
    def _held_soon(self, lock: threading.RLock, left_s: float) -> Iterator[None]:
        if not lock.acquire(timeout=left_s):
            raise CoordinationUnavailableError(
                f"the coordination file {self._path} is in use by this process"
            )
        try:
            yield
        finally:
            lock.release()

    def _patience_s(self) -> float:
        return seconds_left(self._clock, self._patience)

    def _renew(self) -> None:
        """Throw a damaged file away; turn to the new one when another process has done so."""
        if not self._is_damaged and (self._writer is None or not self._is_replaced()):
            return
        with noted(), self._held(self._read_lock), self._held(self._write_lock):
            is_replaced = self._is_replaced()
            self._disconnect()
            if self._is_damaged and not is_replaced:
                self._remove()
            self._is_damaged = False

    def _is_replaced(self) -> bool:
        if self._path is None:
            return False
        try:
            return os.stat(self._path).st_ino != self._inode  # noqa: PTH116 (with every push: a Path costs more)
        except OSError:
            return True

    def _open(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        if self._is_closed:
            raise ClosedError("the coordinator was closed")
        if self._writer is None or self._reader is None:
            try:
                self._writer = self._create_tables()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._remove()
                self._writer = self._create_tables()
            self._reader = self._connect() if self._path else self._writer
            # Whoever opened it may have been in a hurry; a read waits for nobody but a recovery.
            self._reader.execute(f"PRAGMA busy_timeout = {1000 * self._patience:.0f}")
        return self._writer, self._reader

    def _create_tables(self) -> sqlite3.Connection:
        # Turning a new file to WAL is refused at once, without the usual waiting, while another process
        # does the same.
        end = self._clock.now() + self._patience_s()
        pause = threading.Condition()
        while True:
            if self._path:
                # Looked at before it is opened: replaced in between, it is taken for a stranger's file
                # and opened once more; the other way round nobody would ever notice.
                make_file(self._path, mode_of(self._path.removesuffix("-coordination")))
                self._inode = Path(self._path).stat().st_ino
            db = self._connect()
            try:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT")
            except sqlite3.OperationalError as error:
                db.close()
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or self._clock.now() >= end:
                    raise
                with pause:
                    self._clock.wait(pause, _RETRY_SECONDS)
            except BaseException:
                db.close()
                raise
            else:
                return db

    def _connect(self) -> sqlite3.Connection:
        if self._path:
            forks.check_may_open(self._path)
            self._file_id = identify(self._path)
        db = sqlite3.connect(
            self._path or ":memory:",
            timeout=self._patience_s(),
            isolation_level=None,
            check_same_thread=False,
        )
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA foreign_keys = ON")
        db.create_function("is_locked", 2, self.locks.is_held)
        db.create_function("takes", 2, takes, deterministic=True)
        db.create_function("takes_all_of", 2, takes_all_of, deterministic=True)
        return db

    def _disconnect(self) -> None:
        for db in {self._writer, self._reader} - {None}:
            db.close()  # type: ignore[union-attr]
        self._writer = self._reader = None

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if _is_damage(error):
                self._is_damaged = True
                raise CoordinationUnavailableError(
                    f"the coordination file {self._path} is damaged; it is begun anew: {error}"
                ) from error
            raise CoordinationUnavailableError(
                f"the coordination file {self._path} cannot be used now: {error}"
            ) from error
