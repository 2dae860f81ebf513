"""`cassq bench` measures what it says, leaves nothing behind, and tells no figure for what did not come."""

import json
import os
import re
import secrets
import signal
import sqlite3
import subprocess
import termios
from pathlib import Path

import pytest
from command_line import CASSQ, CommandLine, cluster_url, finish, service

import cassq
from cassq.cli.bench.command import own_queue
from cassq.cli.bench.figures import Latencies
from cassq.cli.bench.messages import BenchFailedError, Plan, number_of, numbered_bodies
from cassq.cli.bench.throughput import measure_pop
from cassq.storage.cassandra import Address, open_session

SMALL = ("--messages", "500", "--rate", "50", "--seconds", "1")


@pytest.fixture
def cli(tmp_path):
    return CommandLine(f"sqlite:///{tmp_path}/store.db")


def check(found, messages, rate, seconds, body_bytes=256):
    for what in ("push", "pop_and_commit"):
        told = found[what]
        assert told["messages"] == messages
        assert told["messages_per_second"] == pytest.approx(messages / told["seconds"])
        assert told["bytes_per_second"] == pytest.approx(told["messages_per_second"] * body_bytes)
    flow = found["push_to_pop"]
    assert (flow["messages"], flow["messages_per_second"], flow["seconds"]) == (rate * seconds, rate, seconds)
    latencies = [flow["latency_ms"][name] for name in ("p50", "p90", "p99", "max")]
    assert latencies[0] > 0
    assert latencies == sorted(latencies)


#: A line of a flow that flows.
FLOWING = r"push to pop: [1-9]"


def read_until(running, pattern):
    """Read what a command says until a line begins like that."""
    for line in running.stderr:
        if re.match(pattern, line.decode()):
            return
    raise AssertionError(f"it ended without saying {pattern!r}")


def children_of(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=True)
    return [int(each) for each in listed.stdout.split()]


class TestEmbedded:
    def test_measures_and_leaves_nothing(self, cli):
        found = cli.json("bench", *SMALL)

        check(found, messages=500, rate=50, seconds=1)
        assert found["settings"]["cassq"] == cassq.__version__
        assert found["settings"]["store"] == cli.url
        assert found["settings"]["queue"].startswith("bench-")
        assert found["settings"]["cores"] >= 1
        assert cli.json("queue", "list") == []

    def test_takes_bodies_larger_than_a_queue_takes_by_default(self, cli):
        found = cli.json(
            *("bench", "--body-bytes", "2MiB", "--messages", "3", "--rate", "2", "--seconds", "1")
        )

        check(found, messages=3, rate=2, seconds=1, body_bytes=2 << 20)

    def test_tells_settings_first_then_how_far_it_is_and_then_a_table(self, cli):
        done = cli.run("bench", *SMALL, "--body-bytes", "8", "--queue", "mine")

        assert done.returncode == 0, done.stderr
        settings, *lines = done.stderr.splitlines()
        assert settings.startswith(f"cassq {cassq.__version__}, python ")
        assert f"store {cli.url}, queue mine, body bytes 8, cores " in settings
        assert any(line.startswith("push to pop: ") and line.endswith(" of 100 messages") for line in lines)
        told = done.stdout.splitlines()
        assert told[0].split() == ["messages", "seconds", "messages/s", "MiB/s"]
        assert [line.split("  ")[0] for line in told[1:3]] == ["push", "pop + commit"]
        assert told[4].split("  ") == ["push to pop", "messages", "p50 ms", "p90 ms", "p99 ms", "max ms"]
        assert told[5].split()[:2] == ["50/s", "50"]
        assert cli.json("queue", "list") == []

    def test_shows_a_bar_on_a_terminal(self, cli):
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (24, 100))
        running = subprocess.Popen(
            [CASSQ, "bench", *SMALL], stdout=subprocess.DEVNULL, stderr=theirs, env=cli.env
        )
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:
            pass  # how Linux tells that the other side of a terminal was closed
        os.close(ours)

        assert running.wait(30) == 0
        assert b"push to pop: " in shown
        assert b"/100 [" in shown

    def test_a_store_that_hangs_is_told_in_the_latencies(self, cli, tmp_path):
        running = cli.start("bench", "--json", *("--messages", "10", "--rate", "50", "--seconds", "5"))
        read_until(running, FLOWING)
        locking = sqlite3.connect(tmp_path / "store.db", timeout=30, isolation_level=None)
        locking.execute("BEGIN IMMEDIATE")

        read_until(running, FLOWING)  # which may have been said before
        read_until(running, FLOWING)
        read_until(running, FLOWING)  # a second after that
        locking.execute("ROLLBACK")
        locking.close()
        stdout, stderr = running.communicate(timeout=60)

        assert running.returncode == 0, stderr
        found = json.loads(stdout)
        check(found, messages=10, rate=50, seconds=5)
        assert found["push_to_pop"]["latency_ms"]["max"] > 900


