"""Dead letters among the traces of those that were removed.

A removal leaves a tombstone for a day, and a node gives a read up that meets more than 100 000 of them
(`tombstone_failure_threshold`): nothing behind them could be read. Owns that stretches of numbers are removed
as one, and how a read that was given up is cut into smaller ones. What must not break: parts are read in
their order, and nothing between two of them is left out.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from uuid import UUID

from cassq.errors import StorageUnavailableError
from cassq.limits import NO_LIMIT, SEQ_MAX
from cassq.model.ids import TICKS_BEFORE_1970, TICKS_PER_MS, MessageId, from_time_key, time_key
from cassq.model.ranges import Ranges
from cassq.storage.cassandra import rows
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.errors_map import met_tombstones
from cassq.storage.cassandra.session import CassandraSession, Row, Work

# A range costs a reader two tombstones, and many ranges in one memtable make each further write slower.
_STRETCH_MIN = 10

# Cassandra compares the last eight bytes of two time-UUIDs as signed ones, so places have them turned.
_SIGNS = 0x8080808080808080
_VERSION = 1 << 124
_BEGIN = _VERSION << 63
_END = 2 * _BEGIN - 1

_AGES_MS = tuple(1000 << power for power in range(30, -1, -1))


def removals(queue: str, removed: Iterable[MessageId], pipes: Iterable[UUID]) -> Iterator[Work]:
    """Yield the writes that remove letters, and those that remove every letter of a pipe."""
    numbers: dict[UUID, Ranges] = {}
    for pipe, seq in removed:
        numbers.setdefault(pipe, Ranges()).add(seq, seq)
    for pipe, stretches in numbers.items():
        for part in stretches:
            if part.size >= _STRETCH_MIN:
                yield cql.DELETE_DEAD_STRETCH, (queue, cql.SHARD, pipe, *part)
            else:
                for seq in range(part.first, part.last + 1):
                    yield cql.DELETE_DEAD, (queue, cql.SHARD, pipe, seq)
    for pipe in pipes:
        yield cql.DELETE_DEAD_STRETCH, (queue, cql.SHARD, pipe, 0, NO_LIMIT)


def count_letters(session: CassandraSession, queue: str, limit: int) -> int:
    """Return how many letters there are, counted up to `limit`."""
    return len(_read_parts(session, cql.COUNT_DEAD, queue, (_BEGIN, _END), limit))


def read_letters(
    session: CassandraSession, queue: str, after: MessageId | None, until: MessageId | None, limit: int
) -> list[Row]:
    """Return up to `limit` letters behind `after`, up to `until`, in the order of their ids."""
    low = _BEGIN if after is None else _place_of(after)
    high = _END if until is None else _place_of(until)
    return _read_parts(session, cql.READ_DEAD, queue, (low, high), limit)


def _read_parts(
    session: CassandraSession, statement: cql.Statement, queue: str, between: tuple[int, int], limit: int
) -> list[Row]:
    """Return what a statement finds between two places, up to `limit` rows, in their order.

    Where there are too many tombstones for one read, it reads on part by part, in halves of a part that is
    given up. Removed letters have mostly one age, so the first parts are of all ages, down to a second.
    """
    low, high = between
    try:
        return _read(session, statement, queue, (low, high), limit)
    except StorageUnavailableError as error:
        if not met_tombstones(error.__cause__):
            raise
    now_ms = rows.to_ms(session.execute(cql.READ_CLOCK)[0][0])
    cuts = [cut for age_ms in _AGES_MS if low < (cut := _place_in_time(now_ms - age_ms)) < high]
    parts = list(pairwise([low, *cuts, high]))[::-1]
    found: list[Row] = []
    while parts and len(found) < limit:
        low, high = parts.pop()
        try:
            found += _read(session, statement, queue, (low, high), limit - len(found))
        except StorageUnavailableError as error:
            if not met_tombstones(error.__cause__) or high - low == 1:
                raise
            middle = (low + high) // 2
            parts += [(middle, high), (low, middle)]
    return found


def _read(
    session: CassandraSession, statement: cql.Statement, queue: str, between: tuple[int, int], limit: int
) -> list[Row]:
    values = (queue, cql.SHARD, *_letter_at(between[0]), *_letter_at(between[1]), limit)
    return session.execute(statement, values)


def _place_of(letter: MessageId) -> int:
    """Return where a letter stands in its table, as one number."""
    return (int.from_bytes(time_key(letter.pipe)) ^ _SIGNS) << 63 | letter.seq


def _letter_at(place: int) -> MessageId:
    return MessageId(from_time_key((place >> 63 ^ _SIGNS).to_bytes(16)), place & SEQ_MAX)


def _place_in_time(ms: int) -> int:
    """Return the place before every letter whose pipe was made at that time or later."""
    return (_VERSION | max(0, ms * TICKS_PER_MS + TICKS_BEFORE_1970) << 64) << 63
