"""Messages of one `publish_many`, by partition, until there are enough of one for a batch.

Owns what waits for more of its partition. What must not break: those of one partition keep their order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, MIB
from cassq.model.message import Headers, size_of

#: So much waits at most, over all partitions: then the fullest one is published.
WAITING_BYTES_MAX = 16 * MIB


@dataclass(slots=True)
class Lot:
    """Messages of one partition."""

    partition: int
    bodies: list[bytes] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    size: int = 0

    def has_room(self, size: int) -> bool:
        """Tell whether a message of that size goes into the same batch."""
        return len(self.bodies) < BATCH_MESSAGES_MAX and self.size + size <= BATCH_BYTES_MAX


class Spreading:
    """Spreads messages over partitions.

    Args:
        partition_of: returns the partition of a message, by its headers.
    """

    def __init__(self, partition_of: Callable[[Headers], int]) -> None:
        self._partition_of = partition_of
        self._waiting: dict[int, Lot] = {}
        self._size = 0

    def add(self, bodies: Sequence[bytes], headers: Sequence[Headers]) -> Iterator[Lot]:
        """Take messages in; yield what is enough for a batch."""
        for body, header in zip(bodies, headers, strict=True):
            partition, size = self._partition_of(header), size_of(body, header)
            lot = self._waiting.get(partition)
            if lot and not lot.has_room(size):
                yield self._take(lot)
                lot = None
            if lot is None:
                lot = self._waiting[partition] = Lot(partition)
            lot.bodies.append(body)
            lot.headers.append(header)
            lot.size += size
            self._size += size
            if self._size > WAITING_BYTES_MAX:
                yield self._take(max(self._waiting.values(), key=lambda each: each.size))

    def rest(self) -> Iterator[Lot]:
        """Yield what is left."""
        for lot in list(self._waiting.values()):
            yield self._take(lot)

    def _take(self, lot: Lot) -> Lot:
        del self._waiting[lot.partition]
        self._size -= lot.size
        return lot
