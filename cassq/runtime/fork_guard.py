"""Which process something belongs to.

Threads and connections do not survive a fork, and a lock that another thread held stays locked in the
child for ever. So everything that owns threads asks here first: the child gets an error, never a hang.
"""

import os
import socket

from cassq.errors import ClosedError


class _Forks:
    """Counts the forks between the first process and this one.

    Asking the kernel for the process's number costs more than the rest of a push.
    """

    def __init__(self) -> None:
        self.count = 0
        os.register_at_fork(after_in_child=self._note)

    def _note(self) -> None:
        self.count += 1


# One for the process, as the process is one; the interpreter calls it in every child.
_forks = _Forks()


class ForkGuard:
    """Remembers the process it was made in."""

    __slots__ = ("_forks", "_pid")

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._forks = _forks.count

    @property
    def is_here(self) -> bool:
        """Whether this is still that process."""
        return _forks.count == self._forks

    def check(self, what: str) -> None:
        """Raise `ClosedError` in a forked child."""
        if not self.is_here:
            raise ClosedError(
                f"{what} was made in process {self._pid}, this is process {os.getpid()} after a fork: "
                "call cassq.connect() anew in the child"
            )


def may_run_here(name: str) -> bool:
    """Tell whether a process whose name this begins with is one of this machine, and may still run."""
    host, found = f"{socket.gethostname()}-", ""
    if name.startswith(host):
        found = name.removeprefix(host).partition("-")[0]
    if not found.isdigit():
        return False
    try:
        os.kill(int(found), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def process_name() -> str:
    """Return host and process id, for people to read."""
    return f"{socket.gethostname()}-{os.getpid()}"
