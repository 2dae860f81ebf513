"""Schedules in a table of Cassandra's: rows to the model, and back."""

from datetime import timedelta
from uuid import UUID

from cassq.model.ids import new_token
from cassq.model.message import to_datetime
from cassq.model.recurrence import Schedule, ScheduleRecord
from cassq.storage.cassandra.values import Row, Values, decoding, to_count, to_ms, to_text, to_uuid


def to_values(record: ScheduleRecord) -> Values:
    """Return the columns of a schedule, without its key."""
    schedule = record.schedule
    return (
        *(record.op, schedule.cron, schedule.timezone, schedule.body, dict(schedule.headers)),
        *(schedule.label.ttl_ms, schedule.priority, schedule.type or "", schedule.next_due_ms),
        *(schedule.missed, record.target),
    )


def deleted_values() -> Values:
    """Return the columns of a row whose schedule was deleted: an op, and nothing else."""
    return (new_token(), *[None] * 10)


def op_of_deleted(row: Row) -> UUID | None:
    """Return the op of a row whose schedule was deleted; None where one is there."""
    with decoding("a schedule", row):
        _, op, *columns = row
        return to_uuid(op) if all(column is None for column in columns) else None


def to_schedule(row: Row) -> ScheduleRecord:
    """Read a row of `schedules`."""
    with decoding("a schedule", row):
        name, op, cron, timezone, body, headers, ttl_ms, priority, kind, next_due, missed, target = row
        if not isinstance(body, bytes):
            raise TypeError("it has no body")
        schedule = Schedule(
            name=name,
            cron=to_text(cron),
            timezone=to_text(timezone),
            body=body,
            headers=dict(headers),
            ttl=timedelta(milliseconds=to_count(ttl_ms)) or None,
            priority=to_count(priority),
            type=to_text(kind) or None,
            next_due=to_datetime(to_ms(next_due)),
            missed=to_count(missed),
        )
        return ScheduleRecord(schedule, to_uuid(op), None if target is None else to_uuid(target))
