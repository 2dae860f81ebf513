"""Bad input gets an error that names the value, the rule and the way out; nothing is lost by it."""

import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta
from importlib import resources
from pathlib import Path

import pytest

import cassq
from cassq import installation

ROOT = Path(__file__).parents[2]


@pytest.fixture
def queue(store, name):
    return store.queue(name)


# -- URLs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "is not the URL of a store"),
        ("orders.db", "is not the URL of a store"),
        ("redis://localhost", "is not the URL of a store"),
        ("memory:x", "is not the URL of a store"),
        (None, "is a str, not NoneType"),
        ("sqlite:", "names no file"),
        ("sqlite://orders.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///o.db?durable=full", "'durable' is not an option"),
        ("sqlite:///o.db?durability=some", "must be 'full' or 'normal'"),
        ("cassandra:///cassq", "names no host"),
        ("cassandra://localhost", "names no keyspace"),
        ("cassandra://localhost:x/cassq", "is not HOST or HOST:PORT"),
        ("cassandra://localhost:70000/cassq", "is not HOST or HOST:PORT"),
        ("cassandra://localhost/cassq?zoo=keeper", "'zoo' is not an option"),
        ("cassandra://localhost/cassq?timeout=soon", "must be a number of seconds"),
        ("cassandra://localhost/cassq?tls=perhaps", "must be 0, 1 or noverify"),
        ("cassandra://localhost/cassq?tls_ca=/no/such/file", "cannot be read"),
        ("cassandra://localhost/cassq?tls_key=/no/such/file", "of no use without tls_cert"),
        ("cassandra://localhost/cassq?zookeeper=:2181", "is not HOST or HOST:PORT"),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_wrong(url, told):
    with pytest.raises(cassq.InvalidOptionError, match=told.replace("(", "\\(")):
        cassq.connect(url)


def test_a_keyspace_is_a_name():
    with pytest.raises(cassq.InvalidNameError, match="is not a keyspace"):
        cassq.connect("cassandra://localhost/a%20b")


def test_a_password_never_shows_in_an_error():
    with pytest.raises(cassq.InvalidOptionError) as raised:
        cassq.connect("cassandra://me:secret@localhost")

    assert "secret" not in str(raised.value)


def test_an_unreachable_host_is_named_within_ten_seconds():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: nobody answers there
        port = taken.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(cassq.StorageUnavailableError, match=f"127.0.0.1:{port}"):
            cassq.connect(f"cassandra://127.0.0.1:{port}/cassq?zookeeper=127.0.0.1:1")

    assert time.monotonic() - begun < 10


@pytest.mark.service
def test_a_missing_keyspace_says_how_to_make_it(cassandra_address):
    with pytest.raises(cassq.SchemaMismatchError, match="cassq schema apply"):
        cassq.connect(f"cassandra://{cassandra_address}/no_such_keyspace")


@pytest.mark.service
def test_a_store_without_coordination_pushes_and_says_why_it_cannot_pop(
    cassandra_address, cassandra_session, name
):
    with cassq.connect(f"cassandra://{cassandra_address}/{cassandra_session.keyspace}") as store:
        queue = store.queue(name)
        queue.push(b"x")

        with pytest.raises(cassq.InvalidOptionError, match="zookeeper="):
            queue.popper()
        assert queue.stats().waiting == 1


# -- queues and messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, "ä", "../x", 7])
def test_a_bad_queue_name_is_refused(store, bad):
    with pytest.raises(cassq.InvalidNameError):
        store.queue(bad)


def test_a_setting_out_of_range_is_refused_and_no_queue_is_made(store, name):
    with pytest.raises(cassq.InvalidOptionError, match=r"lease=0s is out of range: 0.1s to"):
        store.queue(name, lease=timedelta(0))

    assert name not in store.queues()


