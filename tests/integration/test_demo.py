"""`cassq demo` keeps its promises, and says so only when they were kept."""

import os
import re
import secrets
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine, cluster_url, finish, service

from cassq.cli.demo.verdict import judge
from cassq.storage.cassandra import Address, open_session
from cassq.verification.ledger import Kind, Line


def check(found, copies=1):
    assert found["broken"] == []
    assert found["held_promises"] is True
    assert found["pushed"] == found["committed"] == found["files"] * copies > 300
    assert found["lost"] == found["duplicates"] == found["damaged"] == 0
    assert found["redelivered"] == found["held"] >= found["held_in_hand"] > 0
    assert found["reaper"]["failed"] == []


class TestEmbedded:
    def test_keeps_every_promise(self):
        check(CommandLine().json("demo", timeout=120))

    def test_works_on_a_store_that_is_named_and_leaves_nothing_there(self, tmp_path):
        cli = CommandLine(f"sqlite:///{tmp_path}/store.db")

        check(cli.json("demo", "--pushers", "3", "--poppers", "4", "--copies", "2", timeout=120), copies=2)

        assert cli.json("queue", "list") == []

    def test_tells_people_what_was_counted(self):
        done = CommandLine().run("demo", timeout=120)

        assert done.returncode == 0, done.stderr
        for words in ("pushed", "lost                0", "killed popper held", "every promise held"):
            assert words in done.stdout

    def test_ends_its_children_on_ctrl_c(self, tmp_path):
        cli = CommandLine(f"sqlite:///{tmp_path}/store.db")
        running = cli.start("demo", "--copies", "50")
        # Before the first message some pushers are still to start.
        while not re.search(rb"pushed [1-9]", running.stderr.readline()):
            pass
        children = children_of(running.pid)
        assert len(children) >= 4

        running.send_signal(signal.SIGINT)

        assert finish(running, 60)[0] == 130
        assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
        assert cli.json("queue", "list") == []

    def test_is_refused_in_memory(self):
        assert CommandLine("memory:").run("demo").returncode == 64


def children_of(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=True)
    return [int(each) for each in listed.stdout.split()]


def pushed(message):
    return Line(1, "pusher", Kind.ACKNOWLEDGED, message, digest=f"digest of {message}")


def popped(at, who, message, attempt=1, digest=None):
    return Line(at, who, Kind.DELIVERED, message, attempt, digest=digest or f"digest of {message}")


def committed(at, who, message, attempt=1):
    return Line(at, who, Kind.COMMITTED, message, attempt)


@pytest.mark.service
class TestCassandra:
    def test_keeps_every_promise(self):
        keyspace = f"cassq_demo_{secrets.token_hex(5)}"
        cli = CommandLine(cluster_url(keyspace))
        cli.ok("schema", "apply", "--replication", "simple:1")
        try:
            check(cli.json("demo", timeout=180))
            assert cli.json("queue", "list") == []
        finally:
            hosts = [each.rpartition(":") for each in service("CASSQ_TEST_CASSANDRA").split(",")]
            session = open_session(Address([(host, int(port)) for host, _, port in hosts]), keyspace)
            session.define(f"DROP KEYSPACE {keyspace}")
            session.close()


class TestVerdict:
    """A demo that cannot fail shows nothing."""

    def good(self):
        return [
            pushed("a"),
            pushed("b"),
            popped(2, "victim", "a"),
            popped(2, "other", "b"),
            committed(3, "other", "b"),
            Line(3, "victim", Kind.DIED),
            popped(4, "other", "a", 2),
            committed(5, "other", "a", 2),
        ]

    def judge(self, lines, held=frozenset("a"), expected=2):
        return judge(expected, lines, held=frozenset(held), held_in_hand=len(held))

    def test_of_a_good_run(self):
        verdict = self.judge(self.good())

        assert verdict.broken == []
        assert (verdict.pushed, verdict.committed, verdict.redelivered) == (2, 2, 1)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda lines: lines[:-1], "lost 1: a"),
            (lambda lines: [*lines, committed(6, "other", "b")], "without a reason 1: b: committed 2 times"),
            (lambda lines: [*lines, popped(6, "third", "b", 2)], "without a reason 1: b: it was committed"),
            (lambda lines: [*lines, popped(4, "third", "a", 2)], "without a reason 1: a: the same attempt"),
            (lambda lines: [*lines[:-2], popped(4, "other", "a", 2, "?"), lines[-1]], "damaged 1: a"),
            (lambda lines: [line for line in lines if line.attempt != 2], "0 came again"),
            (lambda lines: [line for line in lines if line.message != "b"], "2 files, 1 pushed"),
        ],
    )
    def test_of_a_broken_promise(self, change, words):
        assert any(words in each for each in self.judge(change(self.good())).broken)

    def test_of_a_kill_that_hit_nothing(self):
        lines = [pushed("a"), popped(2, "other", "a"), committed(3, "other", "a")]

        assert self.judge(lines, held="", expected=1).broken == [
            "the popper was killed with nothing in its hands: the run shows nothing"
        ]


def test_the_tool_says_what_is_wrong_with_an_old_python(tmp_path):
    tool = Path(__file__).parents[2] / "tools" / "demo"
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    copy = tmp_path / "project" / "tools" / "demo"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(tool.read_bytes())

    done = subprocess.run(
        ["bash", copy],
        env={"PATH": os.environ["PATH"], "PYTHON": str(old)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 69
    assert "Python 3.11 or later" in done.stderr
    assert "3.9.2" in done.stderr
