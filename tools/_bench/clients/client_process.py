"""A client in a process of its own, which does what it is told and says how long that took.

Owns the process: its spawning, its orders, its end. What is done there is a function of a module, told by its
name, that gets the client first. Time is taken inside the process, around the work alone.

What must not break: an error there is raised here, with its traceback; no process is left behind.
"""

import gc
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from _bench.errors import BenchError


class Closable(Protocol):
    """All that is asked of a client here."""

    def close(self) -> None:
        """Let go of the connection."""


_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound=Closable)

_START_S = 60.0
_END_S = 30.0


class ClientFailedError(BenchError):
    """Raised when the work failed in the client's process; the message is its traceback."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a piece of work took.

    Attributes:
        messages: how many it dealt with.
        seconds: by the wall.
        cpu_seconds: of the client's process, all its threads.
    """

    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds


def timed(messages: int, work: Callable[[], object]) -> Spent:
    """Do the work and tell what it took; garbage of what came before is cleared away first."""
    gc.collect()
    cpu, begun = time.process_time(), time.perf_counter()
    work()
    return Spent(messages, time.perf_counter() - begun, time.process_time() - cpu)


class ClientProcess:
    """One client, in a spawned process; a context manager that ends it.

    Args:
        opener: makes the client there.
        title: the name of the process, for `ps` and for errors.

    Attributes:
        title: see there.
    """

    def __init__(self, opener: Callable[[], Closable], title: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self.title = title
        self._is_ready = False
        self._process = context.Process(target=_serve, args=(opener, there), name=title, daemon=True)
        self._process.start()
        there.close()

    def wait_ready(self, seconds: float = _START_S) -> None:
        """Wait until the client is there; whatever it is told to do waits for that too."""
        if self._is_ready:
            return
        if not self._here.poll(seconds):
            raise ClientFailedError(f"{self.title} was not ready after {seconds:.0f} s")
        self._receive()
        self._is_ready = True

    def begin(self, work: Callable[Concatenate[_C, _P], _T], *values: _P.args, **named: _P.kwargs) -> None:
        """Let the client do a piece of work, and do not wait for it."""
        self.wait_ready()
        self._here.send((work, values, named))

    def result(self) -> Any:  # noqa: ANN401 - whatever the work returned
        """Wait for the work that was begun, and return what it returned."""
        return self._receive()

    def run(self, work: Callable[Concatenate[_C, _P], _T], *values: _P.args, **named: _P.kwargs) -> _T:
        """Let the client do a piece of work and return what it returned."""
        self.begin(work, *values, **named)
        return cast("_T", self.result())

    def rate_of(
        self, work: Callable[Concatenate[_C, _P], Spent], *values: _P.args, **named: _P.kwargs
    ) -> Callable[[], float]:
        """Return what does the work whenever it is called, and returns its messages per second."""
        return lambda: self.run(work, *values, **named).rate

    def kill(self) -> None:
        """Kill the process in the middle of its work; nothing comes back."""
        self._process.kill()
        self._process.join()

    def freeze(self) -> None:
        """Stop the process in the middle of its work, until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process.pid is not None:
            os.kill(self._process.pid, number)

    def close(self) -> None:
        """End the client and its process."""
        if self._process.is_alive():
            try:
                self._here.send(None)
            except OSError:
                self._process.terminate()
        self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._here.close()

    def _receive(self) -> Any:  # noqa: ANN401 - whatever the work returned
        try:
            is_done, answer = self._here.recv()
        except EOFError:
            self._process.join(_END_S)
            raise ClientFailedError(f"{self.title} ended with exit code {self._process.exitcode}") from None
        if not is_done:
            raise ClientFailedError(f"{self.title}:\n{answer}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _serve(opener: Callable[[], Closable], orders: Connection) -> None:
    try:
        client = opener()
    except Exception:
        orders.send((False, traceback.format_exc()))
        return
    orders.send((True, None))
    try:
        while (order := orders.recv()) is not None:
            work, values, named = order
            try:
                answer = True, work(client, *values, **named)
            except Exception:
                answer = False, traceback.format_exc()
            orders.send(answer)
    except (EOFError, KeyboardInterrupt):
        pass  # whoever gave the orders is gone
    finally:
        client.close()
