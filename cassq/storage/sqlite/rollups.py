"""Rollups in a table of a file.

Owns their rows, and that those go which are older than is kept: nothing else deletes them.
"""

import sqlite3
from collections.abc import Sequence
from datetime import date

from cassq.model.rollup import KEPT, NAMES, Rollup, day_of
from cassq.storage.sqlite.rows import Row
from cassq.storage.sqlite.values import decoding, time_ms

_ROLLUP = ", ".join(NAMES)
_SHARD = 0
_INSERT = (
    f"INSERT OR REPLACE INTO statistics (queue, shard, {_ROLLUP})"  # noqa: S608 - our own words
    f" VALUES ({','.join('?' * (2 + len(NAMES)))})"
)
_READ = (
    f"SELECT {_ROLLUP} FROM statistics WHERE queue = ? AND shard = ?"  # noqa: S608
    " AND rolled_up_at_ms >= ? AND rolled_up_at_ms < ?"
    " ORDER BY rolled_up_at_ms, minute_ms, pusher, holder"
)


def write(db: sqlite3.Connection, queue: str, rollups: Sequence[Rollup], now_ms: int) -> None:
    """Keep rollups, and delete those of every queue that are too old."""
    db.executemany(_INSERT, [(queue, _SHARD, *rollup_row(rollup)) for rollup in rollups])
    forgotten = now_ms - round(KEPT.total_seconds() * 1000)
    db.execute("DELETE FROM statistics WHERE rolled_up_at_ms < ?", (forgotten,))


def read(db: sqlite3.Connection, queue: str, day: date) -> list[Row]:
    """Return the rows of one day, the oldest first."""
    return db.execute(_READ, (queue, _SHARD, *day_of(day))).fetchall()


def rollup_row(rollup: Rollup) -> Row:
    """Return the columns of `statistics` after the queue and shard."""
    return tuple(getattr(rollup, name) for name in NAMES)


def to_rollup(row: Row) -> Rollup:
    """Read them back."""
    with decoding("statistics"):
        rolled_up_at_ms, minute_ms, *rest = row
        return Rollup(time_ms(rolled_up_at_ms), time_ms(minute_ms), *rest)
