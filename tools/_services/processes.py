"""Detached processes, known by their pid and the moment they started.

Owns starting them in a session of their own, looking whether they live, and ending or freezing them.
Refuses to touch a process of which only the pid is known: pids are reused.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from _services.errors import ServicesError
from _services.state import Handle

_STOP_SECONDS = 60.0


def identity(pid: int) -> str:
    """Return what tells this process from any other that had or will have its pid.

    Empty when there is no such process, or when it has ended and only waits for its parent.
    """
    try:
        fields = _stat(pid)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return "" if Path("/proc/self").exists() else _identity_by_ps(pid)
    return "" if fields[0] in "ZX" else f"{boot}/{fields[19]}"


def _stat(pid: int) -> list[str]:
    # The second field is the program's name in parentheses and may itself contain anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _identity_by_ps(pid: int) -> str:
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    line = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    status, _, started = line.partition(" ")
    return "" if status.startswith("Z") else started.strip()


def spawn(command: list[str], log: Path, directory: Path, environment: dict[str, str]) -> Handle:
    """Start a program that outlives this one, its output appended to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    handle = Handle(str(process.pid), identity(process.pid))
    # It is left to run on purpose: without this Python would complain about an abandoned child.
    process.returncode = 0
    return handle


def is_alive(handle: Handle) -> bool:
    """Return whether the very process that was started still runs, or is frozen."""
    return bool(handle.identity) and identity(int(handle.id)) == handle.identity


def is_frozen(handle: Handle) -> bool:
    """Return whether it is stopped by a signal."""
    try:
        return is_alive(handle) and _stat(int(handle.id))[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return False


def send(handle: Handle, number: signal.Signals) -> None:
    """Send a signal to the process if it is still the one that was started."""
    if is_alive(handle):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(handle.id), number)


def end(handle: Handle, *, kill: bool) -> None:
    """End the process and wait until it is gone.

    Raises:
        ServicesError: it was asked to end, and did not within a minute.
    """
    send(handle, signal.SIGKILL if kill else signal.SIGTERM)
    # A frozen process hears nothing but SIGKILL until it is thawed.
    send(handle, signal.SIGCONT)
    deadline = time.monotonic() + _STOP_SECONDS
    while is_alive(handle):
        if time.monotonic() > deadline:
            raise ServicesError(f"process {handle.id} did not end; --kill does not ask")
        with contextlib.suppress(ChildProcessError):
            os.waitpid(int(handle.id), os.WNOHANG)
        time.sleep(0.05)
