"""Runs and marks of a pipe in the embedded store, by their numbers.

Owns the two reads. Refuses to know heads. What must not break: both are of one transaction of SQLite's.
"""

import sqlite3

from cassq.model.pipe import Mark, Run
from cassq.storage.sqlite import rows
from cassq.storage.sqlite.transactions import RUN_COLUMNS


def read(
    db: sqlite3.Connection, key: bytes, first: int, last: int
) -> tuple[tuple[Run, ...], tuple[Mark, ...]]:
    """Return the runs that are not empty, and the marks, that begin from `first` to `last` (included)."""
    within = "WHERE pipe = ? AND first BETWEEN ? AND ? ORDER BY first"
    values = (key, first, last)
    runs = db.execute(f"SELECT {RUN_COLUMNS} FROM runs {within}", values).fetchall()  # noqa: S608 - our words
    marks = db.execute(
        f"SELECT first, last, ending, target, attempt, ended_at_ms FROM marks {within}",  # noqa: S608 - as above
        values,
    ).fetchall()
    return tuple(run for run in map(rows.to_run, runs) if not run.is_empty), tuple(map(rows.to_mark, marks))
