"""One SQLite file, opened, kept and shared between threads and processes.

Owns connections, transactions, the store's clock, and the translation of SQLite's errors. Refuses to know
what is in the tables. The rule that must not break: a write transaction that returned is on the disk.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from cassq.errors import (
    AccessDeniedError,
    CassqError,
    ClosedError,
    CorruptError,
    DecodeError,
    OutcomeUnknownError,
    SchemaMismatchError,
    StorageUnavailableError,
)
from cassq.model.ids import shorten
from cassq.runtime.clock import Clock
from cassq.runtime.deadline import seconds_left, seconds_to_begin
from cassq.runtime.files import FILE_MODE, make_file, sync_names
from cassq.runtime.reentry import check_outside, noted

_log = logging.getLogger("cassq.store")

#: How long a writer waits for other processes' writes before it gives up.
BUSY_TIMEOUT_S = 15.0

#: The first pause between two tries to begin a write while another process writes, and the longest.
BUSY_PAUSE_S = 0.0002
BUSY_PAUSE_MAX_S = 0.005

_PATIENT = f"PRAGMA busy_timeout={round(BUSY_TIMEOUT_S * 1000)}"
_NOT_OURS = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


class SqliteFile:
    """A database file (or, without a path, a database in memory) with a few connections for all threads.

    Args:
        path: the file; None keeps everything in memory, shared by the threads of this process.
        is_synced: whether a commit waits for the disk (`synchronous=EXTRA`); without it a power cut may
            lose the last moments, a crash of any process still loses nothing.
        clock: the machine's elapsed time.
        mode: who may use the file, if it is made; SQLite gives its companions the same.

    Raises:
        CorruptError: the file is not an SQLite database.
        SchemaMismatchError: it was made by a newer version of cassq, or by another program.
        StorageUnavailableError: it cannot be opened or written.
        AccessDeniedError: its folder may not be read.
    """

    def __init__(
        self, path: str | None, clock: Clock, *, is_synced: bool = True, mode: int = FILE_MODE
    ) -> None:
        self.path = path
        self._clock = clock
        # With a write-ahead log EXTRA is FULL. SQLite stays with a rollback journal, without a word, when the
        # disk fails as the log is made; FULL then never syncs the folder that the journal is removed from.
        self._synchronous = "EXTRA" if is_synced else "NORMAL"
        self._pid = os.getpid()
        self._idle: list[sqlite3.Connection] = []
        # Without a path, the one connection: with it all would be gone.
        self._memory: sqlite3.Connection | None = None
        self._guard = threading.RLock()  # a signal may come while it is held
        # One writer at a time inside this process: SQLite's own waiting sleeps, a lock wakes.
        self._writing = threading.RLock()
        self._is_closed = False
        self._has_warned = False
        try:
            if path:
                make_file(path, mode)
            with self._explained():
                self._migrate()
                self._offset_ms = self._read_offset()
        except CassqError:
            self.close()
            raise

    @property
    def where(self) -> str:
        """The file's name, for people."""
        return repr(self.path) if self.path else "the store in memory"

    def now_ms(self) -> int:
        """Return the store's clock: the time of day, but nobody can set it while the machine is up."""
        return self._offset_ms + self._elapsed_ms()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read one consistent state of the file."""
        self._check_process()
        if not self.path:
            # There is one connection: a second transaction would end the one that it interrupts.
            check_outside(self._writing, "reading the store in memory")
        with noted(), self._explained(), self._in_memory_lock(), self._borrowed() as connection:
            patience_s = seconds_left(self._clock, BUSY_TIMEOUT_S)
            if patience_s < BUSY_TIMEOUT_S:
                connection.execute(f"PRAGMA busy_timeout={round(patience_s * 1000)}")
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")
                if patience_s < BUSY_TIMEOUT_S:
                    connection.execute(_PATIENT)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Write all or nothing; the write is durable when the block ends without an error.

        While another process writes it is tried again and again, and the lock is left to the other threads
        meanwhile: each waits by its own deadline. SQLite's own waiting sleeps a millisecond at first and soon
        a hundred, where a write takes a third of one.
        """
        self._check_process()
        check_outside(self._writing, "a write")
        began_at = 0.0
        pause = BUSY_PAUSE_S
        while True:
            with noted(), self._explained(), self._writing, self._borrowed() as connection:
                if self._begin(connection):
                    try:
                        yield connection
                    except BaseException:
                        _roll_back(connection)
                        raise
                    self._commit(connection)
                    return
            began_at = began_at or self._clock.now()
            waited_s = self._clock.now() - began_at
            left_s = seconds_to_begin(self._clock, BUSY_TIMEOUT_S - waited_s)
            if left_s <= 0:
                raise StorageUnavailableError(self._tell_busy(waited_s))
            time.sleep(min(pause, left_s))
            pause = min(2 * pause, BUSY_PAUSE_MAX_S)

    def _begin(self, connection: sqlite3.Connection) -> bool:
        """Begin a write; False while another process writes."""
        if not self.path:
            connection.execute("BEGIN IMMEDIATE")
            return True
        connection.execute("PRAGMA busy_timeout=0")
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY:
                raise
            return False
        finally:
            connection.execute(_PATIENT)
        return True

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            if _code(error) == sqlite3.SQLITE_IOERR:
                raise OutcomeUnknownError(
                    f"{self.where}: the disk failed during a commit: {error}"
                ) from error
            raise

    def _tell_busy(self, waited_s: float) -> str:
        return f"{self.where}: other processes kept it busy for {waited_s:.2g} s; nothing was written"

    def close(self) -> None:
        """Close every connection; nothing happens when it is closed already."""
        if os.getpid() != self._pid:
            return
        with self._writing, self._guard:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _check_process(self) -> None:
        # Before any lock: one that another thread held at the fork stays locked in the child for ever.
        if os.getpid() != self._pid:
            raise ClosedError(
                f"{self.where} was opened before this process was forked: connect again in the child"
            )

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for one transaction; as many are kept as transactions ever ran at once.

        Ctrl-C may tear a borrower away anywhere: the connection comes back, without a transaction.
        """
        connection = None
        try:
            with self._guard:
                if self._is_closed:
                    raise ClosedError(f"{self.where} is closed")
                if self._idle:
                    connection = self._idle[-1]
                    self._idle.pop()
            connection = connection or self._memory or self._connect()
            _roll_back(connection)
            yield connection
        finally:
            if connection:
                self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        _roll_back(connection)
        with self._guard:
            if not self._is_closed and connection not in self._idle:
                self._idle.append(connection)
        if self._is_closed:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        with self._explained():
            connection = sqlite3.connect(
                self.path or ":memory:",
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            if self.path:
                try:
                    self._keep_log(connection, self.path)
                except BaseException:
                    connection.close()
                    raise
                connection.execute(f"PRAGMA synchronous={self._synchronous}")
                connection.execute("PRAGMA journal_size_limit=67108864")
            connection.execute("PRAGMA cache_size=-32768")
            connection.text_factory = self._to_text
            if not self.path:
                self._memory = connection
            return connection

    def _keep_log(self, connection: sqlite3.Connection, path: str) -> None:
        """Have a write-ahead log under a name that no power cut takes, for as long as the connection is open.

        SQLite makes the log with the first read where there is none, syncs its folder with the first commit,
        and goes on where that failed. Each connection may be the one that makes it.
        """
        _retry_busy(lambda: connection.execute("PRAGMA journal_mode=WAL"))
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()  # makes the log
        try:
            if not sync_names(path) and not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "%s: its file system cannot sync a folder: a power cut could take what is stored; use a "
                    "local disk where that matters",
                    self.where,
                )
        except PermissionError as error:
            raise AccessDeniedError(
                f"{self.where}: its folder may not be read, and so cannot be synced: a power cut could take "
                f"what is stored; let this user read the folder: {error}"
            ) from error
        except OSError as error:
            raise StorageUnavailableError(
                f"{self.where}: its folder cannot be synced, and a power cut could take what is stored; "
                f"nothing was written: {error}"
            ) from error

    @contextmanager
    def _in_memory_lock(self) -> Iterator[None]:
        if self.path:
            yield
        else:
            with self._writing:
                yield

    def _migrate(self) -> None:
        folder = resources.files("cassq") / "schema" / "migrations" / "sqlite"
        steps = sorted(
            (step for step in folder.iterdir() if step.name.endswith(".sql")), key=lambda s: s.name
        )
        with self.reading() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == len(steps):
            return
        with self.writing() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > len(steps):
                raise SchemaMismatchError(
                    f"{self.where} has schema {version}; this cassq knows up to {len(steps)}: upgrade cassq"
                )
            if version == 0 and db.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise SchemaMismatchError(
                    f"{self.where} holds another program's tables; name a file of cassq's own"
                )
            for step in steps[version:]:
                for statement in _statements(step.read_text(encoding="utf-8")):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version = {len(steps)}")

    def _read_offset(self) -> int:
        # The time of day is asked once for each boot of the machine; from then on only elapsed time counts,
        # so that setting the clock neither ends leases early nor keeps them for ever.
        boot = _boot_id()
        with self.reading() as db:
            offset = self._find_offset(db, boot)
        if offset is not None:
            return offset
        with self.writing() as db:
            offset = self._find_offset(db, boot)
            if offset is None:
                offset = max(round(time.time() * 1000), self._newest_ms(db)) - self._elapsed_ms()
                db.execute("DELETE FROM clock")
                db.execute("INSERT INTO clock (boot, offset_ms) VALUES (?, ?)", (boot, offset))
            return offset

    def _find_offset(self, db: sqlite3.Connection, boot: str) -> int | None:
        """Return what stands in the file, if it is of this boot.

        Where the system does not tell one boot from the next, a clock that would show less than the file
        knows is of an earlier one. One that would not is as good: no lease in the file ends early by it.
        """
        row = db.execute("SELECT offset_ms FROM clock WHERE boot = ?", (boot,)).fetchone()
        if row is None:
            return None
        offset = self._check_ms(row[0])
        is_of_this_boot = boot or offset + self._elapsed_ms() >= self._newest_ms(db)
        return offset if is_of_this_boot else None

    def _newest_ms(self, db: sqlite3.Connection) -> int:
        newest = db.execute(
            "SELECT max(coalesce((SELECT max(created_at_ms) FROM pipes), 0),"
            " coalesce((SELECT max(leased_at_ms) FROM runs), 0))"
        ).fetchone()
        return self._check_ms(newest[0])

    def _elapsed_ms(self) -> int:
        return round(self._clock.now() * 1000)

    def _check_ms(self, stored: object) -> int:
        if not isinstance(stored, int):
            raise DecodeError(f"{self.where}: {shorten(stored)} is no time, so the store has no clock")
        return stored

    def _to_text(self, stored: bytes) -> str:
        try:
            return stored.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"{self.where} holds a text that is no UTF-8: {shorten(stored)}") from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        began_at = self._clock.now()
        try:
            yield
        except sqlite3.Error as error:
            code = _code(error)
            if self._is_closed:
                raise ClosedError(f"{self.where} is closed") from error
            if code == sqlite3.SQLITE_BUSY:
                raise StorageUnavailableError(self._tell_busy(self._clock.now() - began_at)) from error
            if code in _NOT_OURS:
                raise CorruptError(f"{self.where} is not an SQLite database, or damaged: {error}") from error
            reason = {
                sqlite3.SQLITE_FULL: "the disk is full",
                sqlite3.SQLITE_READONLY: "it is read-only",
                sqlite3.SQLITE_CANTOPEN: "it cannot be opened; is its folder there, and writable?",
            }.get(code, str(error))
            raise StorageUnavailableError(f"{self.where}: {reason}; nothing was written") from error


def _code(error: sqlite3.Error) -> int:
    # The low byte is the primary code, what is above it only refines it.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _retry_busy(action: Callable[[], object]) -> None:
    # Switching to WAL takes an exclusive lock that SQLite's busy timeout does not wait for.
    for _ in range(200):
        try:
            action()
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(0.01)
        else:
            return
    action()


def _statements(script: str) -> Iterator[str]:
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _boot_id() -> str:
    source = Path("/proc/sys/kernel/random/boot_id")
    try:
        return source.read_text(encoding="ascii").strip()
    except OSError:
        return ""
