"""Messages of one `publish_many`, by partition, until there are enough of one for a batch.

Owns what waits for more of its partition. What must not break: those of one partition keep their order; of a
call that has a number all of them stay together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cassq.errors import InvalidOptionError
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, MIB
from cassq.model.message import Headers, size_of

#: So much waits at most, over all partitions: then the fullest one is published.
WAITING_BYTES_MAX = 16 * MIB

#: What one number has in one partition at most. One transaction links it, once its bodies are written; where
#: others publish meanwhile it is refused, and they are written anew.
NUMBERED_MESSAGES_MAX = 100_000
NUMBERED_BYTES_MAX = 16 * MIB


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

    def check(self) -> None:
        """Check that one number may have all of it.

        Raises: InvalidOptionError.
        """
        if _is_over(len(self.bodies), self.size):
            raise InvalidOptionError(
                f"partition {self.partition} would get more than {NUMBERED_MESSAGES_MAX} messages or "
                f"{NUMBERED_BYTES_MAX // MIB} MiB of one number: nothing is published; give each part of it "
                "a number of its own"
            )


def is_too_much(messages: Sequence[tuple[bytes, Headers]]) -> bool:
    """Tell whether messages of one partition are more than one number may have."""
    return _is_over(len(messages), sum(size_of(body, headers) for body, headers in messages))


def _is_over(count: int, size: int) -> bool:
    return count > NUMBERED_MESSAGES_MAX or size > NUMBERED_BYTES_MAX


class Spreading:
    """Spreads messages over partitions.

    Args:
        partition_of: returns the partition of a message, by its headers.
        is_whole: nothing is enough before all is there.
    """

    def __init__(self, partition_of: Callable[[Headers], int], *, is_whole: bool = False) -> None:
        self._partition_of = partition_of
        self._is_whole = is_whole
        self._waiting: dict[int, Lot] = {}
        self._size = 0

    def add(self, bodies: Sequence[bytes], headers: Sequence[Headers]) -> Iterator[Lot]:
        """Take messages in; yield what is enough for a batch.

        Raises: InvalidOptionError: what is to stay together is too much for one transaction.
        """
        for body, header in zip(bodies, headers, strict=True):
            partition, size = self._partition_of(header), size_of(body, header)
            lot = self._waiting.get(partition)
            if lot and not self._is_whole and not lot.has_room(size):
                yield self._take(lot)
                lot = None
            if lot is None:
                lot = self._waiting[partition] = Lot(partition)
            lot.bodies.append(body)
            lot.headers.append(header)
            lot.size += size
            self._size += size
            if self._is_whole:
                lot.check()
            elif self._size > WAITING_BYTES_MAX:
                yield self._take(max(self._waiting.values(), key=lambda each: each.size))

    def rest(self) -> Iterator[Lot]:
        """Yield what is left."""
        for lot in list(self._waiting.values()):
            yield self._take(lot)

    def _take(self, lot: Lot) -> Lot:
        del self._waiting[lot.partition]
        self._size -= lot.size
        return lot
