"""The lists of pipes in a table of a file.

Owns where each list stands: under a shard of its own, of which an older cassq reads those that it knows.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from cassq.model.ids import time_key
from cassq.model.pipe import PipeEntry
from cassq.model.shelf import Shelf
from cassq.storage.sqlite.rows import entry_row

_SHARDS = {
    Shelf.READY: 0,
    Shelf.DUE: 1,
    Shelf.KEYED: 4,
    Shelf.SCHEDULED: 2,
    Shelf.MOVED: 3,
    Shelf.STAGED: -1,
    Shelf.SORTED: -2,
}
_INSERT = (
    "INSERT OR IGNORE INTO pipes"
    " (queue, shard, pipe, pusher, priority, lane, created_at_ms, type, due_class, moved_from, slot)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?)"
)
_READ = (
    "SELECT pipe, pusher, priority, lane, created_at_ms, type, due_class, moved_from, slot"
    " FROM pipes WHERE queue = ? AND shard = ? AND pipe >= ? AND pipe <= ? ORDER BY pipe"
)


def add(db: sqlite3.Connection, queue: str, entries: Sequence[PipeEntry], shelf: Shelf, now_ms: int) -> None:
    """Insert entries into a list; those that it has stay as they are."""
    db.executemany(_INSERT, [(queue, _SHARDS[shelf], *entry_row(entry, now_ms)) for entry in entries])


def read(
    db: sqlite3.Connection, queue: str, shelf: Shelf, since: UUID | None, until: UUID | None
) -> list[tuple[Any, ...]]:
    """Return the rows of a list, the oldest pipe first."""
    bounds = time_key(since) if since else b"", time_key(until) if until else b"\xff" * 16
    return db.execute(_READ, (queue, _SHARDS[shelf], *bounds)).fetchall()


def remove(db: sqlite3.Connection, queue: str, pipes: Iterable[UUID], shelf: Shelf) -> None:
    """Delete entries from a list."""
    keys = [(queue, _SHARDS[shelf], time_key(pipe)) for pipe in pipes]
    db.executemany("DELETE FROM pipes WHERE queue = ? AND shard = ? AND pipe = ?", keys)