class TestQueueOfItsOwn:
    def test_a_queue_that_exists_is_refused_and_kept(self, cli):
        cli.ok("queue", "create", "orders")
        cli.ok("push", "orders", stdin=b"one")

        done = cli.run("bench", *SMALL, "--queue", "orders")

        assert done.returncode == 64
        assert "queue 'orders' exists already" in done.stderr
        assert "give --queue another name" in done.stderr
        assert cli.json("queue", "stats", "orders")["waiting"] == 1

    def test_a_queue_that_is_made_in_the_same_moment_is_refused_and_kept(self, cli, monkeypatch):
        with cassq.connect(cli.url) as store, cassq.connect(cli.url) as theirs:
            look = store.queues

            def look_and_lose() -> list[str]:
                found = look()
                theirs.queue("orders")
                return found

            monkeypatch.setattr(store, "queues", look_and_lose)

            with (
                pytest.raises(cassq.InvalidOptionError, match="exists already"),
                own_queue(store, "orders", 256),
            ):
                raise AssertionError("it was lent")

            assert theirs.queues() == ["orders"]

    def test_a_queue_that_took_its_place_is_kept(self, cli):
        with cassq.connect(cli.url) as store, cassq.connect(cli.url) as theirs:
            with own_queue(store, "mine", 256):
                theirs.delete_queue("mine")
                theirs.queue("mine")

            assert theirs.queues() == ["mine"]

    def test_a_signal_while_it_pushes_leaves_no_queue(self, cli):
        running = cli.start("bench", "--messages", "5000000")
        read_until(running, "push: [1-9]")

        running.send_signal(signal.SIGINT)

        assert finish(running, 60)[0] == 130
        assert cli.json("queue", "list") == []

    def test_a_signal_while_it_pops_leaves_no_queue(self, cli):
        running = cli.start("bench", "--messages", "200000", "--queue", "mine")
        read_until(running, "cassq .* queue mine")
        with cassq.connect(cli.url) as store:
            queue = store.find_queue("mine")
            while not queue.stats().committed:
                assert running.poll() is None

        running.send_signal(signal.SIGINT)

        assert finish(running, 60)[0] == 130
        assert cli.json("queue", "list") == []

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_while_it_takes_latencies_leaves_neither_queue_nor_process(self, cli, number):
        running = cli.start("bench", "--messages", "10", "--rate", "50", "--seconds", "60")
        read_until(running, FLOWING)
        (child,) = children_of(running.pid)

        running.send_signal(number)

        assert finish(running, 60)[0] == 128 + number
        assert not Path(f"/proc/{child}").exists()
        assert cli.json("queue", "list") == []

    def test_a_popping_process_that_dies_is_told_and_leaves_no_queue(self, cli):
        running = cli.start("bench", "--messages", "10", "--rate", "50", "--seconds", "60")
        read_until(running, FLOWING)
        (child,) = children_of(running.pid)

        os.kill(child, signal.SIGKILL)

        code, said = finish(running, 60)
        assert code == 1
        assert "the popping process ended with exit code -9" in said
        assert cli.json("queue", "list") == []

    def test_a_queue_that_is_deleted_under_it_ends_it(self, cli):
        running = cli.start(
            *("bench", "--queue", "mine", "--messages", "10", "--rate", "50", "--seconds", "60")
        )
        read_until(running, FLOWING)

        cli.ok("queue", "delete", "mine", "--yes")

        assert finish(running, 60)[0] in {1, 66}  # whichever of its two processes hears of it first
        assert cli.json("queue", "list") == []


class _NoBar:
    def update(self, count):
        pass


class TestFigure:
    """A count that cannot fail counts nothing."""

    def measure(self, cli, numbers, expected):
        """Pop what has these numbers where others are expected."""
        bodies = list(numbered_bodies(100, 16))
        with cassq.connect(cli.url) as store:
            queue = store.queue("orders")
            queue.push_many([bodies[number] for number in numbers])
            plan = Plan(expected, body_bytes=16, rate=1, seconds=1, patience_s=1)
            return measure_pop(queue, plan, _NoBar(), lambda: None)

    def test_is_told_when_each_came_once(self, cli):
        assert self.measure(cli, range(10), 10).messages == 10

    @pytest.mark.parametrize(
        ("numbers", "words"),
        [
            ([0, 1, 2, 4], "of 5 messages 1 never came (number 3)"),
            ([0, 1, 2, 3, 3], "1 never came (number 4), 1 came twice (number 3)"),
            ([0, 1, 2, 3, 4, 4], "of 5 messages 1 came twice (number 4)"),
            ([0, 1, 2, 3, 99], "never pushed: it begins with number 99"),
        ],
    )
    def test_is_withheld_when_a_message_is_missing_or_came_twice(self, cli, numbers, words):
        with pytest.raises(BenchFailedError) as caught:
            self.measure(cli, numbers, 5)

        assert words in str(caught.value)

    def test_names_only_the_first_of_many(self, cli):
        with pytest.raises(BenchFailedError, match=r"9 never came \(number 1, 2, 3, 4, 5, …\)"):
            self.measure(cli, [0], 10)


