"""One process of a rival's server: started in a folder, ended by its id.

Owns the process and its log. Refuses to know what runs in it. What must not break: no process is left behind
by `stop`, and none is ended that was not started here.
"""

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from _services.state import choose_ports

from _bench.errors import BenchError

LOOPBACK = "127.0.0.1"

_START_S = 90.0
_END_S = 30.0
_PAUSE_S = 0.05


def choose_port() -> int:
    """Return a port of the loopback address that is free just now."""
    return choose_ports(["port"], [LOOPBACK])["port"]


class Program:
    """A running process, in a session of its own, whose output goes to a file.

    Args:
        name: names it in errors and its log file.
        command: what to run.
        folder: where it runs, and where its log goes.
        environment: added to ours.
        ends_by: the signal that asks it to end in order.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        ends_by: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._name = name
        self._ends_by = ends_by
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                # A Ctrl-C at the terminal is for us; we end it in order then.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    def wait_until(self, answers: Callable[[], object], seconds: float = _START_S) -> None:
        """Wait until `answers` returns without an error.

        Raises:
            BenchError: the process ended, or nobody answered in time; ends with the last lines of the log.
        """
        deadline = time.monotonic() + seconds
        while True:
            if self._process.poll() is not None:
                raise self._failure(f"ended with exit code {self._process.returncode}")
            try:
                answers()
            except Exception as error:
                # What "not yet" looks like is different in every client library.
                if time.monotonic() > deadline:
                    raise self._failure(f"does not answer after {seconds:.0f} s") from error
                time.sleep(_PAUSE_S)
            else:
                return

    def _failure(self, what: str) -> BenchError:
        with self._log.open(errors="replace") as lines:
            words = "".join(deque(lines, maxlen=15))
        return BenchError(f"{words}\n{self._name} {what}; its log: {self._log}")

    def stop(self) -> None:
        """Ask it to end, and kill it with all of its session when it does not."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(self._ends_by)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def run(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return what it printed on both of its outputs.

    Raises:
        BenchError: it failed; ends with its output.
    """
    done = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        raise BenchError(f"{done.stdout}\n{' '.join(map(str, command))} failed")
    return done.stdout