@pytest.mark.parametrize(
    ("body", "headers", "error", "told"),
    [
        ("text", None, cassq.InvalidOptionError, "a body is bytes, not str"),
        (None, None, cassq.InvalidOptionError, "a body is bytes, not NoneType"),
        (b"x" * 101, None, cassq.BodyTooLargeError, "has 101 bytes; the queue takes 100"),
        (b"x", {"a": 1}, cassq.InvalidOptionError, "header 'a': 1 is not str to str"),
        (b"x", {1: "a"}, cassq.InvalidOptionError, "is not str to str"),
        (b"x", ["a"], cassq.InvalidOptionError, "headers are a mapping, not list"),
        (b"x", {"a": "\ud800"}, cassq.InvalidOptionError, "UTF-8"),
        (b"x", {"a": "x" * 70_000}, cassq.BodyTooLargeError, "the headers have"),
    ],
)
def test_a_bad_message_is_refused_and_nothing_is_pushed(store, name, body, headers, error, told):
    queue = store.queue(name, body_bytes_max=100)

    for push in (queue.push, queue.push_soon):
        with pytest.raises(error, match=told):
            push(body, headers)
    with pytest.raises(error, match=told):
        queue.push_many([b"good", (body, headers) if headers else body])

    assert queue.stats().waiting <= 1


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan"), True])
def test_a_bad_timeout_is_refused(queue, timeout):
    with queue.popper() as popper, pytest.raises(cassq.InvalidOptionError, match="timeout="):
        popper.pop(timeout=timeout)


@pytest.mark.parametrize("count", [0, -1, 1.5, None, True])
def test_a_bad_count_is_refused(queue, count):
    with queue.popper() as popper, pytest.raises(cassq.InvalidOptionError, match="count="):
        popper.pop_many(count)
    with pytest.raises(cassq.InvalidOptionError, match="count="):
        queue.peek(count)


def test_a_bad_way_to_commit_is_refused(queue):
    with pytest.raises(cassq.InvalidOptionError, match="'each' or 'grouped'"):
        queue.popper(commit="never")


def test_a_bad_delay_is_refused_and_the_delivery_is_still_open(queue):
    queue.push(b"x")
    with queue.popper() as popper:
        delivery = popper.pop(timeout=10)
        for delay in (timedelta(seconds=-1), timedelta(days=8), 5):
            with pytest.raises(cassq.InvalidOptionError, match="delay="):
                delivery.rollback(delay=delay)
        delivery.commit()


def test_a_closed_store_refuses_with_the_way_out(url, name):
    store = cassq.connect(url)
    queue = store.queue(name)
    store.close()
    store.close()

    for use in (lambda: store.queue(name), lambda: queue.push(b"x"), queue.popper, queue.stats, store.reap):
        with pytest.raises(cassq.ClosedError, match="closed"):
            use()


