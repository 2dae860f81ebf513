"""The lists of pipes on Cassandra: which rows an entry is, and in which order they are written.

Owns where each list stands: a partition of `pipes`, or of `staged`, whose deletions are kept for longer. An
older cassq reads, and stages, in partitions of `pipes` alone: shard 0 is what its poppers see, shard -1 what
it staged. It gets a copy of what is staged there; what it does not know stands where it never looks.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from uuid import UUID

from cassq.model.ids import OLDEST, time_key
from cassq.model.pipe import PipeEntry
from cassq.model.shelf import Shelf
from cassq.storage.cassandra import rows
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.in_parts import BEGIN, END, place_in_time, place_of, read_in_parts, uuid_at
from cassq.storage.cassandra.session import CassandraSession, Row, Work
from cassq.storage.cassandra.statement import Statement

#: By list the shard of its partition.
_SHARDS = {
    Shelf.READY: cql.SHARD,
    Shelf.DUE: 1,
    Shelf.KEYED: 4,
    Shelf.SCHEDULED: 2,
    Shelf.MOVED: 3,
    Shelf.STAGED: cql.SHARD,
    Shelf.SORTED: 1,
}

#: Until schema version 5 what is staged was listed here, in `pipes`. An older cassq that runs beside lists it
#: here, and looks here for what was decided: so it gets copies, which are told by their lane.
STAGED_SHARD = -1
_COPY_LANE = 2**31 - 1

#: The lists whose deletions are kept for longer than nodes keep hints.
_STAGED = {Shelf.STAGED, Shelf.SORTED}


def listing(queue: str, entries: Sequence[PipeEntry], shelf: Shelf) -> list[list[Work]]:
    """Return what inserts entries, one step after the other."""
    insert = cql.INSERT_STAGED if shelf in _STAGED else cql.INSERT_ENTRY
    steps: list[list[Work]] = [
        [(insert, (queue, _SHARDS[shelf], *rows.entry_values(entry))) for entry in entries]
    ]
    if shelf is Shelf.STAGED:
        copies = [rows.entry_values(replace(entry, lane=_COPY_LANE)) for entry in entries]
        steps.append([(cql.INSERT_ENTRY, (queue, STAGED_SHARD, *copy)) for copy in copies])
    return steps


def unlisting(queue: str, pipes: Sequence[UUID], shelf: Shelf) -> list[list[Work]]:
    """Return what deletes entries, one step after the other."""
    delete = cql.DELETE_STAGED if shelf in _STAGED else cql.DELETE_ENTRY
    steps: list[list[Work]] = [[(delete, (queue, _SHARDS[shelf], pipe)) for pipe in pipes]]
    if shelf is Shelf.STAGED:
        # The copy before the entry: of whoever is stopped in between, the entry is found again.
        steps.insert(0, [(cql.DELETE_ENTRY, (queue, STAGED_SHARD, pipe)) for pipe in pipes])
    return steps


def read(
    session: CassandraSession, queue: str, shelf: Shelf, since: UUID | None, until: UUID | None
) -> tuple[Sequence[Row], tuple[PipeEntry, ...]]:
    """Read a list; return its rows, each with the clock at its end, and its entries."""
    key = queue, _SHARDS[shelf]
    found = _read(session, cql.READ_STAGED if shelf in _STAGED else cql.READ_ENTRIES, key, since, until)
    entries = [rows.to_entry(row[:-1], shelf) for row in found]
    if shelf is Shelf.STAGED:
        # Also what an older cassq staged; but not the copies that are made for it: one whose entry is gone is
        # one whose deletion was forgotten, and tells nothing.
        beside = _read(session, cql.READ_ENTRIES, (queue, STAGED_SHARD), since, until)
        copies = [rows.to_entry(row[:-1], shelf) for row in beside]
        entries += [entry for entry in copies if entry.lane != _COPY_LANE]
        entries.sort(key=lambda entry: time_key(entry.pipe))
        found = found or beside
    return found, tuple(entries)


def _read(
    session: CassandraSession,
    statements: dict[str, Statement],
    key: tuple[str, int],
    since: UUID | None,
    until: UUID | None,
) -> Sequence[Row]:
    low = BEGIN if since is None else place_of(since)
    high = END if until is None else place_of(until) + 1

    def read(begin: int, end: int) -> list[Row]:
        first = since if begin == low else uuid_at(begin)
        last = until if end == high else uuid_at(end - 1)
        if last is not None:
            return session.execute(statements[cql.BETWEEN], (*key, first or OLDEST, last))
        if first is not None:
            return session.execute(statements[cql.SINCE], (*key, first))
        return session.execute(statements[cql.WHOLE], key)

    return list(chain.from_iterable(read_in_parts(session, read, low, high, place_in_time)))
