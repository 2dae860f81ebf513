"""What one directory of services holds, and the file that remembers it.

Owns the layout (which servers, at which addresses and ports) and the handles of what was started.
Refuses to know how a server is started, and whether it still lives.

What must not break: ports are chosen once. A restart finds its clients where it left them.
"""

import contextlib
import fcntl
import json
import os
import random
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from _services.errors import MisuseError, ServicesError

CASSANDRA = "cassandra"
ZOOKEEPER = "zookeeper"
SERVICES = (ZOOKEEPER, CASSANDRA)

_VERSION = 1
_FILE = "state.json"
# Below the range from which Linux takes the ports of outgoing connections (32768 and up): one of
# those could sit on a server's port while the server is down.
_PORTS = range(20000, 32000)


@dataclass(frozen=True, slots=True)
class Node:
    """One server: which service it belongs to, its number from 1, and where it listens."""

    service: str
    number: int
    address: str
    port: int

    @property
    def name(self) -> str:
        """Return the name of its directory and log, such as `cassandra-1`."""
        return f"{self.service}-{self.number}"

    @property
    def contact(self) -> str:
        """Return `address:port`, as clients write it."""
        return f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class Handle:
    """What a backend needs to find again what it started: a pid and its identity, or a container."""

    id: str
    identity: str = ""


@dataclass(slots=True)
class State:
    """The content of one directory of services.

    Attributes:
        wiped: names of nodes whose data are gone, and which have not taken them from the others yet.
    """

    backend: str
    ring: bool
    ports: dict[str, int]
    paxos: str = "v1"
    auth: bool = False
    tls: bool = False
    low_power: bool = False
    commitlog_sync: str = "periodic"
    wiped: list[str] = field(default_factory=list)
    handles: dict[str, Handle] = field(default_factory=dict)

    @property
    def nodes(self) -> list[Node]:
        """Return every server of the layout, running or not."""
        return [
            Node(service, number, f"127.0.0.{number}", self.ports[service])
            for service in SERVICES
            for number in ((1, 2, 3) if self.ring else (1,))
        ]

    def peers(self, service: str) -> list[Node]:
        """Return the servers of one service."""
        return [node for node in self.nodes if node.service == service]


def choose_ports(names: list[str], addresses: list[str]) -> dict[str, int]:
    """Return a port for each name, each of them free on every address just now."""
    chosen: dict[str, int] = {}
    candidates = random.sample(_PORTS, k=500)
    while len(chosen) < len(names):
        if not candidates:
            raise ServicesError(f"no free ports between {_PORTS.start} and {_PORTS.stop}")
        port = candidates.pop()
        if all(is_free(address, port) for address in addresses):
            chosen[names[len(chosen)]] = port
    return chosen


def is_free(address: str, port: int) -> bool:
    """Return whether a server could listen there now."""
    with socket.socket() as probe:
        # As servers do: connections of the last run that are still winding down do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def load(directory: Path) -> State | None:
    """Return what the directory holds, or None when nothing was ever started there."""
    try:
        text = (directory / _FILE).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return _decode(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ServicesError(
            f"{directory / _FILE} is not readable ({error}): end its processes by hand, "
            "then delete the directory"
        ) from error


def _decode(content: dict[str, Any]) -> State:
    version = content.pop("version")
    if version != _VERSION:
        raise ValueError(f"version {version}, this program knows {_VERSION}")
    handles = {name: Handle(**handle) for name, handle in content.pop("handles").items()}
    return State(handles=handles, **content)


def save(directory: Path, state: State) -> None:
    """Write the state whole or not at all."""
    draft = directory / f"{_FILE}.new"
    draft.write_text(json.dumps({"version": _VERSION, **asdict(state)}, indent=2) + "\n")
    draft.replace(directory / _FILE)


def forget(directory: Path) -> None:
    """Delete the state file, and the directory when nothing else is in it."""
    (directory / _FILE).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep every other caller out of the directory while its services change."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # The directory itself is locked: a lock file would have to outlive `remove`.
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise MisuseError(f"{directory} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
