"""`cassq demo` keeps its promises, and says so only when they were kept."""

import os
import secrets
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine, cluster_url, finish, service

from cassq.cli.demo_ledger import Event
from cassq.cli.demo_verdict import judge
from cassq.storage.cassandra import Address, open_session


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
        while b"pushed" not in running.stderr.readline():
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
            Event("pushed", 1, "a", "hash-a"),
            Event("pushed", 1, "b", "hash-b"),
            Event("popped", 2, "a", "hash-a", 1),
            Event("popped", 2, "b", "hash-b", 1),
            Event("committed", 3, "b"),
            Event("popped", 4, "a", "hash-a", 2),
            Event("committed", 5, "a"),
        ]

    def judge(self, events, held=frozenset("a"), expected=2):
        return judge(expected, events, held=frozenset(held), held_in_hand=len(held))

    def test_of_a_good_run(self):
        verdict = self.judge(self.good())

        assert verdict.broken == []
        assert (verdict.pushed, verdict.committed, verdict.redelivered) == (2, 2, 1)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda events: events[:-1], "1 messages were lost"),
            (lambda events: [*events, Event("committed", 6, "b")], "1 duplicates"),
            (lambda events: [*events, Event("popped", 6, "b", "hash-b", 2)], "1 duplicates"),
            (lambda events: [*events, Event("popped", 4, "a", "hash-a", 2)], "1 duplicates"),
            (lambda events: [*events[:-2], Event("popped", 4, "a", "?", 2), events[-1]], "1 bodies"),
            (lambda events: [event for event in events if event.attempt != 2], "0 came again"),
            (lambda events: [event for event in events if event.of != "b"], "2 files, 1 pushed"),
        ],
    )
    def test_of_a_broken_promise(self, change, words):
        assert any(words in each for each in self.judge(change(self.good())).broken)

    def test_of_a_kill_that_hit_nothing(self):
        assert self.judge(self.good()[:4] + [Event("committed", 3, each) for each in "ab"], held="").broken


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
