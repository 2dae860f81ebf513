"""Which process something belongs to.

Threads and connections do not survive a fork, and a lock that another thread held stays locked in the
child for ever. So everything that owns threads asks here first: the child gets an error, never a hang.
"""

import os
import socket

from cassq.errors import ClosedError


class Birthplace:
    """Remembers the process it was made in."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is still that process."""
        return os.getpid() == self._pid

    def check(self, what: str) -> None:
        """Raise `ClosedError` in a forked child."""
        if not self.is_here:
            raise ClosedError(
                f"{what} was made in process {self._pid}, this is process {os.getpid()} after a fork: "
                "call cassq.connect() anew in the child"
            )


def process_name() -> str:
    """Return host and process id, for people to read."""
    return f"{socket.gethostname()}-{os.getpid()}"
