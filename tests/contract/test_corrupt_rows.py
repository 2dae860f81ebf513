"""Rows that are not what cassq wrote: every column of every table, spoilt in every way its type allows.

Owns the promise of `CorruptError`: whoever must read a spoilt row hears of it; nobody gets another exception,
a wrong message, or nothing without a word. The columns are read from the schema, so that a new one is covered
by itself, or fails here until somebody says what it may hold.
"""

import contextlib
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from spoilt import HEARERS, Scene, cassandra_update, cassandra_ways, hear, make_scene, sqlite_ways

import cassq
from cassq.model.ids import time_key
from cassq.storage.cassandra import CassandraStorage


def _name(way) -> str:
    return " ".join(way[:3])


def _judge(table: str, heard: set[str]) -> None:
    table = table.partition(" ")[0]
    missing = HEARERS[table] - heard
    assert not missing, f"{sorted(missing)} did not hear of it; {sorted(heard)} did"
    if table != "pipes":
        assert "no pop at all" not in heard, "the sound pipe was held up"


def _patience_s(table: str) -> float:
    # A spoilt list holds up the whole queue: nothing comes, however long one waits.
    return 0.1 if table == "pipes" else 4.0


@pytest.fixture(scope="module")
def model_file(tmp_path_factory) -> tuple[Path, Scene]:
    """A file with the scene, whose columns take whatever they are given."""
    path = tmp_path_factory.mktemp("corrupt") / "model.db"
    with cassq.connect(f"sqlite:///{path}") as store:
        scene = make_scene(store, "orders")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    return path, scene


@pytest.fixture
def copy(model_file, tmp_path) -> tuple[str, Scene]:
    """A copy of it."""
    path = tmp_path / "store.db"
    shutil.copy(model_file[0], path)
    return str(path), model_file[1]


@contextlib.contextmanager
def _opened(path: str) -> Iterator[cassq.Store]:
    with cassq.connect(f"sqlite:///{path}?durability=normal") as store:
        yield store


def _spoil(path: str, scene: Scene, *statements: str) -> None:
    """Run statements on the file; `:pipe` and `:queue` stand for the scene's."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement, {"pipe": time_key(scene.spoilt), "queue": scene.queue})


def _rows_of(path: str, scene: Scene) -> int:
    with contextlib.closing(sqlite3.connect(path)) as db:
        tables = ("heads", "runs", "marks", "waiting")
        count = "SELECT count(*) FROM {} WHERE pipe = ?"
        return sum(db.execute(count.format(t), (time_key(scene.spoilt),)).fetchone()[0] for t in tables)


def test_a_sound_file_raises_nothing(copy):
    path, scene = copy
    with _opened(path) as store:
        assert hear(store, scene) == set()


@pytest.mark.parametrize("way", list(sqlite_ways()), ids=_name)
def test_whoever_reads_a_spoilt_row_of_a_file_hears_of_it(copy, way):
    path, scene = copy
    table, column, _, value = way
    keys = {"queues": "name = :queue", "dead": "queue = :queue", "statistics": "queue = :queue"}
    keys["schedules"] = "name = 'yearly'"
    key = keys.get(table, "pipe = :pipe")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        values = {"pipe": time_key(scene.spoilt), "queue": scene.queue, "value": value}
        assert db.execute(f"UPDATE {table} SET {column} = :value WHERE {key}", values).rowcount > 0

    with _opened(path) as store:
        heard = hear(store, scene, _patience_s(table))

    _judge(table, heard)
    assert _rows_of(path, scene) >= 6, "the spoilt pipe was deleted"


# -- Cassandra -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(cassandra_session, cassandra_address, zookeeper_address):
    url = f"cassandra://{cassandra_address}/{cassandra_session.keyspace}?zookeeper={zookeeper_address}"
    with cassq.connect(url) as store:
        yield store


@pytest.fixture
def cluster_scene(cluster, cassandra_session):
    scene = make_scene(cluster, f"q-{secrets.token_hex(6)}")
    yield scene
    # A spoilt record of one queue is in the way of every other one's `reap` and `queues`.
    where = f"{cassandra_session.keyspace}.queues WHERE queue = %s AND shard = 0"
    cassandra_session._driver.execute(f"DELETE FROM {where}", (scene.queue,))


@pytest.mark.service
def test_a_sound_keyspace_raises_nothing(cluster, cluster_scene):
    assert hear(cluster, cluster_scene) == set()


@pytest.mark.service
@pytest.mark.parametrize("way", list(cassandra_ways()), ids=_name)
def test_whoever_reads_a_spoilt_row_of_a_cluster_hears_of_it(cluster, cluster_scene, cassandra_session, way):
    cassandra_session._driver.execute(*cassandra_update(cassandra_session.keyspace, cluster_scene, way))

    heard = hear(cluster, cluster_scene, _patience_s(way[0]))

    _judge(way[0], heard)
    left = CassandraStorage(cassandra_session)._session.ask(
        f"SELECT seq FROM {cassandra_session.keyspace}.pending WHERE pipe = {cluster_scene.spoilt}"
    )
    assert len(left) >= 5, "the spoilt pipe was deleted"


@pytest.mark.service
@pytest.mark.parametrize(("seq", "kind"), [(-5, 0), (-1, -1), (-1, 1), (0, 1), (1, 9), (3, 0)])
def test_a_row_with_a_number_and_kind_that_cassq_never_writes_is_heard_of(
    cluster, cluster_scene, cassandra_session, seq, kind
):
    row = f"{cassandra_session.keyspace}.pending (pipe, seq, kind, last) VALUES (%s, {seq}, {kind}, 3)"
    cassandra_session._driver.execute(f"INSERT INTO {row}", (cluster_scene.spoilt,))

    _judge("pending", hear(cluster, cluster_scene))
