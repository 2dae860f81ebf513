"""Netflix dyno-queues on Redis, through its own Java client.

Owns the Java program that uses it (`java/DynoWorker.java`) and the talk with that. The client proper is
there; what is here hands it bodies over a loopback socket, which costs both sides a copy. Bodies of noise are
a third longer in Redis, because dyno-queues carries text.
"""

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from _services.java import find_java

from _bench.rivals.ahead import due_together
from _bench.rivals.maven import class_path
from _bench.rivals.program import LOOPBACK, Program, choose_port
from _bench.rivals.redis_server import DURABILITY, RedisServer

_SOURCES = Path(__file__).with_name("java")
_WORKER = _SOURCES / "DynoWorker.java"
_VERSION = "2.0.20"
_FSYNC = "everysec"


class DynoQueues:
    """A queue in one Redis.

    Args:
        shards: into how many parts it is cut. Each is a list of its own in the same Redis.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._redis = RedisServer(_FSYNC)
        self._worker: Program | None = None
        self._port = 0
        self.name = f"dyno-queues, {shards} shard{'s' if shards > 1 else ''}, fsync each second"
        self.durability = DURABILITY[_FSYNC]

    def start(self, folder: Path) -> None:
        """Start Redis, and the Java program that uses it."""
        java, jars = find_java(), class_path("dyno-queues", _VERSION)
        self._redis.start(folder)
        self._port = choose_port()
        options = [
            "-Xms256m",
            "-Xmx512m",
            f"-Dlog4j.configuration={(_SOURCES / 'log4j.properties').as_uri()}",
        ]
        words = [str(self._port), str(self._redis.port), str(self._shards)]
        self._worker = Program(
            # Java compiles the one file itself.
            "dyno",
            [java, *options, _WORKER, *words],
            folder,
            environment={"CLASSPATH": jars},
        )
        self._worker.wait_until(lambda: self.opener()().close())

    def stop(self) -> None:
        """End both."""
        if self._worker:
            self._worker.stop()
        self._redis.stop()

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client."""
        return {"Redis": self._redis.version, "dyno-queues": _VERSION}

    def opener(self) -> "Callable[[], DynoClient]":
        """Return what connects to the Java program."""
        return partial(DynoClient, self._port)


class DynoClient:
    """One connection to the Java program, which gives each a thread."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Push by calls of `batch`, one after the other."""
        parts = [struct.pack(">cII", b"P", batch, len(bodies))]
        for body in bodies:
            parts += (struct.pack(">I", len(body)), body)
        self._socket.sendall(b"".join(parts))
        self._read(1)

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Push one by one; the next is handed over when the last one is stored."""
        for body in bodies:
            self.push_batches([body], 1)

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """Push what is due by one call, one after the other."""
        for together in due_together(bodies):
            self.push_batches(together, len(together))

    def pop_batches(self, count: int, batch: int) -> int:
        """Pop and acknowledge by calls of `batch`."""
        self._socket.sendall(struct.pack(">cII", b"D", count, batch))
        return self._number()

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Pop what has come, again and again, and acknowledge it together."""
        while not until():
            self._socket.sendall(struct.pack(">cI", b"E", 100))
            for _ in range(self._number()):
                seen(self._read(self._number()))
            self._read(1)

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._socket.close()

    def _number(self) -> int:
        return int.from_bytes(self._read(4), "big")

    def _read(self, length: int) -> bytes:
        found = self._answers.read(length)
        if len(found) < length:
            raise ConnectionError("the Java program ended its side; its log says why")
        return found
