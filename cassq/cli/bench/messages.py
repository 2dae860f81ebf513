"""The messages of `cassq bench`: numbered bodies, and which of them came.

Owns what stands in a body: 8 bytes of number, then noise. What must not break: a message that is missing,
came twice or was never pushed is an error, so that no figure stands for less than it says.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import cassq
from cassq.limits import MIB

#: What the number takes; a body is at least as long.
NUMBER_BYTES = 8

#: Always the same noise: two runs push the same bytes.
SEED = 20

#: An error names at most so many of them.
_NAMED_MAX = 5


class BenchFailedError(cassq.CassqError):
    """Raised when a measurement could not be brought to its end, or messages were lost or doubled."""

    code = "bench-failed"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Attributes:
        messages: pushed, and then popped, as fast as it goes.
        rate, seconds: of the steady flow whose latencies are taken, in messages per second.
        patience_s: without a message for so long, what has not come counts as missing. Longer than the lease:
            what came back must be told as that.
    """

    messages: int
    body_bytes: int
    rate: int
    seconds: int
    patience_s: float = 45.0


def numbered_bodies(count: int, body_bytes: int) -> Iterator[bytes]:
    """Return bodies with the numbers 0 … count - 1; each is made when it is asked for."""
    rest = body_bytes - NUMBER_BYTES
    # Here, not when the first one is asked for: that would be within the time that is taken.
    noise = random.Random(SEED).randbytes(MIB + rest)

    def bodies() -> Iterator[bytes]:
        for number in range(count):
            # Neighbours share no byte of it: compression on the way to the disk gains nothing.
            at = number * rest % MIB
            yield number.to_bytes(NUMBER_BYTES, "big") + noise[at : at + rest]

    return bodies()


def number_of(body: bytes) -> int:
    """Return the number in a body."""
    return int.from_bytes(body[:NUMBER_BYTES], "big")


class Tally:
    """Which of the messages 0 … expected - 1 came, and how often; one byte each.

    Attributes:
        count: how many came, each time counted.
    """

    def __init__(self, expected: int) -> None:
        self._times = bytearray(expected)
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether as many came as were pushed."""
        return self.count >= len(self._times)

    def note(self, number: int) -> None:
        """Count a message.

        Raises: BenchFailedError: it was never pushed.
        """
        if number >= len(self._times):
            raise BenchFailedError(f"a message came that was never pushed: it begins with number {number}")
        self._times[number] = min(2, self._times[number] + 1)
        self.count += 1

    def check(self) -> None:
        """See that each came once.

        Raises: BenchFailedError: it says how many are missing or came twice, and which.
        """
        wrong = [
            f"{len(numbers)} {what} (number {', '.join(map(str, numbers[:_NAMED_MAX]))}"
            f"{', …' if len(numbers) > _NAMED_MAX else ''})"
            for what, numbers in (("never came", self._that_came(0)), ("came twice", self._that_came(2)))
            if numbers
        ]
        if wrong:
            raise BenchFailedError(f"of {len(self._times)} messages {', '.join(wrong)}: no figure counts")

    def _that_came(self, times: int) -> list[int]:
        if times not in self._times:
            return []
        return [number for number, found in enumerate(self._times) if found == times]
