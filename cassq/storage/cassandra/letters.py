"""Dead letters among the traces of those that were removed.

A removal leaves a tombstone for a day, and a node gives a read up that meets more than 100 000 of them
(`tombstone_failure_threshold`): nothing behind them could be read. Owns that stretches of numbers are removed
as one, and that a read that was given up is cut into smaller ones.
"""

from collections.abc import Iterable, Iterator
from uuid import UUID

from cassq.limits import NO_LIMIT, SEQ_MAX
from cassq.model.ids import MessageId
from cassq.model.ranges import Ranges
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.in_parts import BEGIN, END, place_in_time, place_of, read_in_parts, uuid_at
from cassq.storage.cassandra.session import CassandraSession, Row, Work
from cassq.storage.cassandra.statement import Statement

# A range costs a reader two tombstones, and many ranges in one memtable make each further write slower.
_STRETCH_MIN = 10

_BEGIN, _END = BEGIN << 63, (END << 63) - 1


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
    session: CassandraSession, statement: Statement, queue: str, between: tuple[int, int], limit: int
) -> list[Row]:
    """Return what a statement finds between two places, up to `limit` rows, in their order."""
    found: list[Row] = []

    def read(low: int, high: int) -> list[Row]:
        values = queue, cql.SHARD, *_letter_at(low), *_letter_at(high), limit - len(found)
        return session.execute(statement, values)

    for part in read_in_parts(session, read, *between, lambda ms: place_in_time(ms) << 63):
        found += part
        if len(found) >= limit:
            break
    return found


def _place_of(letter: MessageId) -> int:
    """Return where a letter stands in its table, as one number."""
    return place_of(letter.pipe) << 63 | letter.seq


def _letter_at(place: int) -> MessageId:
    return MessageId(uuid_at(place >> 63), place & SEQ_MAX)
