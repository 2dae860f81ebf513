"""What the library asks of its database: calls, failures and time, measured once, at the port.

Owns counters, nothing else: no exporter, no names of metric systems. Reading them costs nothing to others.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from cassq.storage.port import Storage


@dataclass(frozen=True, slots=True)
class CallCount:
    """How one method of the port was used.

    Attributes:
        calls: how often it was called.
        failures: how many of those raised.
        seconds: time spent in it, over all threads.
    """

    calls: int = 0
    failures: int = 0
    seconds: float = 0.0


class Telemetry:
    """Counts calls by method name; safe to use from many threads."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._counts: dict[str, CallCount] = {}

    def note(self, method: str, seconds: float, *, is_failure: bool) -> None:
        """Note one call."""
        with self._counting:
            seen = self._counts.get(method, CallCount())
            self._counts[method] = CallCount(
                seen.calls + 1, seen.failures + is_failure, seen.seconds + seconds
            )

    def snapshot(self) -> Mapping[str, CallCount]:
        """Return the counts so far, by method of `cassq.storage.port.Storage`."""
        with self._counting:
            return dict(self._counts)


def measured(storage: Storage, telemetry: Telemetry) -> Storage:
    """Return a storage that does the same and counts every call."""
    return cast("Storage", _MeasuredStorage(storage, telemetry))


class _MeasuredStorage:
    def __init__(self, storage: Storage, telemetry: Telemetry) -> None:
        self._storage = storage
        self._telemetry = telemetry

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._storage, name)
        note = self._telemetry.note

        @wraps(method)
        def counted(*values: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the port takes and gives
            begun = time.perf_counter()
            is_failure = True
            try:
                answer = method(*values, **named)
                is_failure = False
            finally:
                note(name, time.perf_counter() - begun, is_failure=is_failure)
            return answer

        # The next call finds it without coming here.
        self.__dict__[name] = counted
        return counted
