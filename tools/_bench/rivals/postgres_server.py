"""A PostgreSQL server of one's own.

Owns finding, making, starting and ending it. PostgreSQL refuses to be root; there it runs as nobody, whose
folder then lies in the folder for temporary files, because nobody cannot enter those of root.
"""

import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

import psycopg

from _bench.rivals import debian
from _bench.rivals.program import LOOPBACK, Program, choose_port, run

_NOBODY = 65534
_AS_NOBODY = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]


class PostgresServer:
    """One server, with the settings it comes with: fsync and synchronous_commit are on."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._home: Path | None = None
        self._port = 0
        self.version = ""

    @property
    def address(self) -> str:
        """How psycopg finds it."""
        return f"host={LOOPBACK} port={self._port} user=bench dbname=postgres"

    def start(self, folder: Path) -> None:
        """Make an empty cluster and start it."""
        found = debian.find("postgres", "postgresql", place="usr/lib/postgresql/*/bin")
        self.version = re.findall(r"[\d.]+", run([found.path, "--version"], found.environment))[0]
        self._port = choose_port()
        home = folder / "postgres"
        become: list[str] = []
        if os.geteuid() == 0:
            home = self._home = Path(tempfile.mkdtemp(prefix="cassq-bench-postgres-"))
            os.chown(home, _NOBODY, _NOBODY)
            become = _AS_NOBODY
        else:
            home.mkdir()
        data = home / "data"
        make: list[str | Path] = [
            found.path.resolve().with_name("initdb"),
            "-D",
            data,
            "-U",
            "bench",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
        ]
        run([*become, *make], {**found.environment, "PWD": str(home)})
        settings = {"listen_addresses": LOOPBACK, "port": str(self._port), "unix_socket_directories": ""}
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._program = Program(
            "postgres",
            [*become, found.path, "-D", data, *flags],
            folder,
            environment=found.environment,
            # The others wait for clients to go by themselves, or leave a recovery behind.
            ends_by=signal.SIGINT,
        )
        self._program.wait_until(lambda: psycopg.connect(self.address).close())

    def stop(self) -> None:
        """End it and delete what lies outside of our folder."""
        if self._program:
            self._program.stop()
        if self._home:
            shutil.rmtree(self._home, ignore_errors=True)
