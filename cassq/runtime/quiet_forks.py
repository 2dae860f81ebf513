"""Files of SQLite's, and forks of the process that has them open.

Owns that a fork happens while no connection is open, and that a child is refused a file where that could not
be had. Refuses to know what is in a file. The rule that must not break: what a child is told is stored stays.

SQLite keeps in memory what its process has locked of a file. A fork copies that memory, but no locks:

    parent                     file                      child
    | opens it: a shared lock  |                           |
    | forks -----------------------------------------------| "this process has a lock": it has none
    |                          |<-- pushes, and is told: stored, in the log beside the file
    | closes it: nobody else has a lock, so the log is copied and removed
    |                          |<-- pushes on, into a log that has no name any more: all of it is gone

It also copies mutexes that other threads of the parent hold, and nobody ever lets go of them in the child. So
before a fork transactions end and connections are closed; the parent connects again when it needs one.
"""

import os
import threading
import time
import weakref
from typing import Protocol

from cassq.errors import ClosedError

#: How long a fork waits for the transactions of other threads. One waits as long for another process's.
PATIENCE_S = 15.0

#: What tells a file from all others, however it is named: device and inode, as SQLite does.
FileId = tuple[int, int]


class QuietFile(Protocol):
    """A file whose connections can be closed for a while."""

    def fall_quiet(self, end: float) -> None:
        """Keep other threads out, and close every connection.

        Args:
            end: when to give up, by `time.monotonic`; at once where this thread is in a transaction.
        """
        ...

    def go_on(self) -> None:
        """Let other threads in again, also where `fall_quiet` gave up or was called twice."""
        ...

    def opened(self) -> FileId | None:
        """Return which file is open here; None while none is. Takes no lock."""
        ...


class Forks:
    """Has the files of this process fall quiet before each fork, and go on after it."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._renew)

    def register(self, file: QuietFile) -> None:
        """Have a file fall quiet, from now on and while it is referred to."""
        self._check_process()
        with self._forking:
            self._files.add(file)

    def check_may_open(self, path: str) -> None:
        """Refuse a file that was open here when this process was forked off.

        Raises:
            ClosedError: it was, so SQLite takes its parent's locks for its own.
        """
        self._check_process()
        if self._refused and identify(path) in self._refused:
            raise ClosedError(
                f"{path!r} was open in the process that this one was forked from, in a transaction or in a "
                "fork that the interpreter was not told of, and what is stored here could be lost: connect "
                "after the fork alone, or start a process of its own (multiprocessing's 'spawn')"
            )

    def _check_process(self) -> None:
        # A program in C may fork and tell the interpreter nothing.
        if os.getpid() != self._pid:
            self._renew()

    def _before(self) -> None:
        # The thread that forks may be interrupted here, by a handler that forks too.
        self._forking.acquire()
        self._depth += 1
        end = time.monotonic() + PATIENCE_S
        for file in list(self._files):
            file.fall_quiet(end)

    def _in_parent(self) -> None:
        if self._depth:  # Ctrl-C may have cut `_before` short
            self._depth -= 1
        if not self._depth:
            for file in list(self._files):
                file.go_on()
        self._forking.release()

    def _renew(self) -> None:
        """Begin anew, in the first process and in each child: nothing of the parent's is used."""
        open_ones = [file for file in getattr(self, "_files", ()) if file.opened()]
        self._refused: set[FileId | None] = getattr(self, "_refused", set()) | {
            file.opened() for file in open_ones
        }
        # Never closed here: SQLite would change the parent's file.
        self._kept = (getattr(self, "_kept", ()), open_ones)
        self._pid = os.getpid()
        self._forking = threading.RLock()
        self._depth = 0
        self._files: weakref.WeakSet[QuietFile] = weakref.WeakSet()


def identify(path: str) -> FileId | None:
    """Return which file has a name now."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a Path costs more
    except OSError:
        return None
    return found.st_dev, found.st_ino


#: One for the process, as the interpreter's hooks are.
forks = Forks()
