"""beanstalkd, through greenstalk.

Owns its server and what one process does with it. A message is reserved and then deleted; greenstalk sends
one command at a time and waits for its answer, so a batch is a loop.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

import greenstalk

from _bench.rivals import debian
from _bench.rivals.program import LOOPBACK, Program, choose_port

_PATIENCE_S = 5
# The server's limit is 64 KiB unless told otherwise.
_BODY_BYTES_MAX = 8 << 20


class Beanstalkd:
    """One server with a binlog.

    Args:
        fsync_ms: at most how often the binlog is forced to the disk; 0 is after every write.
    """

    def __init__(self, fsync_ms: int) -> None:
        self._fsync_ms = fsync_ms
        self.name = f"beanstalkd, fsync {f'every {fsync_ms} ms' if fsync_ms else 'always'}"
        self.durability = (
            f"process crashes; the disk has it within {fsync_ms} ms" if fsync_ms else "power cuts"
        )
        self._program: Program | None = None
        self._port = 0
        self._version = ""

    def start(self, folder: Path) -> None:
        """Start it with an empty binlog."""
        found = debian.find("beanstalkd", "beanstalkd")
        told = subprocess.run([found.path, "-v"], check=False, capture_output=True, text=True)
        self._version = told.stdout.split()[-1]
        self._port = choose_port()
        binlog = folder / "binlog"
        binlog.mkdir()
        flags = ["-l", LOOPBACK, "-p", str(self._port), "-b", str(binlog), "-z", str(_BODY_BYTES_MAX)]
        self._program = Program(
            "beanstalkd",
            [found.path, *flags, "-f", str(self._fsync_ms)],
            folder,
            environment=found.environment,
        )
        self._program.wait_until(lambda: self.opener()().close())

    def stop(self) -> None:
        """End the server."""
        if self._program:
            self._program.stop()

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client."""
        return {"beanstalkd": self._version, "greenstalk": metadata.version("greenstalk")}

    def opener(self) -> "Callable[[], BeanstalkdClient]":
        """Return what opens a connection."""
        return partial(BeanstalkdClient, self._port)


class BeanstalkdClient:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._connection = greenstalk.Client((LOOPBACK, port), encoding=None)

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Put one by one: the protocol has no batch, and the client no pipelining."""
        del batch
        self.push_each(bodies)

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Put one by one."""
        for body in bodies:
            self._connection.put(body)

    def pop_batches(self, count: int, batch: int) -> int:
        """Reserve and delete one by one."""
        del batch
        connection = self._connection
        for popped in range(count):
            try:
                job = connection.reserve(_PATIENCE_S)
            except greenstalk.TimedOutError:
                return popped
            connection.delete(job)
        return count

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Reserve and delete as they come; its least patience with an idle server is a second."""
        while not until():
            try:
                job = self._connection.reserve(1)
            except greenstalk.TimedOutError:
                continue
            seen(job.body)
            self._connection.delete(job)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
