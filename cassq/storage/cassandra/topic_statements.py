"""Every statement about topics that cassq sends to Cassandra; the rules of `statements.py` hold here too."""

# Every word of these statements is ours; values are bound.
# ruff: noqa: S608

from cassq.storage.cassandra.statement import BORN_AT, DIES_AT, Call, Statement

#: Rows of one page: batches are large.
_PAGE_OF_BATCHES = 64

HEAD_KIND, BATCH_KIND, WRITER_KIND, OFFER_KIND = range(4)


def _transaction(cql: str) -> Statement:
    return Statement(Call.TRANSACTION, cql, is_idempotent=False)


# Topics

_TOPIC = "op, incarnation, state, settings, groups, subscriptions"
_READ_TOPIC = f"SELECT topic, {_TOPIC} FROM {{ks}}.topics WHERE topic = ?"
READ_TOPIC = Statement(Call.SERIAL_READ, _READ_TOPIC)
GLANCE_TOPIC = Statement(
    Call.READ, f"SELECT topic, {_TOPIC}, to_timestamp(now()) FROM {{ks}}.topics WHERE topic = ?"
)
READ_TOPICS = Statement(Call.READ, f"SELECT topic, {_TOPIC} FROM {{ks}}.topics")
INSERT_TOPIC = _transaction(
    f"INSERT INTO {{ks}}.topics ({_TOPIC}, topic) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
)
CHANGE_TOPIC = _transaction(
    "UPDATE {ks}.topics SET op = ?, incarnation = ?, state = ?, settings = ?, groups = ?, "
    "subscriptions = ? "
    "WHERE topic = ? IF op = ?"
)

# Segments: plain rows that never change.

_PARTITION = "incarnation = ? AND partition = ?"
INSERT_SEGMENT = Statement(
    Call.WRITE,
    "INSERT INTO {ks}.segments (incarnation, partition, segment, first, created_at) "
    f"VALUES (?, ?, ?, ?, to_timestamp(now())) USING TIMESTAMP {BORN_AT}",
)
READ_SEGMENTS = Statement(
    Call.READ,
    f"SELECT segment, first, created_at, to_timestamp(now()) FROM {{ks}}.segments WHERE {_PARTITION}",
)
DELETE_SEGMENT = Statement(
    Call.WRITE, f"DELETE FROM {{ks}}.segments USING TIMESTAMP {DIES_AT} WHERE {_PARTITION} AND segment = ?"
)

# What is in a segment: head, batches and writers are rows of one partition. Plain inserts make them as the
# segment is created, transactions write whatever comes later.

