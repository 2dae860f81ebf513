"""Runs spin: finds it, builds a verifier in a temporary folder, and reads what it says.

Refuses to judge. What must not break: a search counts as complete only when the verifier says so itself.
"""

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from _check_model.runs import LONG, Run

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "docs" / "model"
CACHE = ROOT / ".tools" / "spin"

#: Memory of one search, in MB, and the longest path.
MEMORY_MB = 5000
DEPTH_MAX = 20_000

#: Not one of these may be said of a complete search.
_INCOMPLETE = ("max search depth too small", "Search not completed", "out of memory", "reached -DMEMLIM")


class ModelError(Exception):
    """Something that is needed is missing, or the model cannot be built."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a search found.

    Attributes:
        failure: the property that failed, in the verifier's words; empty: none did.
        at_depth: how many steps lead there.
        is_complete: whether everything within the bounds was looked at.
    """

    states: int
    depth: int
    seconds: float
    failure: str
    at_depth: int
    is_complete: bool


@cache
def find_spin() -> str:
    """Return the path of spin; fetch it by apt into the project's cache where it is not installed.

    Raises: ModelError: it is not to be had, or there is no C compiler.
    """
    if not shutil.which("gcc"):
        raise ModelError("a C compiler is needed: on Debian and Ubuntu, apt-get install gcc")
    cached = CACHE / "usr" / "bin" / "spin"
    found = shutil.which("spin") or (str(cached) if cached.exists() else None)
    if found:
        return found
    _fetch()
    if not cached.exists():
        raise ModelError("spin is needed: on Debian and Ubuntu, apt-get install spin gcc")
    return str(cached)


def _fetch() -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return
    with tempfile.TemporaryDirectory() as folder:
        for preparation in ([], ["apt-get", "update"]):
            if preparation:
                subprocess.run(preparation, check=False, capture_output=True)
            subprocess.run(["apt-get", "download", "spin"], cwd=folder, check=False, capture_output=True)
            for package in Path(folder).glob("spin_*.deb"):
                CACHE.mkdir(parents=True, exist_ok=True)
                subprocess.run(["dpkg", "-x", str(package), str(CACHE)], check=True)
                return


def search(run: Run) -> Verdict:
    """Search everything that can happen within the bounds, up to the first failure."""
    with _verifier(run) as folder:
        return _search(run, folder)[0]


def trace(run: Run) -> tuple[Verdict, list[str]]:
    """Search for a failure by the shortest way, and return the steps that lead there, in words."""
    with _verifier(run, "-DBFS") as folder:
        return _search(run, folder)


@contextmanager
def _verifier(run: Run, *options: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cassq-model-") as name:
        folder = Path(name)
        shutil.copy(MODELS / f"{run.file}.pml", folder)
        _must(folder, [find_spin(), "-a", *run.definitions, f"{run.file}.pml"])
        # A build at -O2 takes longer than the search of three million states at -O0.
        optimization = "-O2" if run in LONG else "-O0"
        compiler = [
            "gcc",
            "-w",
            optimization,
            "-DSAFETY",
            "-DNOCLAIM",
            "-DVECTORSZ=1024",
            f"-DMEMLIM={MEMORY_MB}",
        ]
        _must(folder, [*compiler, *options, "-o", "pan", "pan.c"])
        yield folder


def _must(folder: Path, command: list[str]) -> None:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ModelError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")


def _search(run: Run, folder: Path) -> tuple[Verdict, list[str]]:
    started = time.monotonic()
    # Every model says itself, by an assertion, in which states it may end: -E leaves that to it.
    # A failure is found soon: where a table for millions of states is made ready, that takes the longest.
    table = "-w20" if run.without else "-w25"
    command = ["./pan", "-E", f"-m{DEPTH_MAX}", table]
    said = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True).stdout
    seconds = time.monotonic() - started
    errors = _number(r"errors: (\d+)", said)
    failure, steps = _replay(run, folder) if errors > 0 else ("", [])
    verdict = Verdict(
        states=_number(r"(\d+) states, stored", said),
        depth=_number(r"depth reached (\d+)", said),
        seconds=seconds,
        failure=failure,
        at_depth=_number(r"at depth (\d+)", said),
        is_complete=errors == 0 and not any(each in said for each in _INCOMPLETE),
    )
    return verdict, steps


def _replay(run: Run, folder: Path) -> tuple[str, list[str]]:
    """Return what failed, as the comment behind the assertion says it, and the steps that lead there."""
    model = folder / f"{run.file}.pml"
    command = [find_spin(), "-t", "-T", *run.definitions, "-k", f"{model.name}.trail", model.name]
    told = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True).stdout
    steps, _, _ = told.partition("spin: trail ends")
    place = re.search(r"pml:(\d+), Error: assertion violated", told)
    if not place:
        raise ModelError(
            f"the failure of {run.file} without {run.without or 'anything'} cannot be replayed:\n{told}"
        )
    line = model.read_text(encoding="utf-8").splitlines()[int(place[1]) - 1]
    failure = re.search(r"/\* (.*) \*/", line)
    return (
        failure[1] if failure else line.strip(),
        [step.rstrip() for step in steps.splitlines() if not step.startswith("spin:")],
    )


def _number(pattern: str, said: str) -> int:
    found = re.search(pattern, said)
    return int(found[1]) if found else -1
