"""Ports of which one call fails once.

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


class PlantedError(RuntimeError):
    """An error that nobody expected."""


class Failing:
    """A port; the calls that `arm` names fail, each once."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.calls: Counter[str] = Counter()
        self.failed = 0
        self._lock = threading.Lock()
        self._armed: dict[tuple[str, int], str] = {}

    def __str__(self) -> str:
        return str(self.real)

    def arm(self, method: str, number: int, how: str) -> None:
        """Let the call of this number, counted from now on, fail."""
        with self._lock:
            self.calls.clear()
            self._armed = {(method, number): how}

    def disarm(self) -> None:
        """Let no call fail from now on."""
        with self._lock:
            self._armed = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.real, name)
        if name == "close":
            return method

        def call(*values: Any, **named: Any) -> Any:
            match self._fate(name):
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

    def _fate(self, name: str) -> str | None:
        with self._lock:
            self.calls[name] += 1
            fate = self._armed.pop((name, self.calls[name]), None)
            self.failed += fate is not None
            return fate

    def _refuse(self, name: str) -> Any:
        if name in SAYING:
            return SAYING[name]
        if name in REACHING:
            raise CoordinationUnavailableError("planted: out of reach")
        raise StorageUnavailableError("planted: out of reach")
