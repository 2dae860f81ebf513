"""The command line over real Cassandra and ZooKeeper."""

import json
import secrets
import signal
import socket

import pytest
from command_line import CommandLine, cluster_url, finish, service

import cassq
from cassq.storage.cassandra import Address, open_session
from cassq.storage.cassandra.schema import VERSION

pytestmark = pytest.mark.service


def contact_points():
    hosts = (each.rpartition(":") for each in service("CASSQ_TEST_CASSANDRA").split(","))
    return [(host, int(port)) for host, _, port in hosts]


@pytest.fixture(scope="module")
def keyspace():
    """A keyspace's name; dropped at the end."""
    name = f"cassq_cli_{secrets.token_hex(5)}"
    yield name
    session = open_session(Address(contact_points()), name)
    session.define(f"DROP KEYSPACE IF EXISTS {name}")
    session.close()


@pytest.fixture(scope="module")
def cli(keyspace):
    """The command line with a store whose schema it has applied."""
    cli = CommandLine(cluster_url(keyspace))
    applied = cli.json("schema", "apply", "--replication", "simple:1")
    assert applied == {"version": VERSION, "mended": [], "left": [], "statements": []}
    return cli


@pytest.fixture
def queue(cli):
    """A queue of this test."""
    name = f"q-{secrets.token_hex(4)}"
    cli.ok("queue", "create", name)
    return name


def closed_port():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return closed.getsockname()[1]


class TestSchema:
    def test_that_is_missing_is_told_with_the_way_out(self):
        cli = CommandLine(cluster_url(f"cassq_cli_{secrets.token_hex(5)}"))

        done = cli.run("queue", "list")
        assert done.returncode == 78
        assert "cassq schema apply" in done.stderr

        check = cli.run("schema", "check")
        assert check.returncode == 1
        assert "does not exist" in check.stdout
        assert cli.ok("schema", "version") == "none\n"
        assert cli.run("doctor").returncode == 1

    def test_is_applied_again_without_harm(self, cli):
        cli.ok("schema", "apply", "--replication", "simple:1")

        assert cli.json("schema", "check") == {"differences": []}
        assert cli.json("schema", "version") == {"version": VERSION, "needed": VERSION}

    def test_that_differs_is_told(self, cli, keyspace):
        session = open_session(Address(contact_points()), keyspace)
        session.define(f"ALTER TABLE {keyspace}.dead ADD surplus text")

        done = cli.run("schema", "check", "--json")

        session.define(f"ALTER TABLE {keyspace}.dead DROP surplus")
        session.close()
        assert done.returncode == 1
        assert "surplus" in json.loads(done.stdout)["differences"][0]

    def test_that_has_drifted_is_mended_or_the_way_is_told(self, cli, keyspace):
        session = open_session(Address(contact_points()), keyspace)
        session.define(f"ALTER TABLE {keyspace}.dead WITH gc_grace_seconds = 60")
        mended = cli.run("schema", "apply")
        session.define(f"ALTER TABLE {keyspace}.dead ADD surplus text")
        left = cli.run("schema", "apply")

        for statement in left.stdout.split(";\n")[:-1]:
            session.define(statement)
        session.close()
        assert mended.returncode == 0
        assert "mended: gc_grace_seconds of table dead is 60, and should be 86400" in mended.stderr
        assert left.returncode == 1
        assert "left: column dead.surplus (text) is not one of cassq's" in left.stderr
        assert cli.json("schema", "check") == {"differences": []}

    def test_that_is_shown_can_be_loaded(self, cli, keyspace):
        text = cli.ok("schema", "show", "--replication", "simple:1")

        assert f"CREATE TABLE IF NOT EXISTS {keyspace}.queues" in text
        session = open_session(Address(contact_points()), keyspace)
        for statement in text.split(";\n"):
            if statement.strip():
                session.define(statement)
        session.close()
        assert cli.json("schema", "check") == {"differences": []}