def test_a_forked_child_gets_an_error_and_never_hangs(store, name):
    queue = store.queue(name)
    queue.push(b"x")
    with queue.popper() as popper:
        uses = (lambda: queue.push(b"x"), lambda: popper.pop(timeout=1), queue.stats, store.queues)
        child = os.fork()
        if child == 0:
            told = 0
            for use in uses:
                try:
                    use()
                except cassq.ClosedError as error:
                    told += "after a fork" in str(error)
            store.close()
            os._exit(0 if told == len(uses) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert popper.pop(timeout=10).body == b"x"


# -- the embedded file ---------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("These are my notes, and they are quite long enough to be read as a header." * 20)
    before = path.read_bytes()

    with pytest.raises(cassq.CorruptError, match="is not an SQLite database"):
        cassq.connect(f"sqlite:///{path}")

    assert path.read_bytes() == before


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE bills (id)")
    db.close()

    with pytest.raises(cassq.SchemaMismatchError, match="another program's tables"):
        cassq.connect(f"sqlite:///{path}")


def test_a_file_of_a_newer_version_is_refused(tmp_path):
    path = tmp_path / "new.db"
    cassq.connect(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(cassq.SchemaMismatchError, match="upgrade cassq"):
        cassq.connect(f"sqlite:///{path}")
    assert any("version is 99" in difference for difference in installation.check_schema(f"sqlite:///{path}"))


def test_a_file_to_which_a_newer_version_only_added_is_as_good_as_any(tmp_path):
    url = f"sqlite:///{tmp_path}/added.db"
    with cassq.connect(url) as store:
        pushed = store.queue("orders").push(b"body")
    newer = installation.schema_versions(url)[1] + 1
    with contextlib.closing(sqlite3.connect(tmp_path / "added.db")) as db, db:
        db.execute("ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT ''")
        db.execute("UPDATE schema_version SET version = ?", (newer,))

    with cassq.connect(url) as store, store.queue("orders").popper() as popper:
        delivery = popper.pop(timeout=60)
        assert delivery.message_id == pushed
        delivery.commit()
    assert installation.check_schema(url) == []
    assert installation.schema_versions(url)[0] == newer


def test_a_file_in_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(cassq.StorageUnavailableError, match="is its folder there"):
        cassq.connect(f"sqlite:///{tmp_path}/no/such/folder.db")
    with pytest.raises(cassq.InvalidOptionError, match="is a folder"):
        cassq.connect(f"sqlite:///{tmp_path}")


def test_the_migrations_replayed_equal_the_snapshot(tmp_path):
    def shape(db):
        return {
            name: db.execute(f"PRAGMA table_xinfo({name})").fetchall()
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        } | dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index'"))

    cassq.connect(f"sqlite:///{tmp_path}/migrated.db").close()
    migrated = sqlite3.connect(tmp_path / "migrated.db")
    snapshot = sqlite3.connect(":memory:")
    snapshot.executescript((resources.files("cassq") / "schema" / "sqlite.sql").read_text(encoding="utf-8"))

    assert shape(migrated) == shape(snapshot)
    migrated.close()
    snapshot.close()


def test_a_file_of_an_older_version_is_brought_up_with_what_it_holds(tmp_path):
    path = tmp_path / "older.db"
    with cassq.connect(f"sqlite:///{path}") as store:
        pushed = store.queue("orders").push(b"body")
        with store.queue("orders").popper() as popper:
            assert popper.pop(timeout=10).rollback()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("ALTER TABLE runs DROP COLUMN window_ms")
        db.execute("ALTER TABLE runs DROP COLUMN reason")
        db.execute("DROP TABLE schema_version")
        db.execute("DROP TABLE schedules")
        db.execute("DROP TABLE slots")
        db.execute("DROP TABLE documents")
        for table in ("topics", "segments", "links", "topic_writers", "progress"):
            db.execute(f"DROP TABLE {table}")
        db.execute("ALTER TABLE queues DROP COLUMN writers")
        db.execute("ALTER TABLE queues DROP COLUMN publications")
        db.execute("ALTER TABLE queues DROP COLUMN expired")
        db.execute("ALTER TABLE heads DROP COLUMN expired")
        db.execute("ALTER TABLE waiting DROP COLUMN ttl_ms")
        younger = {
            "heads": ("journal", "journal_from", "journal_kind"),
            "pipes": ("type", "due_class", "moved_from", "slot"),
            "dead": ("type", "priority", "key"),
            "waiting": ("dues", "origins", "keys"),
            "marks": ("target", "attempt", "ended_at_ms"),
            "runs": ("past",),
        }
        for table, columns in younger.items():
            for column in columns:
                db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        db.execute("PRAGMA user_version = 1")

    with cassq.connect(f"sqlite:///{path}") as store, store.queue("orders").popper() as popper:
        delivery = popper.pop(timeout=10)
        assert (delivery.message_id, delivery.attempt) == (pushed, 2)
        delivery.commit()


FULL_DISK = """
import sys
from datetime import timedelta
import cassq

store = cassq.connect(f"sqlite:///{sys.argv[1]}/full.db")
queue = store.queue("q")
pushed = []
try:
    while True:
        pushed.append(queue.push(b"x" * 50_000, timeout=timedelta(seconds=1)))
except cassq.StorageUnavailableError as error:
    assert "the disk is full" in str(error), error
with queue.popper() as popper:
    store.storage.read_queues()
    got = {message.message_id for message in queue.peek(len(pushed) + 10)}
assert got >= set(pushed), "an acknowledged push is gone"
print(len(pushed))
"""


def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(FULL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=4m tmpfs "{disk}" && exec "{sys.executable}" "{script}" "{disk}"'

    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


READ_ONLY = """
import sys, cassq
try:
    cassq.connect(f"sqlite:///{sys.argv[1]}/store.db").queue("q").push(b"x")
except cassq.StorageUnavailableError as error:
    print(error)
"""


def test_a_read_only_file_is_told(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    cassq.connect(f"sqlite:///{folder}/store.db").close()
    script = tmp_path / "script.py"
    script.write_text(READ_ONLY)
    mount = (
        f'mount --bind "{folder}" "{folder}" && mount -o remount,bind,ro "{folder}" && '
        f'exec "{sys.executable}" "{script}" "{folder}"'
    )

    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )

    assert "read-only" in done.stdout or "cannot be opened" in done.stdout, done.stderr
