"""The Cassandra schema: loaded by cqlsh and by the library, compared, migrated, refused when it is wrong."""

import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cassq.errors import InvalidNameError, InvalidOptionError, SchemaMismatchError, StorageUnavailableError
from cassq.limits import UNDECIDED
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.pipe import Head, PipeEntry
from cassq.storage.cassandra import Address, CassandraSchema, open_session, open_storage
from cassq.storage.cassandra.cql_file import read_migrations, read_shapes
from cassq.storage.cassandra.facts import read_facts
from cassq.storage.cassandra.schema import VERSION, Mended
from cassq.storage.cassandra.storage import CassandraStorage

pytestmark = pytest.mark.service

FILE = Path(__file__).parents[2] / "schema" / "cassandra.cql"
ONE_REPLICA = {"class": "SimpleStrategy", "replication_factor": 1}


def hosts():
    text = os.environ.get("CASSQ_TEST_CASSANDRA")
    if not text:
        pytest.fail("CASSQ_TEST_CASSANDRA is not set: run tools/test, or `tools/services env` first")
    return [(host, int(port)) for host, _, port in (part.rpartition(":") for part in text.split(","))]


@pytest.fixture
def open_keyspace():
    """Sessions on keyspaces of fresh names, which are dropped at the end."""
    opened = []

    def open_one(keyspace=None):
        session = open_session(Address(hosts()), keyspace or f"cassq_test_{secrets.token_hex(6)}")
        opened.append((session, keyspace is None))
        return session

    yield open_one
    for session, is_ours in opened:
        if is_ours:
            session.define(f"DROP KEYSPACE IF EXISTS {session.keyspace}")
        session.close()


@pytest.fixture
def session(open_keyspace):
    return open_keyspace()


def described(session):
    """Return everything that the server knows of a keyspace's tables, apart from names and ids."""
    found = {}
    for table in ("tables", "columns", "indexes", "types", "views"):
        query = f"SELECT JSON * FROM system_schema.{table} WHERE keyspace_name = '{session.keyspace}'"
        rows = [row[0].replace(session.keyspace, "KEYSPACE") for row in session.ask(query)]
        found[table] = [
            row[: row.index('"id"')] + row[row.index('"id"') + 46 :] if '"id"' in row else row for row in rows
        ]
    assert found["tables"]
    return found


