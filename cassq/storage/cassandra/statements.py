"""Every statement that cassq sends to Cassandra, in one table.

Owns the CQL and, for each statement, what kind of call it is: that alone decides its consistency, its retry
policy and what its failure means. It refuses to send anything (`session.py` does). What must not break:

- whatever is written outside of a transaction carries a fixed timestamp, and whatever a transaction writes
  carries none. So no clock decides between two writes, and a deletion beats all of them;
- every read names every column of its table, if only by `writetime`: read repair writes back those columns
  that a read names, and no others. So what one read saw, a quorum has whole.
"""

# Every word of these statements is ours; values are bound.
# ruff: noqa: S608

from dataclasses import replace

from cassq.storage.cassandra.statement import BORN_AT, DIES_AT, Call, Statement

#: Rows of one page: bodies are large, heads and marks are small, and what is read as one state should come
#: as one page.
PAGE_OF_BODIES = 64
#: An outline's bodies go from the replicas to the coordinator, and no further.
_PAGE_OF_OUTLINES = 16
PAGE_OF_STATE = 20_000

#: So many rows of a pipe are read with the head at once; most pipes are smaller.
STATE_ROWS_MAX = 64

HEAD_SEQ = -1
HEAD_KIND, RUN_KIND, MARK_KIND, SET_MARK_KIND = range(4)

#: Today's only shard of a queue.
SHARD = 0

READ_CLOCK = Statement(Call.LOCAL, "SELECT to_timestamp(now()) FROM system.local", is_idempotent=False)

# Queues

_RECORD = (
    "op, incarnation, state, settings, pushed, popped, committed, dead, purged, rolled_back, counted, "
    "samples, writers, publications, expired"
)
_READ_QUEUE = f"SELECT queue, {_RECORD} FROM {{ks}}.queues WHERE queue = ? AND shard = ?"
READ_QUEUE = Statement(Call.SERIAL_READ, _READ_QUEUE)
GLANCE_QUEUE = Statement(
    Call.READ,
    f"SELECT queue, {_RECORD}, to_timestamp(now()) FROM {{ks}}.queues WHERE queue = ? AND shard = ?",
)
READ_QUEUES = Statement(Call.READ, f"SELECT queue, {_RECORD} FROM {{ks}}.queues")
INSERT_QUEUE = Statement(
    Call.TRANSACTION,
    f"INSERT INTO {{ks}}.queues ({_RECORD}, queue, shard) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS",
    is_idempotent=False,
)
_SET_RECORD = "UPDATE {ks}.queues SET " + ", ".join(f"{column} = ?" for column in _RECORD.split(", "))
CHANGE_QUEUE = Statement(
    Call.TRANSACTION, f"{_SET_RECORD} WHERE queue = ? AND shard = ? IF op = ?", is_idempotent=False
)
REPLACE_QUEUE = Statement(
    Call.TRANSACTION, f"{_SET_RECORD} WHERE queue = ? AND shard = ? IF state = ?", is_idempotent=False
)

# The lists of pipes

_ENTRY = "pipe, pusher, priority, lane, type, due_class, moved_from, slot"


def _insert_entry(table: str) -> Statement:
    return Statement(
        Call.WRITE,
        f"INSERT INTO {{ks}}.{table} (queue, shard, {_ENTRY}, created_at) "
        f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, to_timestamp(now())) USING TIMESTAMP {BORN_AT}",
    )


def _read_entries(table: str, condition: str = "") -> Statement:
    # With the clock: entries never change, so their ages are right whenever it is read.
    return Statement(
        Call.READ,
        f"SELECT {_ENTRY}, created_at, to_timestamp(now()) "
        f"FROM {{ks}}.{table} WHERE queue = ? AND shard = ?{condition}",
    )


def _delete_entry(table: str) -> Statement:
    return Statement(
        Call.WRITE,
        f"DELETE FROM {{ks}}.{table} USING TIMESTAMP {DIES_AT} WHERE queue = ? AND shard = ? AND pipe = ?",
    )


#: Which of the entries are read: all of them, those from one on, or those between two.
WHOLE, SINCE, BETWEEN = "", " AND pipe >= ?", " AND pipe >= ? AND pipe <= ?"

INSERT_ENTRY = _insert_entry("pipes")
READ_ENTRIES = {which: _read_entries("pipes", which) for which in (WHOLE, SINCE, BETWEEN)}
DELETE_ENTRY = _delete_entry("pipes")

INSERT_STAGED = _insert_entry("staged")
READ_STAGED = {which: _read_entries("staged", which) for which in (WHOLE, SINCE, BETWEEN)}
DELETE_STAGED = _delete_entry("staged")

# Waiting

