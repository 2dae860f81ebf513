"""One SQLite file, opened, kept and shared between threads and processes.

Owns transactions, how long they wait for other processes, and how a connection is made. Refuses to know what
is in the tables. The rule that must not break: a write transaction that returned is on the disk.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from cassq.errors import (
    CassqError,
    ClosedError,
    DecodeError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from cassq.model.ids import shorten
from cassq.runtime.clock import Clock
from cassq.runtime.deadline import seconds_left, seconds_to_begin
from cassq.runtime.files import FILE_MODE, make_file
from cassq.runtime.reentry import check_outside, noted
from cassq.storage.sqlite.connections import Connections, roll_back
from cassq.storage.sqlite.errors_map import explain, primary_code
from cassq.storage.sqlite.migrations import is_migrated, migrate
from cassq.storage.sqlite.store_clock import StoreClock
from cassq.storage.sqlite.write_ahead_log import keep_log

_log = logging.getLogger("cassq.store")

#: How long a writer waits for other processes' writes before it gives up.
BUSY_TIMEOUT_S = 15.0

#: The first pause between two tries to begin a write while another process writes, and the longest.
BUSY_PAUSE_S = 0.0002
BUSY_PAUSE_MAX_S = 0.005

_PATIENT = f"PRAGMA busy_timeout={round(BUSY_TIMEOUT_S * 1000)}"


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
        self._store_clock = StoreClock(clock, self.where)
        # With a write-ahead log EXTRA is FULL. SQLite stays with a rollback journal, without a word, when the
        # disk fails as the log is made; FULL then never syncs the folder that the journal is removed from.
        self._synchronous = "EXTRA" if is_synced else "NORMAL"
        self._pid = os.getpid()
        self._connections = Connections(path, self.where, self._connect)
        # One writer at a time inside this process: SQLite's own waiting sleeps, a lock wakes.
        self._writing = threading.RLock()
        self._has_warned = False
        try:
            if path:
                make_file(path, mode)
            with self._explained():
                self._migrate()
                self._start_clock()
        except CassqError:
            self.close()
            raise

    @property
    def where(self) -> str:
        """The file's name, for people."""
        return repr(self.path) if self.path else "the store in memory"

    def now_ms(self) -> int:
        """Return the store's clock: the time of day, but nobody can set it while the machine is up."""
        return self._store_clock.now_ms()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read one consistent state of the file."""
        self._check_process()
        if not self.path:
            # There is one connection: a second transaction would end the one that it interrupts.
            check_outside(self._writing, "reading the store in memory")
        with noted(), self._explained(), self._in_memory_lock(), self._connections.borrowed() as connection:
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
            with noted(), self._explained(), self._writing, self._connections.borrowed() as connection:
                if self._begin(connection):
                    try:
                        yield connection
                    except BaseException:
                        roll_back(connection)
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
            if primary_code(error) != sqlite3.SQLITE_BUSY:
                raise
            return False
        finally:
            connection.execute(_PATIENT)
        return True

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            roll_back(connection)
            if primary_code(error) == sqlite3.SQLITE_IOERR:
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
        with self._writing:
            self._connections.close()

    def _check_process(self) -> None:
        # Before any lock: one that another thread held at the fork stays locked in the child for ever.
        if os.getpid() != self._pid:
            raise ClosedError(
                f"{self.where} was opened before this process was forked: connect again in the child"
            )

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
                    if not keep_log(connection, self.path, self.where):
                        self._warn_of_folder()
                except BaseException:
                    connection.close()
                    raise
                connection.execute(f"PRAGMA synchronous={self._synchronous}")
                connection.execute("PRAGMA journal_size_limit=67108864")
            connection.execute("PRAGMA cache_size=-32768")
            connection.text_factory = self._to_text
            return connection

    def _warn_of_folder(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s: its file system cannot sync a folder: a power cut could take what is stored; use a "
                "local disk where that matters",
                self.where,
            )

    @contextmanager
    def _in_memory_lock(self) -> Iterator[None]:
        if self.path:
            yield
        else:
            with self._writing:
                yield

    def _migrate(self) -> None:
        with self.reading() as db:
            is_current = is_migrated(db)
        if not is_current:
            with self.writing() as db:
                migrate(db, self.where)

    def _start_clock(self) -> None:
        with self.reading() as db:
            is_found = self._store_clock.resume(db)
        if not is_found:
            with self.writing() as db:
                self._store_clock.begin(db)

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
            if self._connections.is_closed:
                raise ClosedError(f"{self.where} is closed") from error
            if primary_code(error) == sqlite3.SQLITE_BUSY:
                raise StorageUnavailableError(self._tell_busy(self._clock.now() - began_at)) from error
            raise explain(error, self.where) from error