class TestCommands:
    def test_a_message_goes_through(self, cli, queue):
        (pushed,) = cli.lines("push", queue, "--header", "type=new", stdin=b"one")

        assert cli.ok("peek", queue) == "one\n"
        (popped,) = cli.lines("pop", queue, "--commit", "--timeout", "10")
        assert (popped["id"], popped["body"]) == (pushed["id"], "one")
        found = cli.json("queue", "stats", queue)
        assert (found["pushed"], found["committed"], found["waiting"]) == (1, 1, 0)
        assert cli.json("reap")["failed"] == []

    def test_a_message_is_given_back(self, cli, queue):
        cli.ok("push", queue, stdin=b"one")

        assert cli.ok("pop", queue, "--timeout", "10") == "one\n"
        (again,) = cli.lines("pop", queue, "--commit", "--timeout", "10")
        assert again["attempt"] == 2

    def test_follows_until_a_signal(self, cli, queue):
        following = cli.start("pop", queue, "--follow", "--commit")
        with cassq.connect(cli.url) as store:
            store.find_queue(queue).push(b"one")
            assert following.stdout.readline() == b"one\n"

        following.send_signal(signal.SIGTERM)

        assert finish(following)[0] == 0

    def test_a_queue_is_steered_and_ended(self, cli, queue):
        cli.ok("push", queue, "--lines", "-q", stdin=b"one\ntwo\n")

        assert cli.json("queue", "pause", queue)["state"] == "paused"
        assert cli.json("queue", "resume", queue)["state"] == "active"
        assert len(cli.json("queue", "pipes", queue)) == 1
        assert cli.json("queue", "purge", queue, "--yes")["purged"] == 2
        cli.ok("queue", "delete", queue, "--yes")
        assert {"queue": queue} not in cli.json("queue", "list")


class TestOutage:
    def test_without_zookeeper_a_pop_says_what_is_missing(self, cli, queue):
        done = cli.run("pop", queue, "--url", cli.url.partition("?")[0])

        assert done.returncode == 64
        assert "zookeeper=HOST:PORT" in done.stderr

    def test_with_zookeeper_out_of_reach_pushes_go_on_and_pops_say_why(self, cli, queue):
        url = f"{cli.url.partition('?')[0]}?zookeeper=127.0.0.1:{closed_port()}"

        assert cli.run("push", queue, "--url", url, stdin=b"one").returncode == 0
        done = cli.run("pop", queue, "--url", url, timeout=15)

        assert done.returncode == 75
        assert "ZooKeeper at" in done.stderr
        assert "out of reach" in done.stderr


class TestDoctor:
    def test_looks_at_everything(self, cli):
        found = {each["check"]: each for each in cli.json("doctor")["checks"]}

        assert set(found) >= {
            *("cassandra", "version", "schema", "replication", "gc_grace", "clock"),
            *("zookeeper", "zookeeper_version", "pipes"),
        }
        assert found["replication"]["level"] == "warn"
        assert "replication factor 1" in found["replication"]["told"]
        assert found["schema"]["level"] == found["clock"]["level"] == found["zookeeper"]["level"] == "ok"

    def test_looks_at_cassandra_though_zookeeper_is_away(self, cli):
        url = f"{cli.url.partition('?')[0]}?zookeeper=127.0.0.1:{closed_port()}"

        done = cli.run("doctor", "--json", "--url", url)

        found = {each["check"]: each["level"] for each in json.loads(done.stdout)["checks"]}
        assert done.returncode == 1
        assert (found["schema"], found["zookeeper"]) == ("ok", "fail")

    def test_looks_at_zookeeper_though_cassandra_is_away(self):
        url = f"cassandra://127.0.0.1:{closed_port()}/x?zookeeper={service('CASSQ_TEST_ZOOKEEPER')}"

        done = CommandLine(url).run("doctor", "--json")

        found = {each["check"]: each["level"] for each in json.loads(done.stdout)["checks"]}
        assert done.returncode == 1
        assert (found["cassandra"], found["zookeeper"]) == ("fail", "ok")