APPEND = Statement(
    Call.WRITE,
    "INSERT INTO {ks}.waiting (pipe, first, count, bodies, headers, ttl_ms, dues, origins, keys, pushed_at) "
    f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, to_timestamp(now())) USING TIMESTAMP {BORN_AT}",
)
_BATCHES = "FROM {ks}.waiting WHERE pipe = ? AND first >= ? AND first <= ? ORDER BY first"
# An outline names the columns that it leaves out by when they were written: null where they are not there.
_PLACE, _STEERING = "first, count, pushed_at", "ttl_ms, dues, origins, keys"
_OUTLINE = f"{_PLACE}, writetime(bodies), writetime(headers), {_STEERING}"
_HEADERS = f"{_PLACE}, writetime(bodies), headers, {_STEERING}"
_WHOLE = f"{_PLACE}, bodies, headers, {_STEERING}"


def _read_batches(columns: str, order: str, page_rows: int) -> Statement:
    return Statement(Call.READ, f"SELECT {columns} {_BATCHES} {order} LIMIT ?", page_rows=page_rows)


#: By (is newest first, is outline).
READ_BATCHES = {
    (is_newest_first, is_outline): _read_batches(
        _OUTLINE if is_outline else _WHOLE,
        "DESC" if is_newest_first else "ASC",
        _PAGE_OF_OUTLINES if is_outline else PAGE_OF_BODIES,
    )
    for is_newest_first in (False, True)
    for is_outline in (False, True)
}
READ_HEADERS = _read_batches(_HEADERS, "ASC", _PAGE_OF_OUTLINES)
DELETE_WAITING = Statement(Call.WRITE, f"DELETE FROM {{ks}}.waiting USING TIMESTAMP {DIES_AT} WHERE pipe = ?")

# Pending: head, runs and marks

_HEAD_KEY = f"pipe = ? AND seq = {HEAD_SEQ} AND kind = {HEAD_KIND}"
_STATE = (
    "seq, kind, op, cursor, read_from, floor, phase, last, skipped, dead, purged, rolled_back, state, "
    "attempt, lease_id, leased_at, lease_ms, not_before, holder, ending, window_ms, reason, expired, target, "
    "journal, journal_from, journal_kind, past, ended_at"
)
_READ_STATE = f"SELECT {_STATE} FROM {{ks}}.pending WHERE pipe = ?"
READ_HEAD = Statement(
    Call.SERIAL_READ, f"SELECT {_STATE} FROM {{ks}}.pending WHERE {_HEAD_KEY}", page_rows=PAGE_OF_STATE
)
READ_STATE_BEGINNING = Statement(
    Call.SERIAL_READ, f"{_READ_STATE} LIMIT {STATE_ROWS_MAX}", page_rows=PAGE_OF_STATE
)
READ_STATE_ABOVE = Statement(Call.SERIAL_READ, f"{_READ_STATE} AND seq > ?", page_rows=PAGE_OF_STATE)
READ_STATE = Statement(Call.SERIAL_READ, _READ_STATE, page_rows=PAGE_OF_STATE)
_STRETCH = "FROM {ks}.pending WHERE pipe = ? AND seq >= ? AND seq <= ?"
READ_STRETCH = Statement(
    Call.READ, f"SELECT {_STATE}, to_timestamp(now()) {_STRETCH}", page_rows=PAGE_OF_STATE
)

INSERT_HEAD = Statement(
    Call.WRITE,
    "INSERT INTO {ks}.pending (pipe, seq, kind, op, cursor, read_from, floor, phase, last, skipped, dead, "
    f"purged, rolled_back) VALUES (?, {HEAD_SEQ}, {HEAD_KIND}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    f"USING TIMESTAMP {BORN_AT}",
)
DELETE_PENDING = Statement(Call.WRITE, f"DELETE FROM {{ks}}.pending USING TIMESTAMP {DIES_AT} WHERE pipe = ?")

# Of two marks with the same first number the longer one stands, because its end is its timestamp.
MARK = Statement(
    Call.WRITE,
    "INSERT INTO {ks}.pending (pipe, seq, kind, last, ending, attempt) "
    f"VALUES (?, ?, {MARK_KIND}, ?, ?, ?) USING TIMESTAMP ?",
)


def transaction(cql: str) -> Statement:
    """Return a statement with a condition, or a part of a batch that has one."""
    return Statement(Call.TRANSACTION, cql, is_idempotent=False)


def _head_change(columns: str, conditions: str) -> Statement:
    assignments = ", ".join(f"{column} = ?" for column in columns.split())
    return transaction(f"UPDATE {{ks}}.pending SET {assignments} WHERE {_HEAD_KEY} IF {conditions}")


ADVANCE = _head_change(
    "op cursor read_from floor skipped dead purged rolled_back expired", "op = ? AND last >= ?"
)
SEAL = _head_change("last phase", "last = ? AND cursor <= ?")
SET_PHASE = _head_change("op phase", "op = ?")
RETIRE_JOURNALED = _head_change("op phase journal journal_from journal_kind", "op = ?")
DRAIN = _head_change("op last", "op = ? AND last = ?")
CANCEL = _head_change("op", "cursor < ?")

