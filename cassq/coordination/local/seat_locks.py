"""Locks of the operating system that end with their process, one for each seat of a machine.

Owns one file beside the sidecar, of which each seat locks one byte. Refuses to know what hangs on a seat, and
to decide alone: a frozen process keeps its lock, so a seat also needs a young beat. The rule that must not
break: where the system cannot tell, a seat counts as locked, and its beats decide.

    killed popper A             lock file                  popper B
    | byte 0 locked               |                           |
    | (kill -9)      the kernel unlocks byte 0                |
    |                             |<- is byte 0 locked? no: the claims of A are free

The locks belong to an open file (F_OFD_SETLK), not to the process: closing another descriptor of the same
file does not drop them, and two stores of one process keep each other out. A forked child closes its copy at
once, so that the lock ends with the parent.
"""

import errno
import fcntl
import os
import struct
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass

from cassq.runtime.files import make_file, mode_of

# Linux has had them since 3.15; elsewhere beats alone tell who is dead.
_SET = getattr(fcntl, "F_OFD_SETLK", None)
_GET = getattr(fcntl, "F_OFD_GETLK", None)
# struct flock: type, whence, start, length, and a process id, which stays 0.
_FLOCK = struct.Struct("@hhqqi0q")

#: A machine has fewer stores open on one file than this.
SEATS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class SeatLock:
    """Which byte of which file is locked.

    Attributes:
        inode: tells the file from another one that was put in its place.
    """

    inode: int
    byte: int


class SeatLocks:
    """Takes one lock, and asks about those of others.

    Args:
        path: the lock file, made when it is missing; None where there is but one process.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path if _SET is not None and _GET is not None else None
        self._guard = threading.RLock()
        self._file = -1
        self._inode = 0
        self._own: SeatLock | None = None
        _all.add(self)

    def take(self) -> SeatLock | None:
        """Lock a free byte, in the file that has the name now; None where the system has no such locks.

        A lock that was taken before ends.
        """
        with self._guard, suppress(OSError):
            previous, self._file, self._own = self._file, -1, None
            try:
                self._open()
                byte = next((byte for byte in range(SEATS_MAX) if self._lock(byte)), None)
            finally:
                if previous >= 0:
                    os.close(previous)
            if byte is not None:
                self._own = SeatLock(self._inode, byte)
        return self._own

    def is_held(self, inode: int, byte: int) -> bool:
        """Tell whether a living process has this lock; True where that cannot be known."""
        with self._guard, suppress(OSError):
            if self._own == SeatLock(inode, byte):
                return True
            if self._file < 0:
                self._open()
            if inode == self._inode and _GET is not None:
                asked = fcntl.fcntl(self._file, _GET, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
                return bool(_FLOCK.unpack(asked)[0] != fcntl.F_UNLCK)
        return True

    def close(self) -> None:
        """Let the lock go; in a forked child, only the child's copy of the file."""
        with self._guard:
            self._drop()

    def _drop(self) -> None:
        file, self._file, self._own = self._file, -1, None
        if file >= 0:
            os.close(file)

    def _open(self) -> None:
        if self._path is None:
            raise OSError("no locks here")
        make_file(self._path, mode_of(self._path.removesuffix("-lock")))
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._inode = os.fstat(self._file).st_ino

    def _lock(self, byte: int) -> bool:
        try:
            fcntl.fcntl(self._file, _SET or 0, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def _forget_in_child(self) -> None:
        # Another thread of the parent may have held the old guard.
        self._guard = threading.RLock()
        with suppress(OSError):
            self._drop()


_all: "weakref.WeakSet[SeatLocks]" = weakref.WeakSet()


def _forget_in_child() -> None:
    for each in list(_all):
        each._forget_in_child()  # noqa: SLF001 (the same module)


os.register_at_fork(after_in_child=_forget_in_child)
