"""The processes of the demo, and what their ledgers say.

Owns starting, killing and ending them. What must not break: only its own children are ever signalled, by
their process id, and none outlives the demo: their stdin ends with it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cassq.verification.ledger import Kind, LedgerReader, Line

#: How long a child may take to end by itself.
END_S = 20.0


class Worker:
    """One child process with its ledger."""

    def __init__(self, name: str, folder: Path, url: str, work: Mapping[str, Any]) -> None:
        self.name = name
        path = folder / f"{name}.ledger"
        self.ledger = LedgerReader(path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cassq.cli.demo.worker"],
            stdin=subprocess.PIPE,
            env={**os.environ, "CASSQ_URL": url},
        )
        self._tell(json.dumps({**work, "name": name, "ledger": str(path)}))

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._close_stdin()

    def end(self) -> int:
        """Let it end; return its exit code."""
        self._close_stdin()
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -1

    def _tell(self, line: str) -> None:
        if self._process.stdin:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _close_stdin(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()


class Crew:
    """All workers of one run.

    Args:
        folder: where the ledgers are.
        url: the store.
    """

    def __init__(self, folder: Path, url: str, queue: str) -> None:
        self._folder = folder
        self._url = url
        self._queue = queue
        self.pushers: list[Worker] = []
        self.poppers: list[Worker] = []

    def add_pusher(self, root: Path, files: list[str], copies: int) -> None:
        """Start a process that pushes files."""
        name = f"pusher-{len(self.pushers) + 1}"
        work = {"queue": self._queue, "root": str(root), "files": files, "copies": copies}
        self.pushers.append(Worker(name, self._folder, self._url, work))

    def add_popper(self, stall_after: int | None) -> None:
        """Start a process that pops; after so many messages it keeps what it has, and hangs."""
        name = f"popper-{len(self.poppers) + 1}"
        work = {"queue": self._queue, "stall_after": stall_after}
        self.poppers.append(Worker(name, self._folder, self._url, work))

    def read_on(self) -> None:
        """Read what the workers have written since."""
        for worker in (*self.pushers, *self.poppers):
            worker.ledger.read_on()

    def count(self, kind: Kind) -> int:
        """Return how many lines of a kind there are."""
        return sum(worker.ledger.count(kind) for worker in (*self.pushers, *self.poppers))

    def lines(self, kind: Kind) -> Iterator[Line]:
        """Yield the lines of a kind, of all workers."""
        for worker in (*self.pushers, *self.poppers):
            yield from worker.ledger.of_kind(kind)

    def close(self) -> None:
        """End whoever still runs, the hard way."""
        for worker in (*self.pushers, *self.poppers):
            if worker.exit_code is None:
                worker.kill()
