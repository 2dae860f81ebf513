"""A Python that has imported what takes long, and forks a fresh one for each program.

Owns that process and what runs in its forks. What must not break: when it forks, it has neither imported the
library, so that a bug can still be planted there, nor a second thread.
"""

import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

_HERE = Path(__file__).parent

#: What the library, its tests and the simulation import, and what does not import the library itself.
IMPORTS = (
    "cassandra.cluster",
    "cronsim",
    "greenlet",
    "hypothesis",
    "kazoo.client",
    "mutants",
    "sqlite3",
    "xdist.scheduler",
)

#: Its packages and modules.
LIBRARY = {"cassq", "cassq_command", "pyspark_cassq"}


class ForkServer:
    """Runs programs one after the other; a context, which ends what is left of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(
        self, module: str, words: Sequence[str], planted: str = "", timeout_s: float | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run `python -m MODULE WORDS` from the project's root, with CASSQ_PLANT as given.

        Raises TimeoutExpired after `timeout_s`, and ends the program and all that it has started; where it
        stood is told on the standard error a little before.
        """
        process = self._process = self._process or self._start()
        print(json.dumps([timeout_s, module, *words, planted]), file=process.stdin, flush=True)
        if not select.select([process.stdout], [], [], timeout_s)[0]:
            self._end()
            raise subprocess.TimeoutExpired([module, *words], timeout_s or 0)
        code, output = json.loads(process.stdout.readline())
        return subprocess.CompletedProcess([module, *words], code, output)

    def _start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "fork_server"],
            cwd=_HERE.parent.parent,
            # The threads of OpenBLAS, which numpy brings, begin with its import.
            env={**os.environ, "PYTHONPATH": str(_HERE), "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _serve() -> None:
    """Answer each line of words with the exit code and the output of the program that they start."""
    _import()
    for line in sys.stdin:
        timeout_s, module, *words, planted = json.loads(line)
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            program = os.fork()
            if not program:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output.fileno(), 1)
                os.environ["CASSQ_PLANT"] = planted
                if timeout_s:
                    faulthandler.dump_traceback_later(0.9 * timeout_s)
                _become(module, words)
                return
            code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
            output.seek(0)
            print(json.dumps([code, output.read()]), flush=True)


def _import() -> None:
    # While a pytest begins, for it warns of plugins that were imported without it.
    pytest.main(["--noconftest", "-c", os.devnull], plugins=[_Imports()])
    known = [name for name in sys.modules if name.partition(".")[0] in LIBRARY]
    threads = len([*Path("/proc/self/task").glob("*")])
    if known or threads > 1:
        raise ImportError(
            f"{threads} threads would be forked, and of the library {known} were imported already"
        )
    gc.freeze()


class _Imports:
    def pytest_cmdline_main(self) -> int:
        """Import, and run no test."""
        for name in IMPORTS:
            importlib.import_module(name)
        return 0


def _become(module: str, words: Sequence[str]) -> None:
    sys.argv[1:] = words
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception:
        traceback.print_exc()
        sys.exit(os.EX_SOFTWARE)  # and not 1, with which pytest says that a test failed


if __name__ == "__main__":
    _serve()
