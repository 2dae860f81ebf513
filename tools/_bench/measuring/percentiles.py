"""Latencies, as HdrHistogram keeps them.

Owns the unit (microseconds inside, milliseconds outside) and the resolution: three digits, up to ten
minutes. Refuses to estimate: every latency is counted. What must not break: what is longer than ten minutes
is an error, never a lower figure.
"""

from collections.abc import Iterable

from hdrh.histogram import HdrHistogram

_HIGHEST_US = 600_000_000
_DIGITS = 3


class Latencies:
    """A histogram of latencies; travels between processes as bytes."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _HIGHEST_US, _DIGITS)

    def note_ns(self, nanoseconds: int) -> None:
        """Count one latency."""
        if not self._histogram.record_value(max(1, nanoseconds // 1000)):
            raise ValueError(f"a latency of {nanoseconds / 1e9:.0f} s is longer than can be counted")

    def add(self, encoded: bytes) -> None:
        """Count those of another process."""
        self._histogram.decode_and_add(encoded)

    def encode(self) -> bytes:
        """Return them for another process."""
        return bytes(self._histogram.encode())

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self._histogram.get_total_count())

    def at_ms(self, percentile: float) -> float:
        """Return the latency that `percentile` per cent of all do not exceed, in milliseconds."""
        if not self.count:
            raise ValueError("nothing was delivered, so there is no latency to tell")
        return float(self._histogram.get_value_at_percentile(percentile)) / 1000


def join(parts: Iterable[bytes]) -> Latencies:
    """Return the latencies of several processes or rounds as one."""
    joined = Latencies()
    for part in parts:
        joined.add(part)
    return joined
