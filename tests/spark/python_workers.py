"""The Python workers of the Spark session of this process, and how to kill them in the middle."""

import os
import signal
import time
from pathlib import Path


def stop_once_at(marker: str, batch: int = 1):
    """Return a function for `mapInArrow` that passes batches on, and stops once, in a batch of some task.

    It makes the file and waits for the end; a task that finds the file goes on.
    """

    def is_first():
        try:
            Path(marker).touch(exist_ok=False)  # one task alone: where all stopped none would go on
        except FileExistsError:
            return False
        return True

    def passing(batches):
        for number, each in enumerate(batches, start=1):
            if number == batch and is_first():
                while True:
                    time.sleep(1)
            yield each

    return passing


def kill_workers() -> int:
    """Kill every Python worker below this process, but not the daemon that makes them; return how many."""
    parents: dict[int, int] = {}
    words: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                words[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                continue
    killed = 0
    for pid, parent in parents.items():
        is_worker = "pyspark.daemon" in words.get(parent, "") and "pyspark.daemon" in words[pid]
        if is_worker and os.getpid() in _line_of(pid, parents):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


def _line_of(pid: int, parents: dict[int, int]) -> list[int]:
    line = []
    while pid in parents:
        pid = parents[pid]
        line.append(pid)
    return line
