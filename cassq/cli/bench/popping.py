"""The popping process of `cassq bench`, as the measuring process sees it.

Owns starting it, hearing what it tells, and ending it; `cassq.cli.bench.worker` is what runs there. What must
not break: it never outlives the bench: its stdin ends with it.
"""

import json
import os
import subprocess
import sys
import threading
from types import TracebackType
from typing import Self

from cassq.cli.bench.messages import BenchFailedError

#: How long it may take to end by itself.
END_S = 20.0


class PoppingProcess:
    """The popper, in a process of its own; a context manager that ends it.

    Attributes:
        popped: how many messages it has told of.
    """

    def __init__(self, url: str, queue: str, expected: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - ourselves, with a name that was checked
            [sys.executable, "-m", "cassq.cli.bench.worker", queue, str(expected)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "CASSQ_URL": url},
        )
        self.popped = 0
        self._is_ready = threading.Event()
        self._arrivals: list[tuple[int, float]] | None = None
        self._reader = threading.Thread(target=self._read, name="cassq-bench-read", daemon=True)
        self._reader.start()

    @property
    def is_ready(self) -> bool:
        """Whether it pops."""
        return self._is_ready.is_set()

    @property
    def is_done(self) -> bool:
        """Whether it told everything."""
        return self._arrivals is not None

    def check(self) -> None:
        """See that it has not failed.

        Raises: BenchFailedError: it has.
        """
        if not self._reader.is_alive() and not self.is_done:
            raise BenchFailedError(f"the popping process ended with exit code {self._end()}")

    def finish(self) -> list[tuple[int, float]]:
        """Let it end; return the number of each message that came, and when.

        Raises: BenchFailedError: it failed.
        """
        exit_code = self._end()
        if self._arrivals is None or exit_code != 0:
            raise BenchFailedError(f"the popping process ended with exit code {exit_code}")
        return self._arrivals

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
        if self._process.stdout:
            self._process.stdout.close()

    def _end(self) -> int:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            exit_code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            exit_code = self._process.wait()
        self._reader.join()
        return exit_code

    def _read(self) -> None:
        for line in self._process.stdout or ():
            told = json.loads(line)
            if "numbers" in told:
                self.popped = len(told["numbers"])
                self._arrivals = list(zip(told["numbers"], told["popped_at"], strict=True))
            else:
                self.popped = told["popped"]
                self._is_ready.set()
