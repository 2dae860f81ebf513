"""Reads of what has too many tombstones for one read: part by part.

Owns where a read is cut. What was deleted has mostly one age, so the first parts are of all ages, down to a
second; a part that is given up is read in halves. What must not break: parts are read in their order, and
nothing between two of them is left out.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from uuid import UUID

from cassq.errors import StorageUnavailableError
from cassq.model.ids import TICKS_BEFORE_1970, TICKS_PER_MS, from_time_key, time_key
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.errors_map import met_tombstones
from cassq.storage.cassandra.session import CassandraSession, Row
from cassq.storage.cassandra.values import to_ms

# Cassandra compares the last eight bytes of two time-UUIDs as signed ones, so places have them turned.
_SIGNS = 0x8080808080808080
_VERSION = 1 << 124

#: The places of all time-UUIDs lie from the one until before the other.
BEGIN, END = _VERSION, 2 * _VERSION

_AGES_MS = tuple(1000 << power for power in range(30, -1, -1))

#: Reads the rows of some places, from the one until before the other.
ReadPart = Callable[[int, int], list[Row]]


def read_in_parts(
    session: CassandraSession, read: ReadPart, low: int, high: int, place_at: Callable[[int], int]
) -> Iterator[list[Row]]:
    """Yield what a read finds from one place until before another, in their order, a part after the other.

    Args:
        place_at: returns the place of a time, in milliseconds since 1970.
    """
    try:
        whole = read(low, high)
    except StorageUnavailableError as error:
        if not met_tombstones(error.__cause__):
            raise
    else:
        yield whole
        return
    now_ms = to_ms(session.execute(cql.READ_CLOCK)[0][0])
    cuts = [cut for age_ms in _AGES_MS if low < (cut := place_at(now_ms - age_ms)) < high]
    parts = list(pairwise([low, *cuts, high]))[::-1]
    while parts:
        low, high = parts.pop()
        try:
            found = read(low, high)
        except StorageUnavailableError as error:
            if not met_tombstones(error.__cause__) or high - low == 1:
                raise
            middle = (low + high) // 2
            parts += [(middle, high), (low, middle)]
        else:
            yield found


def place_of(pipe: UUID) -> int:
    """Return where a time-UUID stands among all of them, in the order of the database."""
    return int.from_bytes(time_key(pipe)) ^ _SIGNS


def uuid_at(place: int) -> UUID:
    """Undo `place_of`."""
    return from_time_key((place ^ _SIGNS).to_bytes(16))


def place_in_time(ms: int) -> int:
    """Return the place before every time-UUID of that time or later."""
    return _VERSION | max(0, ms * TICKS_PER_MS + TICKS_BEFORE_1970) << 64
