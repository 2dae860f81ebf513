"""How often a key may be used: a bucket of tokens for each, in this process.

Owns the buckets. What must not break: one key's requests cost no other key a token.
"""

import threading
from typing import NamedTuple

from cassq.errors import RateExceededError
from cassq.runtime.clock import Clock

#: A bucket holds what its key may use in so long.
BURST_S = 1.0


class _Bucket(NamedTuple):
    tokens: float
    at: float


class Rates:
    """The buckets of one process; those of others have their own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._guard = threading.Lock()

    def take(self, key: str, rate: float) -> None:
        """Take one token of a key that may be used `rate` times a second.

        Raises: RateExceededError: there is none, and when there is one.
        """
        most = max(1.0, rate * BURST_S)
        with self._guard:
            now = self._clock.now()
            bucket = self._buckets.get(key, _Bucket(most, now))
            tokens = min(most, bucket.tokens + (now - bucket.at) * rate)
            self._buckets[key] = _Bucket(tokens if tokens < 1 else tokens - 1, now)
        if tokens < 1:
            raise RateExceededError(f"this key may be used {rate:g} times a second", (1 - tokens) / rate)

    def keep(self, keys: set[str]) -> None:
        """Forget the buckets of all other keys."""
        with self._guard:
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if key in keys}
