"""A NATS server of one's own.

Owns finding or building, starting and ending it. Debian's is too old to be told to sync always; Go builds one
from its module.
"""

import os
import re
import shutil
import socket
from pathlib import Path

from _bench.errors import BenchError
from _bench.rivals import debian
from _bench.rivals.program import LOOPBACK, Program, choose_port, run

_VERSION = "2.15.2"
_LEAST = (2, 10)


class NatsServer:
    """One server with JetStream.

    Args:
        sync: its `sync_interval`: always, or None for what it comes with, which is two minutes.
    """

    def __init__(self, sync: str | None) -> None:
        self._sync = sync
        self._program: Program | None = None
        self.port = 0
        self.version = ""

    def start(self, folder: Path) -> None:
        """Start it, empty."""
        path = _find()
        self.version = ".".join(map(str, _version_of(path)))
        self.port = choose_port()
        sync = f"sync_interval: {self._sync}" if self._sync else ""
        configuration = folder / "nats.conf"
        configuration.write_text(
            f'host: "{LOOPBACK}"\nport: {self.port}\n'
            f'jetstream {{\n  store_dir: "{folder / "data"}"\n  {sync}\n}}\n'
        )
        self._program = Program("nats", [path, "-c", configuration], folder)
        self._program.wait_until(lambda: socket.create_connection((LOOPBACK, self.port), 1).close())

    def stop(self) -> None:
        """End the server."""
        if self._program:
            self._program.stop()


def _find() -> Path:
    installed = shutil.which("nats-server")
    if installed and _version_of(Path(installed)) >= _LEAST:
        return Path(installed)
    built = debian.CACHE / f"nats-server-{_VERSION}" / "nats-server"
    if not built.exists():
        _build(built.parent)
    return built


def _version_of(path: Path) -> tuple[int, ...]:
    told = re.search(r"v?(\d+)\.(\d+)\.(\d+)", run([path, "--version"]))
    return tuple(map(int, told.groups())) if told else ()


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        least = ".".join(map(str, _LEAST))
        raise BenchError(
            f"nats-server {least} or newer is needed: install it, or Go, which builds it from its module"
        )
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"GOBIN": str(folder), "GOTOOLCHAIN": "local", "GOFLAGS": os.environ.get("GOFLAGS", "")}
    run([go, "install", f"github.com/nats-io/nats-server/v2@v{_VERSION}"], environment)
