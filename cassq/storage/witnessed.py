"""What the database's clock shows, told to this process's own, once, at the port.

Owns nothing but the passing on: each answer that carries the database's clock is a witness of time that this
machine may have missed. Refuses to judge by it.
"""

from collections.abc import Callable
from typing import Any, cast

from cassq.model.queue_record import QueueRecord
from cassq.runtime.clock import Clock
from cassq.storage.port import Storage


def witnessed(storage: Storage, clock: Clock, margin_s: float) -> Storage:
    """Return a storage that does the same, and lets `clock` hear what the database's clock showed.

    Args:
        margin_s: by how much the clocks of two nodes may differ.
    """
    return cast("Storage", _WitnessedStorage(storage, clock, margin_s))


class _WitnessedStorage:
    def __init__(self, storage: Storage, clock: Clock, margin_s: float) -> None:
        self._storage = storage
        self._clock = clock
        self._margin_s = margin_s
        self.load_pipe = self._heard(storage.load_pipe)
        self.read_stretch = self._heard(storage.read_stretch)
        self.list_pipes = self._heard(storage.list_pipes)
        self.glance_queue = self._heard(storage.glance_queue)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._storage, name)
        # The next call finds it without coming here.
        self.__dict__[name] = method
        return cast("Callable[..., Any]", method)

    def _heard(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def heard(*values: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the port takes and gives
            asked_at = self._clock.latest()
            answer = read(*values, **named)
            now_ms = answer and (answer.read_at_ms if isinstance(answer, QueueRecord) else answer.now_ms)
            if now_ms:
                self._clock.hear(now_ms / 1000, asked_at, self._margin_s)
            return answer

        return heard
