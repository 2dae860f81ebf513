"""What clients of any kind are told to do, each with the time it took.

Owns the pieces of work that every contestant can do; `cassq_work.py` has those of cassq alone. Bodies are
made before the clock starts. The rule: work that falls short raises, so that nobody is fast by doing less.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from _bench.clients.bodies import Schedule, make_bodies, stamp_of
from _bench.clients.client_process import Spent, timed
from _bench.clients.contestant import Client
from _bench.measuring.percentiles import Latencies

_PATIENCE_NS = 30_000_000_000


@runtime_checkable
class SendsAhead(Protocol):
    """A client that can send without waiting for what it sent before; `push_each` cannot.

    With it a schedule is kept even where one confirmed push takes longer than the gap between two.
    """

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """Send each body when it is read from `bodies`; return when all are confirmed."""


class Replays(Client, Protocol):
    """A client of a log, which keeps what was read."""

    def replay(self, count: int, batch: int) -> int:
        """Read `count` messages from the beginning, `batch` at a time; return how many there were."""


def push_batches(client: Client, count: int, body_bytes: int, batch: int) -> Spent:
    """Push `count` messages in confirmed batches."""
    bodies = make_bodies(count, body_bytes)
    return timed(count, lambda: client.push_batches(bodies, batch))


def pop_batches(client: Client, count: int, batch: int) -> Spent:
    """Pop and acknowledge `count` messages."""
    return _timed_in_full(count, lambda: client.pop_batches(count, batch))


def replay(client: Replays, count: int, batch: int) -> Spent:
    """Read `count` messages from the beginning."""
    return _timed_in_full(count, lambda: client.replay(count, batch))


def _timed_in_full(count: int, read: Callable[[], int]) -> Spent:
    found = 0

    def work() -> None:
        nonlocal found
        found = read()

    spent = timed(count, work)
    if found < count:
        raise RuntimeError(f"only {found} of {count} messages came")
    return spent


def push_each(client: Client, count: int, body_bytes: int) -> Spent:
    """Push `count` messages, each confirmed before the next."""
    bodies = make_bodies(count, body_bytes)
    return timed(count, lambda: client.push_each(bodies))


def push_on_schedule(client: Client, due_ns: Sequence[int], body_bytes: int) -> Spent:
    """Push a message at each of the times, or as soon after it as the client can."""
    bodies = Schedule(due_ns, body_bytes)
    push = client.push_ahead if isinstance(client, SendsAhead) else client.push_each
    return timed(len(bodies), lambda: push(bodies))


def pop_on_time(client: Client, count: int, count_from_ns: int, until_ns: int) -> bytes:
    """Pop `count` messages as they come and return how long after their stamp each was here.

    Args:
        client: pops.
        count: how many there will be.
        count_from_ns: what was due before is not counted, but popped.
        until_ns: when the last is due; half a minute later it gives up.
    """
    latencies = Latencies()
    popped = 0

    def seen(body: bytes) -> None:
        nonlocal popped
        now_ns = time.monotonic_ns()
        popped += 1
        due_ns = stamp_of(body)
        if due_ns >= count_from_ns:
            latencies.note_ns(now_ns - due_ns)

    client.pop_each(seen, lambda: popped >= count or time.monotonic_ns() > until_ns + _PATIENCE_NS)
    if popped < count:
        raise RuntimeError(f"only {popped} of {count} messages came")
    return latencies.encode()