def run_cqlsh(file):
    host, port = hosts()[0]
    program = Path(sys.executable).with_name("cqlsh")
    return subprocess.run(
        [sys.executable, program, host, str(port), "-f", file],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class TestCqlsh:
    def test_loads_the_file_as_it_stands_and_again(self, open_keyspace):
        for _ in range(2):
            loaded = run_cqlsh(FILE)
            assert loaded.returncode == 0, loaded.stderr

        assert CassandraSchema(open_keyspace("cassq")).check() == []

    def test_loads_what_the_library_applies(self, session, open_keyspace, tmp_path):
        other = open_keyspace()
        text = FILE.read_text().replace("NOT EXISTS cassq\n", f"NOT EXISTS {other.keyspace}\n")
        file = tmp_path / "renamed.cql"
        file.write_text(text.replace(" cassq.", f" {other.keyspace}."))

        CassandraSchema(session).apply()
        loaded = run_cqlsh(file)

        assert loaded.returncode == 0, loaded.stderr
        assert described(session) == described(other)


class TestApply:
    def test_brings_an_empty_cluster_to_this_version(self, session):
        schema = CassandraSchema(session)
        assert schema.version() is None

        schema.apply(ONE_REPLICA)

        assert schema.version() == VERSION
        assert schema.check() == []
        schema.check_version()

    def test_brings_an_older_schema_up_with_what_it_holds(self, session):
        for statement in read_migrations(session.keyspace)[1]:
            session.define(statement)
        storage = CassandraStorage(session)
        pipe, seen = new_pipe_id(), new_token()
        session.define(
            f"INSERT INTO {session.keyspace}.pending (pipe, seq, kind, op, cursor, read_from, floor, phase,"
            " last, skipped, dead, purged, rolled_back)"
            f" VALUES ({pipe}, -1, 0, {seen}, 0, 1, 0, 'open', {UNDECIDED}, 0, 0, 0, 0)"
        )
        session.define(
            f"INSERT INTO {session.keyspace}.pending (pipe, seq, kind, last, read_from, state, attempt,"
            " lease_id, leased_at, lease_ms, not_before, holder, rolled_back)"
            f" VALUES ({pipe}, 1, 1, 4, 1, 'leased', 1, {seen}, 5, 30000, 0, 'a popper', 0)"
        )
        session.define(
            f"UPDATE {session.keyspace}.pending SET cursor = 4, read_from = 5"
            f" WHERE pipe = {pipe} AND seq = -1 AND kind = 0"
        )

        CassandraSchema(session).apply()

        assert CassandraSchema(session).check() == []
        (run,) = storage.load_pipe(pipe).runs
        assert (run.first, run.last, run.window_ms) == (1, 4, 0)

    def test_again_changes_nothing(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        before = described(session)

        schema.apply()

        assert described(session) == before

    def test_puts_a_missing_table_back(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        session.define(f"DROP TABLE {session.keyspace}.dead")

        schema.apply()

        assert schema.check() == []

    def test_mends_columns_and_options_that_have_drifted_and_keeps_what_is_stored(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        storage = CassandraStorage(session)
        pipe = new_pipe_id()
        storage.create_pipe("orders", PipeEntry(pipe, "a pusher"), Head(new_token()))
        for change in (
            "ALTER TABLE {ks}.pending DROP holder",
            "ALTER TABLE {ks}.waiting WITH gc_grace_seconds = 3600",
            "ALTER TABLE {ks}.pending WITH read_repair = 'NONE'",
            "ALTER TABLE {ks}.pending WITH speculative_retry = 'NEVER'",
            "ALTER TABLE {ks}.dead WITH comment = 'it''s ours'",
            "ALTER TABLE {ks}.pipes WITH default_time_to_live = 60",
            "ALTER TABLE {ks}.queues WITH compaction = {{'class': 'LeveledCompactionStrategy'}}",
        ):
            session.define(change.format(ks=session.keyspace))
        drifted = schema.check()

        mended = schema.apply()

        assert sorted(mended.done) == sorted(drifted)
        assert len(drifted) == 7
        assert (mended.left, mended.statements) == ((), ())
        assert schema.check() == []
        assert storage.load_pipe(pipe) is not None

    def test_leaves_settings_of_compaction_that_the_file_does_not_name(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        tuned = "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T8'}"
        for table in ("pipes", "dead"):
            session.define(f"ALTER TABLE {session.keyspace}.{table} WITH compaction = {tuned}")

        mended = schema.apply()

        (told,) = mended.done
        assert told.startswith("compaction of table pipes is UnifiedCompactionStrategy, and should be ")
        kept = session.ask(
            "SELECT compaction FROM system_schema.tables "
            f"WHERE keyspace_name = '{session.keyspace}' AND table_name = 'pipes'"
        )
        assert dict(kept[0][0])["scaling_parameters"] == "T8"
        assert schema.check() == []

    def test_hands_over_the_statements_that_would_remove_what_is_stored(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        session.define(f"DROP TABLE {session.keyspace}.dead")
        session.define(f"CREATE TABLE {session.keyspace}.dead (queue text PRIMARY KEY, seq int)")
        session.define(f"ALTER TABLE {session.keyspace}.pipes ADD colour text")

        mended = schema.apply()

        assert "column dead.seq is int, and should be bigint, clustering 2 asc" in mended.left
        assert schema.check() == list(mended.left)
        for statement in mended.statements:
            session.define(statement)
        assert schema.check() == []

    def test_hands_over_the_statements_that_drop_an_index_of_others(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        for statement in (
            "ALTER TABLE {ks}.pipes ADD colour text",
            "CREATE INDEX by_colour ON {ks}.pipes (colour)",
            'CREATE INDEX "ByHolder" ON {ks}.pending (holder)',
        ):
            session.define(statement.format(ks=session.keyspace))

        mended = schema.apply()

        assert mended.done == ()
        assert schema.check() == list(mended.left)
        assert "index ByHolder of table pending is not one of cassq's" in mended.left
        assert f"DROP INDEX {session.keyspace}.by_colour" in mended.statements
        for statement in mended.statements:
            session.define(statement)
        assert schema.check() == []

    def test_tells_why_the_server_refuses_to_mend(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        session.define(f"ALTER TABLE {session.keyspace}.pending DROP holder")
        session.define(f"ALTER TABLE {session.keyspace}.pending ADD holder blob")
        session.define(f"ALTER TABLE {session.keyspace}.pending DROP holder")

        mended = schema.apply()

        (left,) = mended.left
        assert left.startswith("column pending.holder (text) is missing; the server refused to mend it: ")
        assert "holder" in mended.statements[0]

    def test_takes_the_replication_that_it_is_given(self, session):
        CassandraSchema(session).apply({"class": "NetworkTopologyStrategy", "datacenter1": 1})

        replication = read_facts(session, time.time).replication
        assert replication["class"].endswith("NetworkTopologyStrategy")
        assert replication["datacenter1"] == "1"

    def test_leaves_the_replication_of_a_keyspace_that_is_there(self, session):
        session.define(
            f"CREATE KEYSPACE {session.keyspace} "
            "WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
        )

        CassandraSchema(session).apply(ONE_REPLICA)

        assert read_facts(session, time.time).replication["class"].endswith("NetworkTopologyStrategy")
        assert CassandraSchema(session).check() == []

    def test_the_migrations_replayed_from_nothing_give_the_same_schema(self, session, open_keyspace):
        replayed = open_keyspace()
        CassandraSchema(session).apply()

        migrations = read_migrations(replayed.keyspace)
        for statements in migrations.values():
            for statement in statements:
                replayed.define(statement)

        assert list(migrations) == list(range(1, VERSION + 1))
        assert described(replayed) == described(session)
        assert CassandraSchema(replayed).version() == VERSION


class TestCheck:
    def test_knows_every_table_of_the_file(self):
        tables = ["batches", "dead", "documents", "links", "pending", "pipes", "progress", "queues"]
        tables += [
            "schedules",
            "schema_version",
            "segments",
            "slots",
            "staged",
            "statistics",
            "topics",
            "waiting",
        ]
        assert sorted(read_shapes()) == tables

    def test_names_every_planted_difference(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        leveled = "LeveledCompactionStrategy"
        for change in (
            "DROP TABLE {ks}.dead",
            "ALTER TABLE {ks}.pending DROP holder",
            "ALTER TABLE {ks}.pipes ADD colour text",
            "ALTER TABLE {ks}.waiting WITH gc_grace_seconds = 3600",
            "ALTER TABLE {ks}.pending WITH read_repair = 'NONE'",
            "ALTER TABLE {ks}.pipes WITH default_time_to_live = 60",
            "ALTER TABLE {ks}.statistics WITH default_time_to_live = 0",
            "ALTER TABLE {ks}.queues WITH compaction = {{'class': 'LeveledCompactionStrategy'}}",
        ):
            session.define(change.format(ks=session.keyspace))

        assert sorted(schema.check()) == [
            "column pending.holder (text) is missing",
            "column pipes.colour (text) is not one of cassq's",
            f"compaction of table queues is {leveled}, and should be UnifiedCompactionStrategy",
            "default_time_to_live of table pipes is 60, and should be 0",
            "default_time_to_live of table statistics is 0, and should be 2592000",
            "gc_grace_seconds of table waiting is 3600, and should be 86400",
            "read_repair of table pending is NONE, and should be BLOCKING",
            "table dead is missing",
        ]

    def test_names_a_table_of_another_shape(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        session.define(f"DROP TABLE {session.keyspace}.dead")
        session.define(f"CREATE TABLE {session.keyspace}.dead (queue text PRIMARY KEY, seq int)")

        differences = schema.check()

        assert (
            "column dead.queue is text, partition key 1, and should be text, partition key 1"
            not in differences
        )
        assert "column dead.seq is int, and should be bigint, clustering 2 asc" in differences
        assert "column dead.body (blob) is missing" in differences

    def test_says_that_the_keyspace_is_not_there(self, session):
        assert CassandraSchema(session).check() == [f"keyspace {session.keyspace} does not exist"]


class TestOpening:
    def test_a_missing_keyspace_names_the_way_out(self):
        with pytest.raises(
            SchemaMismatchError, match=r"'no_such_keyspace' does not exist.*cassq schema apply"
        ):
            open_storage(Address(hosts()), "no_such_keyspace")

    def test_a_keyspace_without_tables_names_the_way_out(self, session):
        session.define(f"CREATE KEYSPACE {session.keyspace} WITH replication = {ONE_REPLICA}")

        with pytest.raises(SchemaMismatchError, match=r"has no tables.*cassq schema apply"):
            open_storage(Address(hosts()), session.keyspace)

    def test_a_newer_schema_is_refused_and_never_made_older(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        session.define(
            f"INSERT INTO {session.keyspace}.schema_version (component, version) "
            f"VALUES ('cassq', {VERSION + 1})"
        )

        with pytest.raises(SchemaMismatchError, match="newer cassq"):
            open_storage(Address(hosts()), session.keyspace)
        with pytest.raises(SchemaMismatchError, match="newer cassq"):
            schema.apply()

        assert schema.version() == VERSION + 1
        assert any("version" in difference for difference in schema.check())

    def test_one_to_which_a_newer_version_only_added_is_as_good_as_any(self, session):
        schema = CassandraSchema(session)
        schema.apply()
        session.define(f"ALTER TABLE {session.keyspace}.pending ADD colour text")
        session.define(
            f"INSERT INTO {session.keyspace}.schema_version (component, version) "
            f"VALUES ('added', {VERSION + 1})"
        )

        open_storage(Address(hosts()), session.keyspace).close()

        assert schema.check() == []
        assert schema.apply() == Mended()
        assert schema.version() == VERSION + 1

    def test_an_older_schema_is_refused(self, session):
        CassandraSchema(session).apply()
        for component in ("cassq", "added"):
            session.define(f"DELETE FROM {session.keyspace}.schema_version WHERE component = '{component}'")
        session.define(
            f"INSERT INTO {session.keyspace}.schema_version (component, version) VALUES ('cassq', 0)"
        )

        with pytest.raises(SchemaMismatchError, match=r"version 0.*cassq schema apply"):
            open_storage(Address(hosts()), session.keyspace)

    def test_an_unchecked_store_tells_at_the_first_call(self, session):
        storage = open_storage(Address(hosts()), session.keyspace, is_schema_checked=False)

        with pytest.raises(SchemaMismatchError, match="cassq schema apply"):
            storage.read_queues("orders")

        storage.close()

    def test_a_table_that_is_dropped_while_it_is_used_is_told(self, session):
        CassandraSchema(session).apply()
        storage = open_storage(Address(hosts()), session.keyspace)
        assert list(storage.read_dead("orders")) == []

        session.define(f"DROP TABLE {session.keyspace}.dead")

        with pytest.raises(SchemaMismatchError, match="cassq schema apply"):
            storage.read_dead("orders")
        storage.close()

    @pytest.mark.parametrize("name", ["", "Orders", "a-b", "1a", "a" * 49, 'x"; DROP', None])
    def test_a_name_that_is_none_is_refused(self, name):
        with pytest.raises(InvalidNameError):
            open_storage(Address([("127.0.0.1", 1)]), name)

    def test_a_host_that_refuses_is_named(self):
        with pytest.raises(StorageUnavailableError, match=r"127\.0\.0\.1:1\b"):
            open_storage(Address([("127.0.0.1", 1)]), "cassq")

    def test_a_host_name_that_is_none_is_named(self):
        with pytest.raises(StorageUnavailableError, match=r"no-such-host\.invalid"):
            open_storage(Address([("no-such-host.invalid", 9042)]), "cassq")

    def test_a_datacenter_that_there_is_not_is_named(self):
        with pytest.raises(InvalidOptionError, match="has no datacenter 'atlantis'; it has"):
            open_storage(Address(hosts(), datacenter="atlantis"), "cassq")

    @pytest.mark.slow
    @pytest.mark.parametrize("count", [1, 3])
    def test_hosts_that_never_answer_are_named_within_ten_seconds(self, count):
        silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        ports = [listener.getsockname()[1] for listener in silent]
        started = time.monotonic()

        with pytest.raises(StorageUnavailableError, match=rf"127\.0\.0\.1:{ports[-1]}"):
            open_storage(Address([("127.0.0.1", port) for port in ports]), "cassq")

        assert time.monotonic() - started < 10
        for listener in silent:
            listener.close()


class TestFacts:
    def test_tells_what_doctor_asks_for(self, session):
        CassandraSchema(session).apply()

        facts = read_facts(session, time.time)

        assert any(node.is_up and node.release_version for node in facts.nodes)
        assert facts.gc_grace_s == dict.fromkeys(read_shapes(), 86400) | {"pipes": 3600}
        assert facts.replication["replication_factor"] == "1"
        assert facts.settings["paxos_variant"] in {"v1", "v2"}
        assert facts.settings["max_hint_window"] == "3h"
        assert facts.settings["commitlog_sync"] == "periodic"
        assert (facts.unreadable, facts.unwritable, facts.closed, facts.hints) == ((), (), (), ())
        assert facts.repaired_at == dict.fromkeys(read_shapes(), 0.0)
        assert set(facts.started_at) == {node.address for node in facts.nodes}
        assert abs(facts.clock_offset_ms) <= 1000

    def test_sees_a_clock_that_is_off(self, session):
        CassandraSchema(session).apply()

        facts = read_facts(session, lambda: time.time() - 3600)

        assert facts.clock_offset_ms == pytest.approx(3_600_000, abs=1000)
