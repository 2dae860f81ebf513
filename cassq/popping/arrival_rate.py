"""How fast messages come in, and so whether the next one is worth a second look.

Follows the flow as one popper sees it. In a fast flow the next message is here sooner than anybody could
announce hunger and be woken; in a slow one looking again and again would only cost reads.
"""

#: Nobody is awaited by looking whose next message is expected later than this.
GAP_MAX_S = 0.005

#: How many expected gaps may pass without a message before the flow counts as over, and the least time.
GAPS_MAX = 4
OVER_S = 0.01

#: Two looks are at least so far apart.
PAUSE_MIN_S = 0.0005

#: So many finds in a row, each soon after the one before, make a flow for which it is worth to lease ahead.
#: Two messages that happen to come together do not: what one popper leases ahead the others cannot have.
FINDS_MIN = 8

#: How much of the latest measurement goes into the average.
WEIGHT = 0.2


class ArrivalRate:
    """Measures the gaps between messages, by when they were found."""

    def __init__(self) -> None:
        self._found_at: float | None = None
        self._gap_s: float | None = None
        self._last_gap_s = 0.0
        self._quick_finds = 0

    def note_found(self, count: int, now: float) -> None:
        """Note that `count` messages were found."""
        if self._found_at is not None:
            gap = self._last_gap_s = (now - self._found_at) / count
            self._quick_finds = self._quick_finds + 1 if gap <= GAP_MAX_S else 0
            before = self._gap_s
            self._gap_s = gap if before is None else before + WEIGHT * (gap - before)
        self._found_at = now

    def is_fast(self, now: float) -> bool:
        """Tell whether messages have come fast for a while, and still do."""
        return self._quick_finds >= FINDS_MIN and self.next_look_s(now) is not None

    def next_find_s(self, now: float) -> float:
        """Return for how many seconds no message is expected; 0 where they come fast, or nothing is known.

        What begins after a long rest is told by its last gap, not by the average.
        """
        if self._found_at is None or self._gap_s is None:
            return 0.0
        gap = min(self._gap_s, self._last_gap_s)
        return 0.0 if gap <= GAP_MAX_S else max(0.0, self._found_at + gap / 2 - now)

    def next_look_s(self, now: float) -> float | None:
        """Return after how many seconds to look again; None when the flow is slow, or over."""
        if self._found_at is None or self._gap_s is None or self._gap_s > GAP_MAX_S:
            return None
        if now - self._found_at > max(GAPS_MAX * self._gap_s, OVER_S):
            return None
        return max(PAUSE_MIN_S, self._gap_s / 2)
