"""What the library asks of the database: calls, failures and time, measured once, at the port.

Owns counters, and that outages are logged and calls told to an observer where they are seen. Refuses to know
metric systems. Reading the counters costs nothing to others.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from cassq.model.events import StorageCalled, code_of
from cassq.runtime.event_buffer import EventBuffer
from cassq.runtime.outage_log import DATABASE, OUTAGES, OutageLog
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
        # Each thread has counts of its own, so there is no lock that a signal could find taken.
        self._counts: dict[tuple[str, int], CallCount] = {}

    def note(self, method: str, seconds: float, *, is_failure: bool) -> None:
        """Note one call."""
        key = (method, threading.get_ident())
        seen = self._counts.get(key, CallCount())
        self._counts[key] = CallCount(seen.calls + 1, seen.failures + is_failure, seen.seconds + seconds)

    def snapshot(self) -> Mapping[str, CallCount]:
        """Return the counts so far, by method of `cassq.storage.port.Storage`."""
        counts: dict[str, CallCount] = {}
        for (method, _), more in self._counts.copy().items():
            seen = counts.get(method, CallCount())
            counts[method] = CallCount(
                seen.calls + more.calls, seen.failures + more.failures, seen.seconds + more.seconds
            )
        return counts


def measured(
    storage: Storage, telemetry: Telemetry, outages: OutageLog, events: EventBuffer | None = None
) -> Storage:
    """Return a storage that does the same, counts every call, and tells of outages.

    Args:
        events: where each call is noted, too.
    """
    counted = _MeasuredStorage(storage, telemetry, outages)
    return cast("Storage", _ObservedStorage(counted, events) if events else counted)


class _MeasuredStorage:
    def __init__(self, storage: Storage, telemetry: Telemetry, outages: OutageLog) -> None:
        self._storage = storage
        self._outages = outages
        self._telemetry = telemetry

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._storage, name)
        note, outages = self._telemetry.note, self._outages

        @wraps(method)
        def counted(*values: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the port takes and gives
            begun = time.perf_counter()
            is_failure = True
            try:
                answer = method(*values, **named)
                is_failure = False
            except OUTAGES as error:
                outages.note_failure(DATABASE, error, name)
                raise
            finally:
                note(name, time.perf_counter() - begun, is_failure=is_failure)
            outages.note_answer(DATABASE, name)
            return answer

        # The next call finds it without coming here.
        self.__dict__[name] = counted
        return counted


class _ObservedStorage:
    def __init__(self, storage: _MeasuredStorage, events: EventBuffer) -> None:
        self._storage = storage
        self._events = events

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method, events = getattr(self._storage, name), self._events

        @wraps(method)
        def observed(*values: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the port takes and gives
            begun = time.perf_counter()
            try:
                answer = method(*values, **named)
            except BaseException as error:
                events.note(StorageCalled(name, time.perf_counter() - begun, code_of(error)))
                raise
            events.note(StorageCalled(name, time.perf_counter() - begun, None))
            if now_ms := getattr(answer, "now_ms", 0):
                events.hear(now_ms)
            return answer

        self.__dict__[name] = observed
        return observed