SET_MARK = transaction(
    "INSERT INTO {ks}.pending (pipe, seq, kind, last, ending, target, attempt) "
    f"VALUES (?, ?, {SET_MARK_KIND}, ?, ?, ?, ?)"
)
SET_FIRST_MARK = transaction(f"{SET_MARK.cql} IF NOT EXISTS")


def _timed(mark: Statement) -> Statement:
    cql = mark.cql.replace("attempt)", "attempt, ended_at)").replace("?)", "?, to_timestamp(now()))")
    return replace(mark, cql=cql)


#: Each mark with when it was written: where the queue keeps a journal.
TIMED = {each: _timed(each) for each in (MARK, SET_MARK, SET_FIRST_MARK)}

_RUN_COLUMNS = (
    "last read_from state attempt lease_id lease_ms not_before holder rolled_back window_ms reason past "
    "leased_at"
)


def _run_insert(*, is_leased_now: bool) -> Statement:
    leased_at = "to_timestamp(now())" if is_leased_now else "?"
    return transaction(
        f"INSERT INTO {{ks}}.pending ({', '.join(_RUN_COLUMNS.split())}, pipe, seq, kind) "
        f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {leased_at}, ?, ?, {RUN_KIND})"
    )


def _run_update(conditions: str, *, is_leased_now: bool) -> Statement:
    leased_at = "to_timestamp(now())" if is_leased_now else "?"
    assignments = ", ".join(f"{column} = ?" for column in _RUN_COLUMNS.split()[:-1])
    return transaction(
        f"UPDATE {{ks}}.pending SET {assignments}, leased_at = {leased_at} "
        f"WHERE pipe = ? AND seq = ? AND kind = {RUN_KIND} IF {conditions}"
    )


#: By (condition, is leased now); the condition is "" for a row that does not exist yet.
WRITE_RUN: dict[tuple[str, bool], Statement] = {
    (condition, is_leased_now): (
        _run_update(condition, is_leased_now=is_leased_now)
        if condition
        else _run_insert(is_leased_now=is_leased_now)
    )
    for condition in ("", "lease_id = ?", "lease_id = ? AND leased_at = ?")
    for is_leased_now in (False, True)
}

# Dead letters. Their inserts carry the coordinator's time, so that a later one overwrites; a removal is for
# ever, so that an insert that arrives late cannot bring a letter back that was dealt with. So what is removed
# lies within one pipe, whose id is never used again: a later queue of the name has the same partition.

_LETTER = "pipe, seq, body, headers, pushed_at, attempts, reason, priority, type, key"
INSERT_DEAD = Statement(
    Call.WRITE,
    f"INSERT INTO {{ks}}.dead (queue, shard, {_LETTER}, died_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, to_timestamp(now()))",
)
DELETE_DEAD = Statement(
    Call.WRITE,
    f"DELETE FROM {{ks}}.dead USING TIMESTAMP {DIES_AT} "
    "WHERE queue = ? AND shard = ? AND pipe = ? AND seq = ?",
)
DELETE_DEAD_STRETCH = Statement(
    Call.WRITE,
    f"DELETE FROM {{ks}}.dead USING TIMESTAMP {DIES_AT} "
    "WHERE queue = ? AND shard = ? AND pipe = ? AND seq >= ? AND seq <= ?",
)
_DEAD = (
    "died_at FROM {ks}.dead "
    "WHERE queue = ? AND shard = ? AND (pipe, seq) > (?, ?) AND (pipe, seq) <= (?, ?) LIMIT ?"
)
READ_DEAD = Statement(Call.READ, f"SELECT {_LETTER}, {_DEAD}", page_rows=PAGE_OF_BODIES)
COUNT_DEAD = Statement(
    Call.READ,
    "SELECT pushed_at, attempts, writetime(body), writetime(headers), writetime(reason), "
    f"writetime(priority), writetime(type), writetime(key), {_DEAD}",
)

# Rollups. They are figures, not messages: written with the coordinator's time, so that a later one stands,
# and gone by the table's own time-to-live.

_ROLLUP = (  # in the order of `Rollup`
    "rolled_up_at, minute, pusher, holder, waiting, pending, returned, committed, dead, "
    "body_bytes, body_p50_bytes, body_p90_bytes, body_p99_bytes, "
    "oldest_age_ms, age_p50_ms, age_p90_ms, age_p99_ms"
)
INSERT_ROLLUP = Statement(
    Call.WRITE,
    f"INSERT INTO {{ks}}.statistics (queue, shard, day, {_ROLLUP}) "
    f"VALUES (?, ?, ?, {', '.join('?' for _ in _ROLLUP.split(', '))})",
)
READ_ROLLUPS = Statement(
    Call.READ, f"SELECT {_ROLLUP} FROM {{ks}}.statistics WHERE queue = ? AND shard = ? AND day = ?"
)

# The schema: what a cassq must know, and what was only added since
READ_VERSIONS = Statement(Call.READ, "SELECT component, version FROM {ks}.schema_version")
