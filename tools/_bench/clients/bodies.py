"""The bodies that are pushed, and when.

Owns their content: the first 8 bytes are a number, the rest is noise that no compression makes smaller.
What must not break: the same seed gives the same bodies, and a body of a schedule leaves no earlier than it
is due.
"""

import random
import time
from collections.abc import Iterator, Sequence
from typing import overload

SEED = 5
STAMP_BYTES = 8

# Longer than what any compressor looks back over, so that a repetition is none to it.
_NOISE_BYTES = 1 << 22


def _noise(body_bytes: int) -> bytes:
    if body_bytes < STAMP_BYTES:
        raise ValueError(f"a body of {body_bytes} bytes has no room for its {STAMP_BYTES} bytes of number")
    return random.Random(SEED).randbytes(_NOISE_BYTES + body_bytes)


def stream_bodies(count: int, body_bytes: int) -> Iterator[bytes]:
    """Yield `count` bodies, each different from the others."""
    noise = _noise(body_bytes)
    rest = body_bytes - STAMP_BYTES
    for number in range(count):
        at = number * (rest | 1) % _NOISE_BYTES
        yield number.to_bytes(STAMP_BYTES, "big") + noise[at : at + rest]


def make_bodies(count: int, body_bytes: int) -> list[bytes]:
    """Return `count` bodies at once, so that making them costs the measurement nothing."""
    return list(stream_bodies(count, body_bytes))


def stamp_of(body: bytes) -> int:
    """Return the number at the beginning of a body."""
    return int.from_bytes(body[:STAMP_BYTES], "big")


class Schedule(Sequence[bytes]):
    """Bodies that appear when they are due: reading one waits for its time, and carries that time.

    Who reads them one after the other sends in an open loop: when a send takes long, those that became due
    meanwhile follow at once, and what they waited counts, because it is told from when they were due.

    Args:
        due_ns: when each is due, by `time.monotonic_ns`, which the processes of one machine share.
        body_bytes: their size.
    """

    def __init__(self, due_ns: Sequence[int], body_bytes: int) -> None:
        self._due_ns = due_ns
        self._body_bytes = body_bytes
        self._rest = _noise(body_bytes)[: body_bytes - STAMP_BYTES]

    def __len__(self) -> int:
        return len(self._due_ns)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> "Schedule": ...

    def __getitem__(self, index: int | slice) -> "bytes | Schedule":
        if isinstance(index, slice):
            return Schedule(self._due_ns[index], self._body_bytes)
        due_ns = self._due_ns[index]
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        return due_ns.to_bytes(STAMP_BYTES, "big") + self._rest


def steady(begin_ns: int, rate: float, seconds: float) -> list[int]:
    """Return when each message of a steady flow is due."""
    gap_ns = 1e9 / rate
    return [begin_ns + round(number * gap_ns) for number in range(round(rate * seconds))]


def spaced(begin_ns: int, count: int, low_s: float, high_s: float) -> list[int]:
    """Return times with a pause of `low_s` to `high_s` before each, so that no habit falls into step."""
    draw = random.Random(SEED)
    due, at_ns = [], begin_ns
    for _ in range(count):
        at_ns += round(draw.uniform(low_s, high_s) * 1e9)
        due.append(at_ns)
    return due
