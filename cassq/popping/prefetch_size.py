"""How much a popper should have in hand: as much as its consumers work off in a moment.

Follows the consumers' measured speed, so that a fast one never waits for the database and a slow one never
sits on messages that a hungry one could have.
"""

from cassq.limits import TAKE_MESSAGES_MAX

#: What consumers work off in this time may be in hand.
AHEAD_S = 0.1

#: A consumer that was not seen for so long no longer counts.
FORGET_S = 30.0

#: How much of the latest measurement goes into the average.
WEIGHT = 0.3


class PrefetchSize:
    """Measures how long consumers take per message, each between one pop and its next.

    Attributes:
        popped_at: when a consumer popped last.
    """

    def __init__(self, popped_at: float) -> None:
        self.popped_at = popped_at
        self._given: dict[int, tuple[float, int]] = {}
        self._service_s: float | None = None

    def note_call(self, consumer: int, now: float) -> None:
        """Note that a consumer came back for more."""
        at, count = self._given.pop(consumer, (now, 0))
        if count and now - at < FORGET_S:
            taken = (now - at) / count
            before = self._service_s
            self._service_s = taken if before is None else before + WEIGHT * (taken - before)

    def note_given(self, consumer: int, count: int, now: float) -> None:
        """Note that a consumer went off with messages."""
        self._given[consumer] = (now, count)
        self.popped_at = now

    def ahead(self, waiting: int, now: float) -> int:
        """Return how many messages to keep in hand beyond what consumers wait for.

        Args:
            waiting: how many consumers wait in a pop just now.
        """
        if self._service_s is None:
            return 0
        for consumer in [c for c, (at, _) in self._given.items() if now - at > FORGET_S]:
            del self._given[consumer]
        consumers = max(1, waiting + len(self._given))
        service_s = self._service_s
        if not waiting and self._given:
            # Who works for longer than ever has become slow, though it has not come back to tell.
            service_s = max(service_s, min((now - at) / max(1, count) for at, count in self._given.values()))
        return min(TAKE_MESSAGES_MAX, int(consumers * AHEAD_S / max(service_s, 1e-6)))
