"""A Redis server with an append-only file, for those rivals that live in one.

Owns finding, starting and ending it.
"""

from pathlib import Path

import redis

from _bench.rivals import debian
from _bench.rivals.program import LOOPBACK, Program, choose_port

#: What a confirmed write survives, by `appendfsync`.
DURABILITY = {
    "always": "power cuts",
    "everysec": "process crashes; the disk has it within 1 s",
}


class RedisServer:
    """One server.

    Args:
        fsync: Redis's `appendfsync`: always or everysec.
    """

    def __init__(self, fsync: str) -> None:
        self._fsync = fsync
        self._program: Program | None = None
        self.port = 0
        self.version = ""

    def start(self, folder: Path) -> None:
        """Start it, empty."""
        found = debian.find("redis-server", "redis-server", kin="redis-")
        self.port = choose_port()
        settings = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": str(folder),
            "appendonly": "yes",
            "appendfsync": self._fsync,
            # The append-only file is what counts; snapshots beside it would only cost.
            "save": "",
        }
        flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._program = Program("redis", [found.path, *flags], folder, environment=found.environment)
        with redis.Redis(host=LOOPBACK, port=self.port) as connection:
            self._program.wait_until(connection.ping)
            self.version = str(connection.info("server")["redis_version"])

    def stop(self) -> None:
        """End the server."""
        if self._program:
            self._program.stop()
