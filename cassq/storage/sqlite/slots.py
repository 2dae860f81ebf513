"""The rows of slots in the tables of a file.

Owns their rows. What must not break: none is made for a queue that was deleted, also by who has not heard of
it.
"""

import sqlite3
from uuid import UUID

from cassq.model.queue_record import QueueState
from cassq.storage.sqlite.values import blob, decoding

_OF = "incarnation = ? AND slot = ?"
_INSERT = (
    "INSERT OR IGNORE INTO slots (op, incarnation, slot) SELECT ?,?,?"
    " WHERE EXISTS (SELECT 1 FROM queues WHERE incarnation = ? AND state <> ?)"
)


def read(db: sqlite3.Connection, incarnation: UUID, slot: int) -> UUID | None:
    """Return the op of a slot."""
    row = db.execute(f"SELECT op FROM slots WHERE {_OF}", (incarnation.bytes, slot)).fetchone()  # noqa: S608
    if row is None:
        return None
    with decoding("slots"):
        return UUID(bytes=blob(row[0]))


def change(db: sqlite3.Connection, incarnation: UUID, slot: int, seen: UUID | None, op: UUID) -> bool:
    """Insert the row of a slot, or change it; tell whether it was as it was seen."""
    key = op.bytes, incarnation.bytes, slot
    if seen is None:
        return db.execute(_INSERT, (*key, incarnation.bytes, QueueState.DELETED.value)).rowcount == 1
    changed = db.execute(f"UPDATE slots SET op = ? WHERE {_OF} AND op = ?", (*key, seen.bytes))  # noqa: S608
    return changed.rowcount == 1


def delete_all(db: sqlite3.Connection, incarnation: UUID) -> None:
    """Delete the slots of a queue."""
    db.execute("DELETE FROM slots WHERE incarnation = ?", (incarnation.bytes,))
