"""Those who wait for one batch: its requests, in their order.

Owns what each of them is told, and how long they can wait. Refuses to know how a batch is stored. What must
not break: who has no time left is told at once, whatever the others wait for.
"""

from itertools import chain
from uuid import UUID

from cassq.errors import CassqError
from cassq.model.message import Batch, pack_headers
from cassq.pushing.push_request import PushRequest
from cassq.runtime.clock import Clock
from cassq.runtime.deadline import Deadline

#: A call to the database gets so long, however little time the callers have left.
CALL_S = 0.5


class Callers:
    """The callers of requests that are not finished."""

    __slots__ = ("_clock", "_requests")

    def __init__(self, requests: list[PushRequest], clock: Clock) -> None:
        self._requests = requests
        self._clock = clock

    def still_wait(self) -> bool:
        """Leave out who was told; tell whether anybody is left. Not while a batch of theirs is on its way."""
        self._requests = [request for request in self._requests if not request.is_finished]
        return bool(self._requests)

    @property
    def count(self) -> int:
        """How many messages they wait for."""
        count = 0
        for request in self._requests:  # one mostly, for which a generator would cost more than the sum
            count += request.count
        return count

    @property
    def size(self) -> int:
        """How many bytes these have."""
        size = 0
        for request in self._requests:
            size += request.size
        return size

    @property
    def due_ms(self) -> int:
        """When the first of these is due; 0 for at once."""
        return min((min(request.dues) for request in self._requests if request.dues), default=0)

    @property
    def deadline(self) -> float:
        """When the first of those who still wait has no time left."""
        deadline = float("inf")
        for request in self._requests:
            if request.deadline < deadline and not request.is_finished:
                deadline = request.deadline
        return deadline

    def in_time(self) -> Deadline:
        """Bound a call by the first caller who has no time left; once all of them are told, by nothing.

        A call has a moment all the same: one caller in a hurry must not spoil the batch for the others.
        """
        until = self.deadline
        return Deadline(until if until == float("inf") else max(until, self._clock.now() + CALL_S))

    def batch(self, first: int) -> Batch:
        """Return their messages, numbered from `first` on."""
        bodies = tuple(chain.from_iterable(request.bodies for request in self._requests))
        headers = pack_headers(chain.from_iterable(request.headers for request in self._requests))
        ttl_ms, dues = self._requests[0].label.ttl_ms, None
        if self._requests[0].dues:
            dues = tuple(chain.from_iterable(request.dues for request in self._requests))
        keys = None
        if self._requests[0].keys:
            keys = tuple(chain.from_iterable(request.keys for request in self._requests))
        return Batch(first, bodies, headers, len(bodies), ttl_ms=ttl_ms, dues=dues, keys=keys)

    def store(self, pipe: UUID, batch: Batch, reached: int) -> int:
        """Tell which of their messages are stored: those up to number `reached`; return how many."""
        seq = batch.first
        for request in self._requests:
            count = request.count
            request.store(pipe, seq, max(0, min(count, reached - seq + 1)))
            seq += count
        return max(0, min(reached, batch.last) - batch.first + 1)

    def fail(self, error: CassqError, *, only_late: bool = False) -> None:
        """Tell an error to all of them, or only to those who have no time left."""
        now = self._clock.now() if only_late else float("inf")
        for request in self._requests:
            if request.deadline <= now:
                request.fail(error)
