"""Rows of topics that are not what cassq wrote: whoever must read one hears of it.

The columns are read from the schema, so that a new one is covered by itself, or fails here until somebody
says what it may hold.
"""

import contextlib
import secrets
import shutil
import sqlite3
from dataclasses import dataclass
from uuid import UUID

import pytest
from spoilt import OF_TOPICS, cassandra_values, sqlite_schema, sqlite_ways

import cassq
from cassq.storage.cassandra.cql_file import read_shapes

LARGE = b"x" * 20_000

#: Who must hear of a spoilt row of each table; of `links` by kind of row.
HEARERS = {
    "topics": {"find"},
    "segments": {"stats"},
    "links": {"read"},
    "links head": {"stats", "publish"},
    "links batch": {"read"},
    "links writer": {"publish"},
    "batches": {"read"},
    "topic_writers": {"publish"},
    "progress": {"lag"},
}

#: Spoilt ways that are no damage, and why.
SOUND = {
    ("links", "headers", "null"),  # no message of the batch has any
    ("batches", "headers", "null"),
    ("links batch", "bodies", "null"),  # they are in `batches`, and there they are not
    ("topics", "settings", "other"),  # settings of a newer version are left alone
    ("topics", "settings", "range"),
    ("topics", "settings", "overflow"),
    ("topics", "groups", "null"),  # none yet
    ("topics", "subscriptions", "null"),
    ("progress", "pipe", "null"),  # no relay has filled any
    ("progress", "before", "null"),
}

#: Which columns of `links` a row of each kind has, beside its key.
KINDS = {
    ("head", 0, 0, ""): "op first next size state",
    ("batch", 1, 1, ""): "link_id count bodies headers published_at",
    ("writer", 2, 0, "outbox"): "number first",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A topic with a small batch, a large one, the number of a writer, and a group."""

    name: str
    incarnation: UUID
    group: UUID


def make_scene(store, name):
    topic = store.topic(name)
    topic.publish_many([(b"one", {"type": "a"}), (b"one", {"type": "b"})])
    topic.publish_many([(LARGE, {"type": "c"}), (LARGE, {"type": "d"})])
    topic.publish(b"one", writer="outbox", number=1)
    with topic.consumer("g"):
        pass
    record = topic._context.known.look()
    topic.close()
    return Scene(name, record.incarnation, record.groups["g"])


def hear(store, scene):
    """Make every public call that reads; return which of them raised `CorruptError`."""
    heard = set()

    def note(call, make):
        try:
            make()
        except cassq.CorruptError as error:
            assert str(error)
            heard.add(call)
        return call not in heard

    if not note("find", lambda: store.find_topic(scene.name)):
        return heard
    topic = store.find_topic(scene.name)
    note("read", lambda: read(topic))
    note("stats", topic.stats)
    note("lag", lambda: topic.lag("g"))
    note("publish", lambda: topic.publish(b"two", writer="outbox", number=2))
    note("reap", topic.reap)
    return heard


def read(topic):
    with topic.reader() as reader:
        while found := reader.read_many(10):
            for message in found:
                assert message.body in {b"one", LARGE}


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """A file with the scene, whose columns take whatever they are given."""
    path = tmp_path_factory.mktemp("corrupt") / "model.db"
    with cassq.connect(f"sqlite:///{path}") as store:
        scene = make_scene(store, "events")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    return path, scene


def _others():
    with contextlib.closing(sqlite_schema()) as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {table for (table,) in tables} - OF_TOPICS


def _name(way):
    return " ".join(way[:3])


FILE_WAYS = [way for way in sqlite_ways(_others()) if way[:3] not in SOUND]


@pytest.mark.parametrize("way", FILE_WAYS, ids=_name)
def test_whoever_reads_a_spoilt_row_of_a_file_hears_of_it(model_file, tmp_path, way):
    path = tmp_path / "store.db"
    shutil.copy(model_file[0], path)
    table, column, _, value = way
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert db.execute(f"UPDATE {table} SET {column} = ?", (value,)).rowcount > 0

    with cassq.connect(f"sqlite:///{path}?durability=normal") as store:
        heard = hear(store, model_file[1])

    assert heard >= HEARERS[table], f"{HEARERS[table] - heard} did not hear of it; {sorted(heard)} did"


def cassandra_ways():
    for table in sorted(OF_TOPICS & read_shapes().keys()):
        shape = read_shapes()[table]
        regular = {name: column.type for name, column in shape.columns.items() if column.kind == "regular"}
        rows = {f"links {kind[0]}": columns.split() for kind, columns in KINDS.items()}
        rows = rows if table == "links" else {table: list(regular)}
        assert set(regular) == {column for columns in rows.values() for column in columns}
        for row, columns in rows.items():
            for column in columns:
                for name, value in cassandra_values(column, regular[column]):
                    if (row, column, name) not in SOUND and (table, column, name) not in SOUND:
                        yield row, column, name, value


def where_of(row, scene):
    segment = f"incarnation = {scene.incarnation} AND partition = 0 AND segment = 1"
    for kind, number, at, who in KINDS:
        if row == f"links {kind}":
            return f"{segment} AND kind = {number} AND at = {at} AND who = '{who}'"
    return {
        "topics": f"topic = '{scene.name}'",
        "segments": segment,
        "progress": f"group_id = {scene.group} AND partition = 0",
    }[row]


@pytest.fixture(scope="module")
def cluster(cassandra_session, cassandra_address, zookeeper_address):
    url = f"cassandra://{cassandra_address}/{cassandra_session.keyspace}?zookeeper={zookeeper_address}"
    with cassq.connect(url) as store:
        yield store


@pytest.mark.service
@pytest.mark.parametrize("way", list(cassandra_ways()), ids=_name)
def test_whoever_reads_a_spoilt_row_of_a_cluster_hears_of_it(cluster, cassandra_session, way):
    scene = make_scene(cluster, f"t-{secrets.token_hex(6)}")
    row, column, _, value = way
    keyspace, execute = cassandra_session.keyspace, cassandra_session._driver.execute
    if row == "batches":
        keys = "incarnation, partition, segment, link_id, at"
        found = execute(
            f"SELECT {keys} FROM {keyspace}.batches WHERE incarnation = %s ALLOW FILTERING",
            (scene.incarnation,),
        )
        where = " AND ".join(
            f"{key} = {each}" for key, each in zip(keys.split(", "), found.one(), strict=True)
        )
    else:
        where = where_of(row, scene)
    execute(f"UPDATE {keyspace}.{row.split()[0]} SET {column} = %s WHERE {where}", (value,))

    heard = hear(cluster, scene)

    execute(f"DELETE FROM {keyspace}.topics WHERE topic = '{scene.name}'")
    assert heard >= HEARERS[row], f"{HEARERS[row] - heard} did not hear of it; {sorted(heard)} did"
