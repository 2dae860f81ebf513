"""The connections of one process to one SQLite file.

Owns which of them are lent to whom, and that none is open while the process forks. Refuses to know what a
transaction does. The rule that must not break: a connection that comes back is in no transaction.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cassq.errors import ClosedError
from cassq.runtime.quiet_forks import FileId, forks, identify


class Connections:
    """As many connections as transactions ever ran at once; one for all where the database is in memory.

    Args:
        path: the file; None for a database in memory, which is gone with its connection.
        where: names it, for people.
        connect: makes a connection.

    Attributes:
        is_closed: whether no more are lent.
    """

    def __init__(self, path: str | None, where: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self.is_closed = False
        self._path = path
        self._where = where
        self._connect = connect
        self._guard = threading.RLock()  # a signal may come while it is held
        self._changed = threading.Condition(self._guard)
        self._open: set[sqlite3.Connection] = set()
        self._idle: list[sqlite3.Connection] = []
        self._users: set[int] = set()  # the threads in a transaction
        self._file_id: FileId | None = None
        self._forker = 0  # the thread that keeps all others out
        forks.register(self)

    @contextmanager
    def borrowed(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for one transaction.

        Ctrl-C may tear a borrower away anywhere: the connection comes back, without a transaction.

        Raises:
            ClosedError: closed, or the file may not be used in this child of a fork.
        """
        connection = None
        marks = {threading.get_ident()} - self._users  # none inside another transaction
        try:
            with self._guard:
                if self._forker and marks:
                    self._await_fork()
                if self.is_closed:
                    raise ClosedError(f"{self._where} is closed")
                self._users.update(marks)
                if self._idle:
                    connection = self._idle[-1]
                    self._idle.pop()
            connection = connection or self._make()
            roll_back(connection)
            yield connection
        finally:
            try:
                if connection:
                    roll_back(connection)
            finally:
                self._give_back(connection, marks)

    def close(self) -> None:
        """Close those that are idle, and each other one when it comes back."""
        with self._guard:
            self._await_fork()
            self.is_closed = True
            self._close_idle()

    def fall_quiet(self, end: float) -> None:
        """See `QuietFile.fall_quiet`; a database in memory stays open, and out of use."""
        me = threading.get_ident()
        self._forker = me
        with self._guard:
            while self._users and me not in self._users and (left_s := end - time.monotonic()) > 0:
                self._changed.wait(left_s)
            if self._path and not self._users:
                self._idle = list(self._open)  # also one whose borrower was torn away
                self._close_idle()

    def go_on(self) -> None:
        """See `QuietFile.go_on`."""
        with self._guard:
            self._forker = 0
            self._changed.notify_all()

    def opened(self) -> FileId | None:
        """See `QuietFile.opened`."""
        return self._file_id if self._open or self._users else None

    def _await_fork(self) -> None:
        while self._forker and self._forker != threading.get_ident():
            self._changed.wait(1.0)  # a signal may take the notification

    def _make(self) -> sqlite3.Connection:
        if not self._path and self._open:
            return next(iter(self._open))
        if self._path:
            forks.check_may_open(self._path)
            self._file_id = identify(self._path)
        connection = self._connect()
        self._open.add(connection)
        return connection

    def _give_back(self, connection: sqlite3.Connection | None, marks: set[int]) -> None:
        with self._guard:
            try:
                if connection and connection not in self._idle:
                    self._idle.append(connection)
                if self.is_closed:
                    self._close_idle()
            finally:
                self._users.difference_update(marks)
                if self._forker:
                    self._changed.notify_all()

    def _close_idle(self) -> None:
        while self._idle:
            connection = self._idle[-1]
            self._open.discard(connection)
            self._idle.pop()
            connection.close()


def roll_back(connection: sqlite3.Connection) -> None:
    """End the transaction that it is in, if any, without a trace."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