_SEGMENT = f"{_PARTITION} AND segment = ?"
_HEAD_KEY = f"{_SEGMENT} AND kind = {HEAD_KIND} AND at = 0 AND who = ''"
_LINKS = (
    "kind, at, who, op, first, next, size, state, link_id, count, published_at, number, "
    "{bodies}, {headers} FROM {{ks}}.links WHERE "
)
_WHOLE = f"SELECT {_LINKS.format(bodies='bodies', headers='headers')}"
_OUTLINE = f"SELECT {_LINKS.format(bodies='writetime(bodies)', headers='writetime(headers)')}"
INSERT_HEAD = Statement(
    Call.WRITE,
    "INSERT INTO {ks}.links (incarnation, partition, segment, kind, at, who, op, first, next, size, state) "
    f"VALUES (?, ?, ?, {HEAD_KIND}, 0, '', ?, ?, ?, ?, ?) USING TIMESTAMP {BORN_AT}",
)
LOAD_HEAD = Statement(Call.SERIAL_READ, f"{_OUTLINE}{_HEAD_KEY}")
GLANCE_HEAD = Statement(Call.READ, f"{_OUTLINE}{_HEAD_KEY}")
CHANGE_HEAD = _transaction(
    f"UPDATE {{ks}}.links SET op = ?, first = ?, next = ?, size = ?, state = ? WHERE {_HEAD_KEY} IF op = ?"
)
INSERT_BATCH = _transaction(
    "INSERT INTO {ks}.links (incarnation, partition, segment, kind, at, who, link_id, count, bodies, "
    f"headers, published_at) VALUES (?, ?, ?, {BATCH_KIND}, ?, '', ?, ?, ?, ?, to_timestamp(now()))"
)
_BATCHES = f"{_SEGMENT} AND kind = {BATCH_KIND} AND at"
#: By whether it is an outline.
READ_BATCHES = {
    is_outline: Statement(
        Call.READ, f"{_OUTLINE if is_outline else _WHOLE}{_BATCHES} >= ? LIMIT ?", page_rows=_PAGE_OF_BATCHES
    )
    for is_outline in (False, True)
}
READ_HOLDER = Statement(Call.READ, f"{_OUTLINE}{_BATCHES} <= ? ORDER BY at DESC LIMIT 1")
_WRITER = (
    "INSERT INTO {ks}.links (incarnation, partition, segment, kind, at, who, number, first) "
    f"VALUES (?, ?, ?, {WRITER_KIND}, 0, ?, ?, ?)"
)
INSERT_WRITER = Statement(Call.WRITE, f"{_WRITER} USING TIMESTAMP {BORN_AT}")
SET_WRITER = _transaction(_WRITER)
_WRITERS = f"{_OUTLINE}{_SEGMENT} AND kind = {WRITER_KIND} AND at = 0"
READ_WRITERS = Statement(Call.READ, _WRITERS)
GLANCE_WRITER = Statement(
    Call.READ,
    f"{_OUTLINE}{_SEGMENT} AND kind IN ({HEAD_KIND}, {WRITER_KIND}) AND at = 0 AND who IN ('', ?)",
)
# The later one of a source stands: its number is the timestamp of all that is in it.
INSERT_OFFER = Statement(
    Call.WRITE,
    "INSERT INTO {ks}.links (incarnation, partition, segment, kind, at, who, number, count, bodies, headers) "
    f"VALUES (?, ?, ?, {OFFER_KIND}, 0, ?, ?, ?, ?, ?) USING TIMESTAMP ?",
)
READ_OFFERS = Statement(
    Call.READ, f"{_WHOLE}{_SEGMENT} AND kind = {OFFER_KIND} AND at = 0", page_rows=_PAGE_OF_BATCHES
)
DELETE_LINKS = Statement(Call.WRITE, f"DELETE FROM {{ks}}.links USING TIMESTAMP {DIES_AT} WHERE {_SEGMENT}")

# Large batches

APPEND_LARGE = Statement(
    Call.WRITE,
    "INSERT INTO {ks}.batches (incarnation, partition, segment, link_id, at, bodies, headers) "
    f"VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP {BORN_AT}",
)
READ_LARGE = Statement(
    Call.READ, f"SELECT bodies, headers FROM {{ks}}.batches WHERE {_SEGMENT} AND link_id = ? AND at = ?"
)
DELETE_LARGE = Statement(Call.WRITE, f"DELETE FROM {{ks}}.batches USING TIMESTAMP {DIES_AT} WHERE {_SEGMENT}")

# Progress: rows of transactions alone, each a partition.

_PROGRESS = "group_id = ? AND partition = ?"
_READ_PROGRESS = f"SELECT partition, epoch, owner, next, pipe, before FROM {{ks}}.progress WHERE {_PROGRESS}"
READ_PROGRESS = Statement(Call.SERIAL_READ, _READ_PROGRESS)
GLANCE_PROGRESS = Statement(Call.READ, _READ_PROGRESS)
INSERT_PROGRESS = _transaction(
    "INSERT INTO {ks}.progress (epoch, owner, next, group_id, partition) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS"
)
CHANGE_PROGRESS = _transaction(
    f"UPDATE {{ks}}.progress SET epoch = ?, owner = ?, next = ?, pipe = ?, before = ? WHERE {_PROGRESS} "
    "IF epoch = ? AND next = ?"
)
DELETE_PROGRESS = Statement(
    Call.WRITE, f"DELETE FROM {{ks}}.progress USING TIMESTAMP {DIES_AT} WHERE {_PROGRESS}"
)
