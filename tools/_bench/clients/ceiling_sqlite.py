"""The ceiling of the embedded store: sqlite3 with cassq's tables and pragmas, and no library in between.

Owns the fewest statements that do the same: one insert for a batch; a read, an update and an insert for a
take; an insert for a mark; a durable commit after each of the three. It has a file of its own.
"""

import os
import sqlite3
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import cassq

_LEASE_MS = 30_000

#: Columns by name: what a schema adds has a default.
_INSERT_HEAD = """
INSERT INTO heads (pipe, op, cursor, read_from, floor, phase, last, skipped, dead, purged, rolled_back)
VALUES (?, ?, 0, 1, 0, 'open', ?, 0, 0, 0, 0)
"""
_INSERT_BATCH = """
INSERT INTO waiting (pipe, first, count, pushed_at_ms, lengths, headers, bodies)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_RUN = """
INSERT INTO runs (
    pipe, first, last, read_from, state, attempt, lease_id, leased_at_ms, lease_ms, not_before_ms, holder,
    rolled_back, window_ms
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_MARK = "INSERT INTO marks (pipe, first, last, ending) VALUES (?, ?, ?, 'committed')"


class RawSqlite:
    """One process that writes a file.

    Args:
        path: the file; cassq makes its tables there first.
    """

    def __init__(self, path: Path) -> None:
        cassq.connect(f"sqlite:///{path}").close()
        self._db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "journal_size_limit=67108864",
            "cache_size=-32768",
        ):
            self._db.execute(f"PRAGMA {pragma}")
        self._pipe = b""
        self._last = 0

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def push(self, bodies: Sequence[bytes], batch: int) -> None:
        """Push batches into a new pipe, each durable before the next."""
        self._pipe, self._last = os.urandom(16), 0
        self._db.execute(_INSERT_HEAD, (self._pipe, b"", 2**63 - 1))
        for begin in range(0, len(bodies), batch):
            part = bodies[begin : begin + batch]
            lengths = array("I", map(len, part)).tobytes()
            row = (self._pipe, self._last + 1, len(part), 0, lengths, None, b"".join(part))
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(_INSERT_BATCH, row)
            self._db.execute("COMMIT")
            self._last += len(part)

    def pop(self, count: int, run_messages: int) -> int:
        """Read, take and mark the messages of the last push."""
        popped: list[bytes] = []
        while len(popped) < count:
            first = len(popped) + 1
            for packed, joined in self._db.execute(
                "SELECT lengths, bodies FROM waiting WHERE pipe = ? AND first >= ? AND first < ? "
                "ORDER BY first",
                (self._pipe, first, first + run_messages),
            ).fetchall():
                ends = accumulate(array("I", packed), initial=0)
                popped += [joined[a:b] for a, b in pairwise(ends)]
            if len(popped) < first:
                raise RuntimeError(f"only {len(popped)} of {count} messages were there")
            self._take(first, len(popped))
        return len(popped)

    def clear(self) -> None:
        """Delete what was pushed; never measured."""
        for table in ("waiting", "heads", "runs", "marks"):
            self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - our own words

    def _take(self, first: int, last: int) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        changed = self._db.execute(
            "UPDATE heads SET op = ?, cursor = ?, read_from = ? WHERE pipe = ? AND cursor = ?",
            (os.urandom(16), last, last + 1, self._pipe, first - 1),
        ).rowcount
        if changed != 1:
            raise RuntimeError("a take was refused, and nobody else is here")
        run = (self._pipe, first, last, first, "leased", 1, os.urandom(16), 0, _LEASE_MS, 0, "raw", 0, 0)
        self._db.execute(_INSERT_RUN, run)
        self._db.execute("COMMIT")
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute(_INSERT_MARK, (self._pipe, first, last))
        self._db.execute("COMMIT")


@dataclass(frozen=True, slots=True)
class RawSqliteOpener:
    """Opens a raw client in whichever process calls it."""

    path: Path

    def __call__(self) -> RawSqlite:
        """Open the file."""
        return RawSqlite(self.path)
