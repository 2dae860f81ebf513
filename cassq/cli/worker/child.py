"""One process that works, and tells the one that watches it how it is.

Owns what signals mean to it: SIGTERM ends it softly, however often it comes; SIGQUIT at once. What must not
break: it ends, and gives its messages back, when the process that watches it is gone.
"""

import json
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import cassq

#: What ends it at once. A supervisor may send SIGTERM to all processes, beside the one that watches.
AT_ONCE = signal.SIGQUIT

#: It tells how it is this often.
TICK_S = 1.0

#: At first more often: others wait for it to be ready.
FIRST_TICK_S = 0.05


@dataclass(frozen=True, slots=True)
class Tick:
    """How a process is.

    Attributes:
        is_ready: its poppers pop.
        done: for how many messages its handlers have ended.
        busy, late: handlers at work, and those of them beyond their time-outs.
        slots: how many handlers may work at a time.
        memory: its resident memory, in bytes.
    """

    is_ready: bool
    done: int
    busy: int
    late: int
    slots: int
    memory: int

    def to_line(self) -> bytes:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "Tick":
        """Read what `to_line` returned."""
        return cls(**json.loads(line))


def work(worker: cassq.Worker, told: int, drain_s: float) -> None:
    """Run a worker until a signal, or the end of standard input, says that it is to stop.

    Args:
        told: the file that ticks are written to.
    """

    def tell() -> None:
        os.write(told, _tick(worker).to_line())

    signal.signal(signal.SIGTERM, lambda *_: worker.stop(drain=drain_s))
    signal.signal(AT_ONCE, lambda *_: worker.stop(drain=0))
    for number in (signal.SIGHUP, signal.SIGINT):  # they are for the one that watches
        signal.signal(number, lambda *_: None)  # and what handlers start hears of them as ever
    os.set_inheritable(told, False)
    watched = _take_input()
    _in_background(lambda: _await_end(watched, lambda: worker.stop(drain=drain_s)))
    ending = threading.Event()
    ticking = _in_background(lambda: _tick_until(ending, tell))
    try:
        worker.run()
    finally:
        ending.set()
        ticking.join()


def _tick(worker: cassq.Worker) -> Tick:
    return Tick(worker.is_ready, worker.done, worker.busy, worker.late, worker.slots, _memory())


def _tick_until(ending: threading.Event, tell: Callable[[], None]) -> None:
    pause_s = FIRST_TICK_S
    try:
        while not ending.wait(pause_s):
            tell()
            pause_s = min(2 * pause_s, TICK_S)
    except OSError:  # nobody listens any more: the end of the input says so, too
        logging.getLogger("cassq.worker").debug("nobody watches this process")


def _take_input() -> int:
    """Return standard input, which ends with the process that watches; handlers have an empty one."""
    watched = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return watched


def _await_end(watched: int, stop: Callable[[], None]) -> None:
    with suppress(OSError):
        while os.read(watched, 4096):
            pass
    stop()


def _memory() -> int:
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the most it ever was
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _in_background(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name="cassq-child", daemon=True)
    thread.start()
    return thread
