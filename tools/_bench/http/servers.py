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

import psutil

from _bench.rivals.program import LOOPBACK, Program, choose_port
from cassq.limits import MIB


class Service:
    """So many processes, each at a port of its own.

    Args:
        url: of the store; None for a queue that answers at once: what is left is the door.
    """

    def __init__(self, name: str, url: str | None, processes: int = 1) -> None:
        self.name = name
        self._url = url
        self._count = processes
        self._programs: list[Program] = []
        self.ports: list[int] = []

    def start(self, folder: Path) -> None:
        """Start them, and wait until they are ready."""
        for number in range(self._count):
            port = choose_port()
            program = Program(f"{self.name}-{number}", self._command(port), folder)
            self._programs.append(program)
            self.ports.append(port)
            program.wait_until(partial(_check_ready, port))

    def _command(self, port: int) -> Sequence[str | Path]:
        if self._url is None:
            return [sys.executable, "-m", "_bench.http.instant", str(port)]
        cassq = Path(sys.executable).with_name("cassq")
        return [cassq, "--url", self._url, "serve", "--port", str(port), "--open"]

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
