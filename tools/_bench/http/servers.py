"""The processes of a service under measurement: `cassq serve`, or the same over a queue that answers at once.

Owns starting, finding and ending them, and what they hold of the machine. What must not break: each listens
on the loopback address alone, and none is left behind.
"""

import sys
import urllib.request
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psutil

import cassq
from _bench.rivals.program import LOOPBACK, Program, choose_port
from cassq.gate.applications import Application, Applications, Right
from cassq.limits import MIB


class Service:
    """So many processes, each at a port of its own.

    Args:
        url: of the store; None for a queue that answers at once: what is left is the door.

    Attributes:
        ports: of each process.
        key: of an application that may do everything.
    """

    def __init__(self, name: str, url: str | None, processes: int = 1) -> None:
        self.name = name
        self._url = url
        self._count = processes
        self._programs: list[Program] = []
        self.ports: list[int] = []
        self.key = ""

    def start(self, folder: Path) -> None:
        """Start them, and wait until they are ready."""
        if self._url is not None:
            with cassq.connect(self._url) as store:
                self.key = make_key(store)
        for number in range(self._count):
            port = choose_port()
            kept = folder / f"{self.name}-{number}.key"
            program = Program(f"{self.name}-{number}", self._command(port, kept), folder)
            self._programs.append(program)
            self.ports.append(port)
            program.wait_until(partial(_check_ready, port))
            self.key = self.key or kept.read_text("utf-8")

    def _command(self, port: int, key: Path) -> Sequence[str | Path]:
        if self._url is None:
            return [sys.executable, "-m", "_bench.http.instant", str(port), key]
        program = Path(sys.executable).with_name("cassq")
        return [program, "--url", self._url, "serve", "--port", str(port)]

    def stop(self) -> None:
        """End them."""
        while self._programs:
            self._programs.pop().stop()
        self.ports.clear()

    def held(self) -> "Held":
        """Return what they hold together."""
        each = [_held_by(program.pid) for program in self._programs]
        return Held(
            sum(one.mib for one in each), sum(one.threads for one in each), sum(one.cpu_s for one in each)
        )


def make_key(store: cassq.Store) -> str:
    """Return a key with which everything can be done; a process that runs takes it within two seconds."""
    applications = Applications(store.storage)
    name = f"bench-{uuid4().hex[:8]}"
    applications.create(Application(name, frozenset(Right)))
    return str(applications.add_key(name))


def _check_ready(port: int) -> None:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=5):
        pass


class Held(NamedTuple):
    """What processes hold of the machine, as the kernel says.

    Attributes:
        mib: in memory.
        cpu_s: of all their threads, since they began.
    """

    mib: float
    threads: int
    cpu_s: float


def _held_by(pid: int) -> Held:
    process = psutil.Process(pid)
    spent = process.cpu_times()
    return Held(process.memory_info().rss / MIB, process.num_threads(), spent.user + spent.system)
