"""Dead letters, and the traces of those that were removed, in the tables of a file.

A burial may be repeated by an owner that was cut short or frozen, and a popper may bury that has not heard of
a deleted queue. Owns that a letter that was removed leaves a trace. What must not break: no letter comes back
while its trace stands.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from cassq.model.ids import MessageId, time_key
from cassq.storage.forms import DeadLetter
from cassq.storage.sqlite import rows

#: A trace is kept for as long as its pipe, and for a day as Cassandra keeps a deletion.
REMOVED_KEPT_MS = 24 * 3600 * 1000

_LETTER = "pipe, seq, body, headers, pushed_at_ms, attempts, reason, died_at_ms, priority, type, key"
_REMOVE = (
    "UPDATE dead SET removed = 1, body = x'', headers = '{}', died_at_ms = ?"
    " WHERE queue = ? AND shard = 0 AND pipe = ?"
)
#: The trace of a whole pipe, where no letter stands.
_OF_DELETED = "queue = ? AND shard = 0 AND pipe = ? AND seq = 0"
_DELETED = (
    "INSERT OR REPLACE INTO dead"
    " (queue, pipe, seq, body, headers, pushed_at_ms, attempts, reason, died_at_ms, removed)"
    " VALUES (?,?,0,x'','{}',0,0,'',?,1)"
)
#: Above every key of a pipe: those are time-UUIDs.
_BEHIND_ALL = b"\xff"


def read(
    db: sqlite3.Connection, queue: str, after: MessageId | None, until: MessageId | None, limit: int
) -> list[tuple[Any, ...]]:
    """Return up to `limit` letters behind `after`, up to `until`, in the order of their ids."""
    first = (time_key(after.pipe), after.seq) if after else (b"", 0)
    last = (time_key(until.pipe), until.seq) if until else (_BEHIND_ALL, 0)
    return db.execute(
        f"SELECT {_LETTER} FROM dead WHERE queue = ? AND shard = 0"  # noqa: S608 - our own words
        " AND NOT removed AND (pipe, seq) > (?, ?) AND (pipe, seq) <= (?, ?)"
        " ORDER BY pipe, seq LIMIT ?",
        (queue, *first, *last, limit),
    ).fetchall()


def count(db: sqlite3.Connection, queue: str, limit: int) -> int:
    """Return how many letters there are, counted up to `limit`."""
    wanted = "SELECT 1 FROM dead WHERE queue = ? AND shard = 0 AND NOT removed LIMIT ?"
    return int(db.execute(f"SELECT count(*) FROM ({wanted})", (queue, limit)).fetchone()[0])  # noqa: S608


def add(db: sqlite3.Connection, queue: str, added: Sequence[DeadLetter], now_ms: int) -> None:
    """Add letters, but none where a trace stands."""
    db.executemany(
        f"INSERT INTO dead (queue, {_LETTER}) SELECT ?,?,?,?,?,?,?,?,?,?,?,?"  # noqa: S608 - our own words
        f" WHERE NOT EXISTS (SELECT 1 FROM dead WHERE {_OF_DELETED})"
        " ON CONFLICT DO UPDATE SET body = excluded.body, headers = excluded.headers,"
        " pushed_at_ms = excluded.pushed_at_ms, attempts = excluded.attempts,"
        " reason = excluded.reason, died_at_ms = excluded.died_at_ms,"
        " priority = excluded.priority, type = excluded.type, key = excluded.key WHERE NOT removed",
        [
            (queue, *rows.letter_row(letter, now_ms), queue, time_key(letter.message_id.pipe))
            for letter in added
        ],
    )


def remove(
    db: sqlite3.Connection, queue: str, removed: Sequence[MessageId], pipes: Sequence[UUID], now_ms: int
) -> None:
    """Remove letters, and every letter of some pipes; each leaves a trace."""
    db.executemany(
        f"{_REMOVE} AND seq = ?", [(now_ms, queue, time_key(each.pipe), each.seq) for each in removed]
    )
    db.executemany(f"{_REMOVE} AND NOT removed", [(now_ms, queue, time_key(each)) for each in pipes])
    db.executemany(_DELETED, [(queue, time_key(each), now_ms) for each in pipes])


def forget_removed(db: sqlite3.Connection, now_ms: int) -> None:
    """Delete old traces of pipes that are gone, too: nobody can be burying there."""
    db.execute(
        "DELETE FROM dead WHERE removed AND died_at_ms < ?"
        " AND NOT EXISTS (SELECT 1 FROM heads WHERE heads.pipe = dead.pipe)",
        (now_ms - REMOVED_KEPT_MS,),
    )
