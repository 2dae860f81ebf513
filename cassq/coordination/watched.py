"""A coordinator that tells of its outages.

Owns that an outage of the coordination service is told where it is seen. Refuses to count calls.
"""

import threading
from functools import wraps
from typing import Any, cast

from cassq.coordination.port import Coordinator
from cassq.errors import CoordinationUnavailableError
from cassq.runtime.outage_log import COORDINATION, OutageLog


def silent_service(coordinator: Coordinator, queue: str) -> str | None:
    """Return the name of a watched coordinator where a call about the queue waits for its answer now."""
    is_asked = isinstance(coordinator, _WatchedCoordinator) and coordinator.is_asked(queue)
    return str(coordinator) if is_asked else None


def watched(coordinator: Coordinator, outages: OutageLog) -> Coordinator:
    """Return a coordinator that does the same and tells of outages."""
    return cast("Coordinator", _WatchedCoordinator(coordinator, outages))


#: The methods of a coordinator that may find it out of reach.
_TELLING = frozenset({"claim", "holders", "announce_hunger"})

#: Those that may wait for an answer; all are about one queue.
_ASKING = _TELLING | {"release", "hungry", "wake"}


class _WatchedCoordinator:
    def __init__(self, coordinator: Coordinator, outages: OutageLog) -> None:
        self._coordinator = coordinator
        self._outages = outages
        #: The threads in the middle of a call, and the queues that it is about.
        self._asking: dict[int, str] = {}

    def __str__(self) -> str:
        return str(self._coordinator)

    def is_asked(self, queue: str) -> bool:
        """Tell whether a call about a queue waits for its answer now."""
        return queue in list(self._asking.values())

    def may_take(self) -> bool:
        """See `Coordinator.may_take`; the one call that tells how the session is, and touches no network."""
        may_take = self._coordinator.may_take()
        if may_take:
            self._outages.note_answer(COORDINATION)
        else:
            words = f"{self._coordinator} is out of reach, so no pipe may be claimed: pops wait for it"
            self._outages.note_failure(COORDINATION, CoordinationUnavailableError(words))
        return may_take

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the port has
        method = getattr(self._coordinator, name)
        if name not in _ASKING:
            if callable(method):  # the next call finds it without coming here
                self.__dict__[name] = method
            return method

        @wraps(method)
        def telling(queue: str, *values: Any, **named: Any) -> Any:  # noqa: ANN401 - what the port takes and gives
            thread = threading.get_ident()
            interrupted = self._asking.get(thread)  # by a signal handler, say
            self._asking[thread] = queue
            try:
                return method(queue, *values, **named)
            except CoordinationUnavailableError as error:
                if name in _TELLING:
                    self._outages.note_failure(COORDINATION, error)
                raise
            finally:
                if interrupted is None:
                    self._asking.pop(thread, None)
                else:
                    self._asking[thread] = interrupted

        self.__dict__[name] = telling
        return telling
