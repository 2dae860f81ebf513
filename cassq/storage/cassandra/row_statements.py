"""Every statement for rows that are changed one by one: schedules and slots.

The rules of `cassq.storage.cassandra.statements` hold here too.
"""

# Every word of these statements is ours; values are bound.
# ruff: noqa: S608

from cassq.storage.cassandra.statement import DIES_AT, Call, Statement
from cassq.storage.cassandra.statements import PAGE_OF_BODIES, transaction

# Schedules: rows of transactions alone. A queue's go with its incarnation, which no later queue has.

_SCHEDULE = "op, cron, timezone, body, headers, ttl_ms, priority, type, next_due, missed, target"
_SCHEDULE_KEY = "incarnation = ? AND name = ?"
READ_SCHEDULES = Statement(
    Call.READ,
    f"SELECT name, {_SCHEDULE} FROM {{ks}}.schedules WHERE incarnation = ?",
    page_rows=PAGE_OF_BODIES,
)
READ_SCHEDULE = Statement(
    Call.SERIAL_READ, f"SELECT name, {_SCHEDULE} FROM {{ks}}.schedules WHERE {_SCHEDULE_KEY}"
)
INSERT_SCHEDULE = transaction(
    f"INSERT INTO {{ks}}.schedules ({_SCHEDULE}, incarnation, name) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
)
_SET_SCHEDULE = ", ".join(f"{column} = ?" for column in _SCHEDULE.split(", "))
CHANGE_SCHEDULE = transaction(f"UPDATE {{ks}}.schedules SET {_SET_SCHEDULE} WHERE {_SCHEDULE_KEY} IF op = ?")
DELETE_SCHEDULES = Statement(
    Call.WRITE, f"DELETE FROM {{ks}}.schedules USING TIMESTAMP {DIES_AT} WHERE incarnation = ?"
)

# Slots: rows of transactions alone, each a partition, so that those who change different ones never meet.

_SLOT = "incarnation = ? AND slot = ?"
_READ_SLOT = f"SELECT op FROM {{ks}}.slots WHERE {_SLOT}"
READ_SLOT = Statement(Call.SERIAL_READ, _READ_SLOT)
GLANCE_SLOT = Statement(Call.READ, _READ_SLOT)
INSERT_SLOT = transaction("INSERT INTO {ks}.slots (op, incarnation, slot) VALUES (?, ?, ?) IF NOT EXISTS")
CHANGE_SLOT = transaction(f"UPDATE {{ks}}.slots SET op = ? WHERE {_SLOT} IF op = ?")
DELETE_SLOT = Statement(Call.WRITE, f"DELETE FROM {{ks}}.slots USING TIMESTAMP {DIES_AT} WHERE {_SLOT}")
