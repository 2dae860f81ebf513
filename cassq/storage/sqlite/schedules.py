"""Schedules in the tables of a file.

Owns their rows. What must not break: none is made for a queue that was deleted, also by who has not heard of
it.
"""

import json
import sqlite3
from datetime import timedelta
from typing import Any
from uuid import UUID

from cassq.model.ids import from_time_key, time_key
from cassq.model.message import to_datetime
from cassq.model.queue_record import QueueState
from cassq.model.recurrence import Schedule, ScheduleRecord
from cassq.storage.sqlite.rows import Row
from cassq.storage.sqlite.values import blob, decoding, json_headers, number, text, time_ms

_COLUMNS = "op, cron, timezone, body, headers, ttl_ms, priority, type, next_due_ms, missed, target"
_OF = "incarnation = ? AND name = ?"
_READ = f"SELECT name, {_COLUMNS} FROM schedules WHERE incarnation = ?"  # noqa: S608 - our own words
_INSERT = (
    f"INSERT OR IGNORE INTO schedules ({_COLUMNS}, incarnation, name)"  # noqa: S608
    " SELECT ?,?,?,?,?,?,?,?,?,?,?,?,?"
    " WHERE EXISTS (SELECT 1 FROM queues WHERE incarnation = ? AND state <> ?)"
)
_SET = ", ".join(f"{column} = ?" for column in _COLUMNS.split(", "))
_CHANGE = f"UPDATE schedules SET {_SET} WHERE {_OF} AND op = ?"  # noqa: S608
_DELETE = f"DELETE FROM schedules WHERE {_OF} AND op = ?"  # noqa: S608


def read(db: sqlite3.Connection, incarnation: UUID, name: str | None) -> list[tuple[Any, ...]]:
    """Return one schedule of a queue, or all of them, by name."""
    if name is None:
        return db.execute(f"{_READ} ORDER BY name", (incarnation.bytes,)).fetchall()
    return db.execute(f"{_READ} AND name = ?", (incarnation.bytes, name)).fetchall()


def change(
    db: sqlite3.Connection,
    incarnation: UUID,
    name: str,
    seen: ScheduleRecord | None,
    wanted: ScheduleRecord | None,
) -> bool:
    """Insert a schedule, change it, or delete it; tell whether it was as it was seen."""
    key = incarnation.bytes, name
    if wanted is None:
        return seen is not None and db.execute(_DELETE, (*key, seen.op.bytes)).rowcount == 1
    row = _row(wanted)
    if seen is not None:
        return db.execute(_CHANGE, (*row, *key, seen.op.bytes)).rowcount == 1
    values = *row, *key, incarnation.bytes, QueueState.DELETED.value
    return db.execute(_INSERT, values).rowcount == 1


def delete_all(db: sqlite3.Connection, incarnation: UUID) -> None:
    """Delete the schedules of a queue."""
    db.execute("DELETE FROM schedules WHERE incarnation = ?", (incarnation.bytes,))


def to_schedule(row: Row) -> ScheduleRecord:
    """Read a row of `schedules`."""
    with decoding("schedules"):
        name, op, cron, timezone, body, headers, ttl_ms, priority, kind, next_due_ms, missed, target = row
        schedule = Schedule(
            name=name,
            cron=text(cron),
            timezone=text(timezone),
            body=blob(body),
            headers=json_headers(json.loads(text(headers))),
            ttl=timedelta(milliseconds=time_ms(ttl_ms)) or None,
            priority=number(priority),
            type=text(kind) or None,
            next_due=to_datetime(time_ms(next_due_ms)),
            missed=number(missed),
        )
        to = None if target is None else from_time_key(blob(target))
        return ScheduleRecord(schedule, UUID(bytes=op), to)


def _row(record: ScheduleRecord) -> Row:
    schedule = record.schedule
    return (
        *(record.op.bytes, schedule.cron, schedule.timezone, schedule.body),
        *(json.dumps(dict(schedule.headers)), schedule.label.ttl_ms, schedule.priority, schedule.type or ""),
        *(schedule.next_due_ms, schedule.missed, record.target and time_key(record.target)),
    )
