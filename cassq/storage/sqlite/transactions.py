"""The SQL of a transaction on the embedded store.

Owns one UPDATE for each kind of head change, with its condition in the WHERE clause: no row changed means
refused. `cassq.model.transaction` tells what each kind asks for.
"""

from collections.abc import Iterable
from typing import assert_never

from cassq.limits import NO_LIMIT, UNDECIDED
from cassq.model.ids import time_key
from cassq.model.pipe import Mark, Phase
from cassq.model.transaction import Advance, Cancel, Drain, ForceSeal, HeadChange, Retire, RunChange, Seal
from cassq.storage.sqlite.rows import Row, journal_row, run_row

RUN_COLUMNS = (
    "first, last, read_from, state, attempt, lease_id, leased_at_ms, lease_ms, not_before_ms, holder,"
    " rolled_back, window_ms, reason, past"
)

_PLACE = "journal = ?, journal_from = ?, journal_kind = ?"

# What tells where messages were moved stands whatever lands later.
MARK = (
    "INSERT INTO marks (pipe, first, last, ending, target, attempt, ended_at_ms)"
    " SELECT ?,?,?,?,?,?,? WHERE EXISTS (SELECT 1 FROM heads WHERE pipe = ?)"
    " ON CONFLICT (pipe, first) DO UPDATE SET last = excluded.last, ending = excluded.ending,"
    " target = excluded.target, attempt = excluded.attempt, ended_at_ms = excluded.ended_at_ms"
    " WHERE ending <> 'moved' AND (excluded.ending = 'moved'"
    " OR (excluded.last, excluded.attempt, excluded.ending) > (last, attempt, ending))"
)


def mark_rows(key: bytes, marks: Iterable[Mark], now_ms: int) -> list[Row]:
    """Return the values of `MARK`, for each of several marks."""
    return [_mark_row(key, mark, now_ms) for mark in marks]


def _mark_row(key: bytes, mark: Mark, now_ms: int) -> Row:
    target = None if mark.target is None else time_key(mark.target)
    ended_at_ms = None if mark.ended_at_ms is None else now_ms
    return key, mark.first, mark.last, mark.end.value, target, mark.attempt, ended_at_ms, key


def head_update(key: bytes, change: HeadChange) -> tuple[str, Row]:
    """Return what follows `UPDATE heads SET`, and its values."""
    sealed = Phase.SEALED.value
    match change:
        case Advance(seen_op, head):
            columns = "op = ?, cursor = ?, read_from = ?, floor = ?, skipped = ?, dead = ?, purged = ?"
            return (
                f"{columns}, rolled_back = ?, expired = ? WHERE pipe = ? AND op = ? AND last >= ?",
                (
                    *(head.op.bytes, head.cursor, head.read_from, head.floor, head.skipped),
                    *(head.dead, head.purged, head.rolled_back, head.expired),
                    *(key, seen_op.bytes, head.cursor),
                ),
            )
        case Seal(last, is_free):
            return (
                "last = ?, phase = ? WHERE pipe = ? AND last = ? AND cursor <= ?",
                (last, sealed, key, UNDECIDED, NO_LIMIT if is_free else last),
            )
        case ForceSeal(seen_op, op):
            return "op = ?, phase = ? WHERE pipe = ? AND op = ?", (op.bytes, sealed, key, seen_op.bytes)
        case Drain(seen_op, op, last):
            return (
                "op = ?, last = ? WHERE pipe = ? AND op = ? AND last = ?",
                (op.bytes, last, key, seen_op.bytes, UNDECIDED),
            )
        case Retire(seen_op, op, journal):
            return (
                f"op = ?, phase = ?, {_PLACE} WHERE pipe = ? AND op = ?",
                (op.bytes, Phase.RETIRED.value, *journal_row(journal), key, seen_op.bytes),
            )
        case Cancel(op, seq):
            marked = "SELECT 1 FROM marks WHERE marks.pipe = heads.pipe AND first = ?"
            return (
                f"op = ? WHERE pipe = ? AND cursor < ? AND NOT EXISTS ({marked})",
                (op.bytes, key, seq, seq),
            )
        case _:
            assert_never(change)


def run_write(key: bytes, change: RunChange, now_ms: int) -> tuple[str, Row]:
    """Return the statement that writes one run, and its values; no row changed means refused."""
    row = run_row(change.run, now_ms if change.is_leased_now else change.run.leased_at_ms)
    if change.if_lease_id is None:
        insert = f"INSERT OR REPLACE INTO runs (pipe, {RUN_COLUMNS})"
        return f"{insert} VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", (key, *row)
    assignments = ", ".join(f"{name.strip()} = ?" for name in RUN_COLUMNS.split(","))
    conditions = "WHERE pipe = ? AND first = ? AND lease_id = ?"
    values: Row = (*row, key, change.run.first, change.if_lease_id.bytes)
    if change.if_leased_at_ms is not None:
        conditions += " AND leased_at_ms = ?"
        values = (*values, change.if_leased_at_ms)
    return f"UPDATE runs SET {assignments} {conditions}", values  # noqa: S608
