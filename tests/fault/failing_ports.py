"""Ports of which one call fails, or two.

Owns how a call fails: before it does anything, after it has done it, or with an error that nobody expected.
The contract of the port is kept but for the last. Refuses to choose which call that is.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from cassq.errors import CoordinationUnavailableError, OutcomeUnknownError, StorageUnavailableError

#: Calls that only read: they never leave anything unknown.
READS = (
    "read_queues",
    "glance_queue",
    "list_pipes",
    "read_batches",
    "load_pipe",
    "read_dead",
    "count_dead",
    "read_rollups",
)
WRITES = (
    "change_queue",
    "create_pipe",
    "publish_pipes",
    "delete_pipe",
    "append",
    "transact",
    "mark",
    "change_dead",
    "write_rollups",
)

#: Calls of a coordinator that may find it out of reach, and what the others say where it is.
REACHING = ("claim", "announce_hunger", "holders")
SAYING = {"may_take": False, "is_held": False, "hungry": 0, "wake": 0}

REFUSED, UNKNOWN, UNEXPECTED = "refused", "done and unknown", "unexpected"

STORAGE = (
    *((method, how) for method in READS for how in (REFUSED, UNEXPECTED)),
    *((method, how) for method in WRITES for how in (REFUSED, UNKNOWN, UNEXPECTED)),
)
COORDINATION = (
    *((method, REFUSED) for method in REACHING),
    ("announce_hunger", UNKNOWN),  # a claim whose reply was lost is the adapter's to give up
    *((method, REFUSED) for method in SAYING),
)

#: Calls that may be done though they fail, and calls that are noticed to fail.
UNCERTAIN = (*WRITES, "announce_hunger")
FAILING = (*READS, *WRITES, *REACHING, "is_held")


class PlantedError(RuntimeError):
    """An error that nobody expected."""


class Faults:
    """Which calls of the ports that share this fail, each once.

    Attributes:
        calls: how often each method was called since the last `arm`.
        failed: how many calls failed.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failed = 0
        self._lock = threading.Lock()
        self._armed: dict[tuple[str, int], str] = {}
        self._then: str | None = None
        self._thread: int | None = None

    def arm(self, method: str, number: int, *hows: str, then: str | None = None) -> None:
        """Let the call of this number fail, counted from now on, and those of the method that follow it.

        Args:
            hows: how each of them fails in turn.
            then: how the next call fails of the thread whose call failed, whichever that is.
        """
        with self._lock:
            self.calls.clear()
            self._armed = {(method, number + place): how for place, how in enumerate(hows)}
            self._then, self._thread = then, None

    def disarm(self) -> None:
        """Let no call fail from now on."""
        with self._lock:
            self._armed, self._then, self._thread = {}, None, None

    def fate(self, method: str) -> str | None:
        """Return how the call of `method` that begins now fails, if it does."""
        with self._lock:
            self.calls[method] += 1
            how = self._armed.pop((method, self.calls[method]), None)
            if how:
                self._thread = threading.get_ident() if self._then else None
            elif self._thread == threading.get_ident() and method in FAILING:
                self._thread = None
                how = self._then if method in UNCERTAIN else REFUSED
            self.failed += how is not None
            return how


class Failing:
    """A port whose calls fail as its faults say."""

    def __init__(self, real: Any, faults: Faults) -> None:
        self.real = real
        self._faults = faults

    def __str__(self) -> str:
        return str(self.real)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.real, name)
        if name == "close":
            return method

        def call(*values: Any, **named: Any) -> Any:
            match self._faults.fate(name):
                case None:
                    return method(*values, **named)
                case "refused":
                    return self._refuse(name)
                case "done and unknown":
                    method(*values, **named)
                    if name in REACHING:
                        raise CoordinationUnavailableError("planted: the reply was lost")
                    raise OutcomeUnknownError("planted: the reply was lost")
                case _:
                    raise PlantedError(f"planted: {name} failed")

        return call

    def _refuse(self, name: str) -> Any:
        if name in SAYING:
            return SAYING[name]
        if name in REACHING:
            raise CoordinationUnavailableError("planted: out of reach")
        raise StorageUnavailableError("planted: out of reach")