class TestParts:
    def test_bodies_have_their_numbers_and_their_size(self):
        for size in (8, 9, 256, 3_000_000):
            bodies = list(numbered_bodies(3, size))

            assert [len(body) for body in bodies] == [size] * 3
            assert [number_of(body) for body in bodies] == [0, 1, 2]

    @pytest.mark.parametrize(
        ("samples_ms", "told"),
        [
            (range(100, 0, -1), [50, 90, 99, 100]),
            ([7], [7, 7, 7, 7]),
            ([1, 2, 3], [2, 3, 3, 3]),
            (range(1, 1001), [500, 900, 990, 1000]),
        ],
    )
    def test_percentiles_are_samples(self, samples_ms, told):
        latencies = Latencies(ms / 1000 for ms in samples_ms)

        assert [latencies.at_ms(percent) for percent in (50, 90, 99, 100)] == pytest.approx(told)


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--messages", "0"), "0 is not in the range 1<=x<=10000000"),
            (("--messages", "many"), "'many' is not a valid integer"),
            (("--rate", "100001"), "100001 is not in the range 1<=x<=100000"),
            (("--rate", "0.5"), "'0.5' is not a valid integer"),
            (("--seconds", "0"), "'0' is out of range: whole seconds, 1s to 3600s"),
            (("--body-bytes", "7"), "'7' is out of range: 8 bytes (a number stands in them) to 8MiB"),
            (("--body-bytes", "9MiB"), "'9MiB' is out of range"),
            (("--body-bytes", "1MB"), "'1MB' is not a number of bytes: write 4096, 64KiB or 1MiB"),
            (("--body-bytes", "1MiB"), "lower --messages or --body-bytes"),
            (("--rate", "100000", "--seconds", "3600"), "lower --rate or --seconds"),
            (("--messages", "1", "--seconds", "60", "--body-bytes", "1MiB"), "lower --rate or --seconds"),
            (("--queue", "a b"), "'a b' is not a queue name"),
            (("--queue", ""), "'' is not a queue name"),
            (("--url", "memory:"), "use --url sqlite:///FILE.db"),
            (("orders",), "unexpected extra argument"),
        ],
    )
    def test_is_refused_with_value_rule_and_way_out(self, cli, arguments, words):
        done = cli.run("bench", *arguments)

        assert (done.returncode, done.stdout) == (64, "")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
        assert cli.json("queue", "list") == []

    def test_needs_a_store(self):
        done = CommandLine().run("bench")

        assert done.returncode == 64
        assert "no store is named: use --url URL or CASSQ_URL" in done.stderr


@pytest.mark.service
class TestCassandra:
    @pytest.fixture
    def cli(self):
        keyspace = f"cassq_bench_{secrets.token_hex(5)}"
        cli = CommandLine(cluster_url(keyspace))
        cli.ok("schema", "apply", "--replication", "simple:1")
        yield cli
        hosts = [each.rpartition(":") for each in service("CASSQ_TEST_CASSANDRA").split(",")]
        session = open_session(Address([(host, int(port)) for host, _, port in hosts]), keyspace)
        session.define(f"DROP KEYSPACE {keyspace}")
        session.close()

    def test_measures_tells_no_password_and_leaves_nothing(self, cli):
        url = cli.url.replace("://", "://somebody:secret@")

        done = cli.run("bench", "--json", *SMALL, "--url", url, timeout=120)

        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        check(found, messages=500, rate=50, seconds=1)
        assert service("CASSQ_TEST_CASSANDRA").partition(",")[0] in found["settings"]["store"]
        assert "secret" not in done.stdout + done.stderr
        assert cli.json("queue", "list") == []

    def test_a_signal_leaves_no_queue(self, cli):
        running = cli.start("bench", "--messages", "10", "--rate", "50", "--seconds", "60")
        read_until(running, FLOWING)

        running.send_signal(signal.SIGINT)

        assert finish(running, 60)[0] == 130
        assert cli.json("queue", "list") == []

    def test_a_store_that_can_never_pop_is_refused(self, cli):
        done = cli.run("bench", *SMALL, "--url", cli.url.partition("?")[0])

        assert done.returncode == 64
        assert "zookeeper=HOST:PORT" in done.stderr
        assert cli.json("queue", "list") == []
