"""The command line over the embedded store: every command, its output, its exit code, its signals."""

import base64
import dataclasses
import fcntl
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from command_line import BARE, CASSQ, WITHOUT_ROOT, CommandLine, finish
from support.patience import until

import cassq
from cassq.cli import exit_codes, main
from cassq.cli.signals import Ending

#: What is told of a message.
MESSAGE = {"id", "body", "encoding", "headers", "pushed_at", "priority", "type", "key"}

#: Sends a signal to its own process as soon as a module is asked for.
STRIKE = """
import os, signal, sys

class Strike:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{number})

sys.meta_path.insert(0, Strike)
"""


@pytest.fixture
def cli(tmp_path):
    return CommandLine(f"sqlite:///{tmp_path}/store.db")


@pytest.fixture
def orders(cli):
    """A queue, through the command line."""
    cli.ok("queue", "create", "orders", "--lease", "20s")
    return cli


def test_the_executable_runs_the_tree_under_test(tmp_path):
    # Else what is tested here is another copy that happens to be installed
    here = Path(__file__).parents[2] / "cassq" / "__init__.py"
    assert Path(cassq.__file__).samefile(here)
    python = Path(CASSQ).read_text(encoding="utf-8").splitlines()[0].removeprefix("#!")
    told = subprocess.run(
        [
            python,
            "-c",
            "import cassq, cassq_command; print(cassq.__file__, cassq_command.__file__, sep='\\n')",
        ],
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env=BARE,
        text=True,
    )
    imported, command = told.stdout.splitlines()
    assert Path(imported).samefile(here)
    assert Path(command).samefile(here.parents[1] / "cassq_command.py")


def stats(cli, queue="orders"):
    return cli.json("queue", "stats", queue)


class TestQueue:
    def test_is_created_with_every_setting(self, cli):
        made = cli.json(
            *("queue", "create", "orders", "--lease", "30s", "--max-attempts", "7", "--push-age-max", "2m"),
            *("--push-grace", "500ms", "--pipe-messages-max", "100", "--pipe-bytes-max", "4MiB"),
            *("--clock-skew-max", "1s", "--pop-width", "2", "--push-width", "3", "--body-bytes-max", "64KiB"),
            *("--retry-delay", "2s", "--retry-factor-percent", "150", "--retry-delay-max", "1h"),
            *("--retry-jitter-percent", "5", "--ttl", "1d", "--on-expired", "dead", "--ageing", "10s"),
            *("--key-slots", "32", "--keys", "exclusive", "--journal", "outline"),
        )

        assert made["queue"] == "orders"
        assert made["settings"] == {
            "lease_ms": 30_000,
            "max_attempts": 7,
            "push_age_max_ms": 120_000,
            "push_grace_ms": 500,
            "pipe_messages_max": 100,
            "pipe_bytes_max": 4 << 20,
            "clock_skew_max_ms": 1000,
            "pop_width": 2,
            "push_width": 3,
            "body_bytes_max": 64 << 10,
            "retry_delay_ms": 2000,
            "retry_factor_percent": 150,
            "retry_delay_max_ms": 3_600_000,
            "retry_jitter_percent": 5,
            "ttl_ms": 86_400_000,
            "on_expired": "dead",
            "ageing_ms": 10_000,
            "key_slots": 32,
            "keys": "exclusive",
            "journal": "outline",
        }

    def test_may_be_created_again_with_the_same_settings_only(self, orders):
        assert orders.run("queue", "create", "orders", "--lease", "20s").returncode == 0

        refused = orders.run("queue", "create", "orders", "--lease", "21s")

        assert refused.returncode == 64
        assert "lease=20s, not 21s" in refused.stderr

    def test_is_listed(self, orders):
        orders.ok("queue", "create", "bills")

        assert orders.ok("queue", "list", "--names") == "bills\norders\n"
        assert orders.json("queue", "list", "--names") == [{"queue": "bills"}, {"queue": "orders"}]

    def test_is_listed_with_what_waits_in_it(self, orders):
        orders.ok("queue", "create", "bills")
        orders.ok("push", "orders", stdin=b"one")

        bills, found = orders.json("queue", "list")

        assert (bills["queue"], bills["waiting"], bills["oldest_age_s"]) == ("bills", 0, None)
        assert (found["queue"], found["waiting"], found["state"]) == ("orders", 1, "active")
        assert found["oldest_age_s"] >= 0
        heads, *rows = orders.ok("queue", "list").splitlines()
        assert [row.split()[0] for row in (heads, *rows)] == ["queue", "bills", "orders"]

    def test_is_altered_and_shown(self, orders):
        told = orders.run("queue", "alter", "orders", "--lease", "1m", "--max-attempts", "5")

        assert told.returncode == 0
        assert "queue orders: lease is 60s, and was 20s\n" in told.stderr
        assert "queue orders: max_attempts is 5 already\n" in told.stderr
        altered = orders.json("queue", "alter", "orders", "--pop-width", "3")
        assert altered == orders.json("queue", "show", "orders")
        assert (altered["settings"]["lease_ms"], altered["settings"]["pop_width"]) == (60_000, 3)
        shown = [line.split() for line in orders.ok("queue", "show", "orders").splitlines()]
        assert ["lease", "60s", "30s", "yes"] in [line[:4] for line in shown]
        assert ["push_grace", "20s", "20s", "no"] in [line[:4] for line in shown]

    def test_is_shown_with_the_words_that_it_takes(self, orders):
        told = orders.run("queue", "alter", "orders", "--keys", "exclusive", "--on-expired", "dead")

        assert "queue orders: keys is exclusive, and was ordered\n" in told.stderr
        shown = [line.split() for line in orders.ok("queue", "show", "orders").splitlines()]
        assert ["keys", "exclusive", "ordered", "yes"] in [line[:4] for line in shown]
        settings = orders.json("queue", "show", "orders")["settings"]
        assert (settings["keys"], settings["on_expired"]) == ("exclusive", "dead")

    @pytest.mark.parametrize(
        ("words", "exit_code", "told"),
        [
            (("orders",), 64, "name what to alter"),
            (("orders", "--lease", "0s"), 64, "lease=0s is out of range"),
            (("orders", "--push-grace", "1m"), 64, "push_grace of queue 'orders' cannot be altered"),
            (("bills", "--lease", "1m"), 66, "there is no queue 'bills'"),
        ],
    )
    def test_says_why_it_is_not_altered(self, orders, words, exit_code, told):
        before = orders.json("queue", "show", "orders")

        refused = orders.run("queue", "alter", *words)

        assert refused.returncode == exit_code
        assert told in refused.stderr
        assert orders.json("queue", "show", "orders") == before

    def test_tells_its_figures(self, orders):
        orders.ok("push", "orders", stdin=b"one")

        found = stats(orders)

        assert (found["waiting"], found["pushed"], found["committed"], found["state"]) == (1, 1, 0, "active")
        assert found["oldest_age_s"] >= 0
        assert "waiting       1\n" in orders.ok("queue", "stats", "orders")

    def test_tells_its_figures_again_and_again_until_a_signal(self, orders):
        watching = orders.start("queue", "stats", "orders", "--watch", "100ms", "--json")
        for _ in range(3):
            assert json.loads(watching.stdout.readline())["queue"] == "orders"

        watching.send_signal(signal.SIGINT)

        assert finish(watching) == (130, "")

    def test_watching_its_figures_ends_well_when_it_is_told_to(self, orders):
        watching = orders.start("queue", "stats", "orders", "--watch", "100ms", "--json")
        watching.stdout.readline()

        watching.send_signal(signal.SIGTERM)

        assert finish(watching) == (0, "")

    def test_tells_of_its_pipes(self, orders):
        orders.ok("push", "orders", stdin=b"one")

        (pipe,) = orders.json("queue", "pipes", "orders")

        assert (pipe["phase"], pipe["pushed"], pipe["waiting"], pipe["owner"]) == ("PF", 1, 1, None)
        header, row = orders.ok("queue", "pipes", "orders").splitlines()
        assert header.split()[:3] == ["pipe", "phase", "pushed"]
        assert row.split()[:3] == [pipe["pipe"], "PF", "1"]
        assert (pipe["type"], pipe["slot"]) == (None, None)
        assert not {"type", "slot"} & set(header.split())

    def test_tells_of_the_slots_of_its_keyed_pipes(self, orders):
        orders.ok("push", "orders", stdin=b"one")
        orders.ok("push", "orders", "--key", "customer-42", stdin=b"two")

        assert [pipe["slot"] for pipe in orders.json("queue", "pipes", "orders")] == [None, 5]
        header, *rows = orders.ok("queue", "pipes", "orders").splitlines()
        place = header.split().index("slot")
        assert [row.split()[place] for row in rows] == ["-", "5"]

    def test_runs_tell_who_has_what(self, orders):
        orders.ok("push", "orders", stdin=b"one")
        assert orders.json("queue", "runs", "orders") == []
        with cassq.connect(orders.env["CASSQ_URL"]) as store, store.queue("orders").popper() as popper:
            delivery = popper.pop(timeout=60)
            (run,) = orders.json("queue", "runs", "orders")
            assert (run["state"], run["left"], run["attempt"], run["reason"]) == ("pending", 1, 1, "")
            assert f"-{os.getpid()}-" in run["holder"]
            assert run["since"] < run["due"]
            delivery.rollback(delay=timedelta(hours=1), reason="no route")
        (run,) = orders.json("queue", "runs", "orders")
        assert (run["state"], run["since"], run["reason"]) == ("delayed", None, "no route")
        header, row = orders.ok("queue", "runs", "orders", "--count", "1").splitlines()
        assert header.split()[:4] == ["pipe", "first", "last", "left"]
        assert row.split()[:4] == [run["pipe"], "1", "1", "1"]

    def test_rollups_of_a_day_are_told(self, orders):
        with cassq.connect(orders.env["CASSQ_URL"]) as store:
            now_ms = store.storage.list_pipes("orders").now_ms
            figures = {each.name: 3 for each in dataclasses.fields(cassq.Rollup)} | {
                "pusher": "p",
                "holder": "",
            }
            kept = cassq.Rollup(**figures | {"rolled_up_at_ms": now_ms})
            store.storage.write_rollups("orders", [kept])

        assert orders.json("queue", "rollups", "orders", "--day", str(kept.day)) == [kept.to_json()]
        header, row = orders.ok("queue", "rollups", "orders", "--day", str(kept.day)).splitlines()
        assert header.split()[:4] == ["rolled_up_at", "minute", "pusher", "holder"]
        assert row.startswith(kept.rolled_up_at.isoformat())
        assert orders.json("queue", "rollups", "orders", "--day", "1999-12-31") == []
        assert orders.run("queue", "rollups", "orders", "--day", "today").returncode == 64

    def test_is_paused_and_resumed(self, orders):
        orders.ok("push", "orders", stdin=b"one")

        assert orders.json("queue", "pause", "orders")["state"] == "paused"
        assert orders.ok("pop", "orders", "--timeout", "0.1") == ""
        assert stats(orders)["state"] == "paused"
        assert orders.json("queue", "resume", "orders")["state"] == "active"
        assert orders.ok("pop", "orders", "--commit", "--timeout", "5") == "one\n"

    def test_is_purged_only_by_who_is_sure(self, orders):
        orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\n")

        refused = orders.run("queue", "purge", "orders")
        assert refused.returncode == 64
        assert "--yes" in refused.stderr

        assert orders.json("queue", "purge", "orders", "--yes") == {"queue": "orders", "purged": 2}
        assert stats(orders)["waiting"] == 0

    def test_is_deleted_only_by_who_is_sure(self, orders):
        assert orders.run("queue", "delete", "orders").returncode == 64

        assert orders.json("queue", "delete", "orders", "--yes") == {"queue": "orders", "state": "deleted"}
        assert orders.json("queue", "list") == []

    @pytest.mark.parametrize(
        ("answer", "exit_code", "left"), [(b"n\n", 1, [{"queue": "orders"}]), (b"y\n", 0, [])]
    )
    def test_asks_on_a_terminal_before_it_is_deleted(self, orders, answer, exit_code, left):
        ours, theirs = os.openpty()
        command = [CASSQ, "queue", "delete", "orders"]
        asking = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=orders.env)
        os.close(theirs)
        os.write(ours, answer)

        assert asking.wait(30) == exit_code
        assert b"Delete queue" in os.read(ours, 4096)
        os.close(ours)
        assert orders.json("queue", "list", "--names") == left


class TestPush:
    @pytest.mark.parametrize("options", [(), ("--lines",), ("--allow-empty",)])
    def test_pushes_nothing_where_standard_input_was_closed(self, orders, options):
        done = orders.run("push", "orders", *options, wrapper=("/bin/sh", "-c", 'exec "$@" <&-', "sh"))

        assert (done.returncode, done.stdout) == (66, "")
        assert "cannot read standard input: Bad file descriptor" in done.stderr
        assert stats(orders)["pushed"] == 0

    def test_tells_a_full_disk_once_the_message_is_stored(self, orders):
        done = orders.run(
            "push", "orders", stdin=b"one", wrapper=("/bin/sh", "-c", 'exec "$@" >/dev/full', "sh")
        )

        assert done.returncode == 74
        assert "No space left on device" in done.stderr
        assert stats(orders)["pushed"] == 1

    def test_takes_a_key_and_none_that_is_to_wait(self, orders):
        pushed = orders.json("push", "orders", "--key", "customer-42", stdin=b"one")
        assert orders.json("status", "orders", pushed["id"])["state"] == "waiting"
        assert orders.json("queue", "show", "orders")["settings"]["key_slots"] == 16
        refused = orders.run("push", "orders", "--key", "customer-42", "--delay", "5m", stdin=b"two")
        assert refused.returncode == 64
        assert "key='customer-42' goes with no delay=" in refused.stderr
        assert stats(orders)["pushed"] == 1

    def test_takes_standard_input_as_one_message(self, orders):
        (pushed,) = orders.lines("push", "orders", stdin=b"a\nb\n")

        (popped,) = orders.lines("pop", "orders", "--commit")
        assert popped["id"] == pushed["id"]
        assert popped["body"] == "a\nb\n"

    def test_gives_messages_a_time_to_live(self, orders):
        refused = orders.run("push", "orders", "--ttl", "10ms", stdin=b"one")
        assert refused.returncode == 64
        assert "ttl=" in refused.stderr

        orders.ok("push", "orders", "--lines", "--ttl", "1s", stdin=b"one\ntwo\n")
        orders.ok("push", "orders", stdin=b"three")
        until(lambda: orders.ok("reap") and stats(orders)["expired"] == 2)
        assert [each["body"] for each in orders.lines("pop", "orders", "--commit")] == ["three"]

    def test_gives_messages_a_priority(self, orders):
        refused = orders.run("push", "orders", "--priority", "10", stdin=b"one")
        assert refused.returncode == 64
        assert "priority=10" in refused.stderr

        orders.ok("push", "orders", stdin=b"later")
        orders.ok("push", "orders", "--priority", "9", stdin=b"urgent")
        told = orders.json("queue", "stats", "orders", "--by", "priority")
        assert [(each["priority"], each["waiting"]) for each in told] == [(9, 1), (0, 1)]
        rows = orders.ok("queue", "stats", "orders", "--by", "priority").splitlines()
        assert [row.split()[0] for row in rows] == ["priority", "9", "0"]
        assert [each["body"] for each in orders.lines("peek", "orders")] == ["urgent", "later"]
        assert [each["body"] for each in orders.lines("pop", "orders", "--commit")] == ["urgent"]

    def test_asks_before_it_takes_an_empty_input_for_a_message(self, orders, tmp_path):
        (tmp_path / "empty").touch()
        for arguments in ((), ("--lines",), (tmp_path / "empty",), ("--lines", tmp_path / "empty")):
            refused = orders.run("push", "orders", *arguments)
            assert refused.returncode == 64
            assert "--allow-empty" in refused.stderr
        assert stats(orders)["pushed"] == 0

        assert orders.ok("push", "orders", "--lines", "--allow-empty", "-q") == "0\n"
        assert orders.ok("push", "orders", "--allow-empty", "-q") == "1\n"
        assert orders.ok("push", "orders", "--lines", "-q", stdin=b"\n") == "1\n"
        assert orders.ok("pop", "orders", "-n", "2", "--commit") == "\n\n"

    def test_takes_each_file_as_one_message(self, orders, tmp_path):
        for name in ("first", "second"):
            (tmp_path / name).write_text(name)

        ids = orders.ok("push", "orders", tmp_path / "first", tmp_path / "second").splitlines()

        popped = orders.lines("pop", "orders", "-n", "2", "--commit")
        assert [each["id"] for each in popped] == ids
        assert [each["body"] for each in popped] == ["first", "second"]

    def test_takes_each_line_as_one_message(self, orders, tmp_path):
        (tmp_path / "lines").write_bytes(b"one\n\nthree")

        assert orders.ok("push", "orders", "--lines", "-q", tmp_path / "lines") == "3\n"
        assert orders.ok("pop", "orders", "-n", "3", "--commit") == "one\n\nthree\n"

    def test_prints_an_id_while_the_input_goes_on(self, orders):
        pushing = orders.start("push", "orders", "--lines")
        pushing.stdin.write(b"first\n")
        pushing.stdin.flush()

        message_id = pushing.stdout.readline().decode().strip()

        with cassq.connect(orders.url) as store:
            assert store.find_queue("orders").status(message_id).state is cassq.MessageState.WAITING
        assert finish(pushing) == (0, "")

    def test_sends_headers_along(self, orders):
        orders.ok("push", "orders", "--header", "type=new", "--header", "x=a=b", stdin=b"one")

        assert orders.lines("peek", "orders")[0]["headers"] == {"type": "new", "x": "a=b"}

    def test_tells_a_number_as_json(self, orders):
        assert orders.json("push", "orders", "-q", stdin=b"one") == {"pushed": 1}

    def test_tells_what_was_pushed_before_a_failure(self, orders, tmp_path):
        (tmp_path / "first").write_text("first")

        failed = orders.run("push", "orders", tmp_path / "first", tmp_path / "missing")

        assert failed.returncode == 66
        assert len(failed.stdout.splitlines()) == 1
        assert "pushed 1 message" in failed.stderr
        assert "missing" in failed.stderr
        assert stats(orders)["pushed"] == 1

    def test_ends_on_a_signal_while_it_waits_for_input(self, orders):
        pushing = orders.start("push", "orders", "--lines")
        pushing.stdin.write(b"first\n")
        pushing.stdin.flush()
        pushing.stdout.readline()

        pushing.send_signal(signal.SIGTERM)

        assert pushing.wait(30) == 143
        assert finish(pushing) == (143, "")


class TestPop:
    def test_prints_the_bare_body_and_commits(self, orders):
        orders.ok("push", "orders", stdin=b"\x00\xffbody")

        done = orders.start("pop", "orders", "--commit")

        assert done.communicate(timeout=30)[0] == b"\x00\xffbody\n"
        assert stats(orders)["committed"] == 1

    def test_shows_everything_as_json(self, orders):
        orders.ok("push", "orders", "--header", "type=new", stdin="grün".encode())
        orders.ok("push", "orders", stdin=b"\xff\x00")

        text, binary = sorted(
            orders.lines("pop", "orders", "-n", "2", "--commit"), key=lambda m: m["encoding"]
        )[::-1]

        assert set(text) == MESSAGE | {"attempt"}
        assert (text["body"], text["encoding"], text["attempt"]) == ("grün", "utf-8", 1)
        assert text["headers"] == {"type": "new"}
        assert binary["encoding"] == "base64"
        assert base64.b64decode(binary["body"]) == b"\xff\x00"

    def test_gives_back_what_it_was_not_told_to_commit(self, orders):
        orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\n")

        done = orders.run("pop", "orders", "-n", "2")

        assert done.stdout == "one\ntwo\n"
        assert "gave 2 messages back" in done.stderr
        again = orders.lines("pop", "orders", "-n", "2", "--commit")
        assert [(each["body"], each["attempt"]) for each in again] == [("one", 2), ("two", 2)]

    def test_has_what_a_killed_popper_of_the_machine_had_not_taken_yet(self, orders):
        orders.ok("push", "orders", "--lines", stdin=b"".join(b"%d\n" % number for number in range(500)))
        code = (
            "import sys, cassq; popper = cassq.connect(sys.argv[1]).queue('orders').popper();"
            "print(popper.pop(30).body.decode(), flush=True); sys.stdin.read()"
        )
        killed = subprocess.Popen(
            [sys.executable, "-c", code, orders.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with killed:
            assert killed.stdout.readline() == b"0\n"
            killed.kill()

        assert orders.ok("pop", "orders", "--timeout", "0", "--commit").strip()

    def test_finds_nothing_and_says_so(self, orders):
        done = orders.run("pop", "orders", "--timeout", "0")

        assert (done.returncode, done.stdout) == (0, "")
        assert "no message came within 0 s" in done.stderr

    def test_follows_until_a_signal(self, orders):
        following = orders.start("pop", "orders", "--follow", "--commit")
        with cassq.connect(orders.url) as store:
            queue = store.find_queue("orders")
            for body in (b"one", b"two"):
                queue.push(body)
                assert following.stdout.readline() == body + b"\n"

        following.send_signal(signal.SIGTERM)

        assert finish(following) == (0, "")
        assert stats(orders)["committed"] == 2

    @pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGHUP])
    def test_that_follows_takes_signals_in_a_row_for_one(self, orders, again):
        orders.ok("push", "orders", stdin=b"one")
        following = orders.start("pop", "orders", "--follow", "--commit")
        assert following.stdout.readline() == b"one\n"

        following.send_signal(signal.SIGTERM)
        following.send_signal(again)

        assert finish(following) == (0, "")

    def test_that_follows_ends_well_while_it_connects(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"cassandra://127.0.0.1:{silent.getsockname()[1]}/orders"
            following = CommandLine(url).start("pop", "orders", "--follow", "--commit")
            asked, _ = silent.accept()
            with asked:
                following.send_signal(signal.SIGTERM)

                assert finish(following) == (0, "")

    @pytest.mark.parametrize("module", ["cassq", "cassq.cli.session"])
    @pytest.mark.parametrize(
        ("number", "command", "code"),
        [
            ("SIGTERM", ("pop", "orders", "--follow", "--commit"), 0),
            ("SIGTERM", ("reap", "--watch", "1"), 0),
            ("SIGHUP", ("queue", "stats", "orders", "--watch", "1"), 0),
            ("SIGINT", ("pop", "orders", "--follow", "--commit"), 130),
            ("SIGTERM", ("pop", "orders"), 143),
        ],
    )
    def test_ends_as_ever_while_it_is_imported(self, orders, tmp_path, number, command, code, module):
        # Python imports this before anything else; it sends the signal as soon as the module is asked for.
        (tmp_path / "sitecustomize.py").write_text(STRIKE.format(number=number, module=module))
        orders.env["PYTHONPATH"] = str(tmp_path)

        done = orders.run(*command)

        assert (done.returncode, done.stdout, done.stderr) == (code, "", "")

    def test_that_follows_tells_ctrl_c(self, orders):
        orders.ok("push", "orders", stdin=b"one")
        following = orders.start("pop", "orders", "--follow", "--commit")
        assert following.stdout.readline() == b"one\n"

        following.send_signal(signal.SIGINT)

        assert finish(following) == (130, "")

    def test_ends_on_ctrl_c_while_it_waits(self, orders):
        orders.ok("push", "orders", stdin=b"one")
        popping = orders.start("pop", "orders", "-n", "2", "--timeout", "60", "--commit")
        assert popping.stdout.readline() == b"one\n"

        popping.send_signal(signal.SIGINT)

        assert finish(popping) == (130, "")
        assert stats(orders)["committed"] == 1

    def test_does_not_follow_what_it_would_give_back(self, orders):
        assert orders.run("pop", "orders", "--follow").returncode == 64

    def test_commits_only_what_the_reader_took(self, orders, tmp_path):
        size, count = 50_000, 40
        for number in range(count):
            (tmp_path / f"{number}").write_bytes(bytes([65 + number % 26]) * size)
        orders.ok("push", "orders", *(tmp_path / f"{number}" for number in range(count)))
        popping = orders.start("pop", "orders", "-n", str(count), "--commit")
        capacity = fcntl.fcntl(popping.stdout, fcntl.F_GETPIPE_SZ)
        taken = len(os.read(popping.stdout.fileno(), 10_000))

        popping.stdout.close()

        assert popping.wait(30) == 141
        assert popping.stderr.read() == b""
        found = stats(orders)
        assert found["committed"] * (size + 1) <= taken + capacity
        assert found["waiting"] == count - found["committed"]
        popping.stdin.close()
        popping.stderr.close()

    @pytest.mark.parametrize("options", [("--commit",), ("--commit", "--json"), ()])
    def test_commits_nothing_where_stdout_was_closed(self, orders, options):
        orders.ok("push", "orders", stdin=b"one")

        done = orders.run("pop", "orders", *options, wrapper=("/bin/sh", "-c", 'exec "$@" >&-', "sh"))

        assert (done.returncode, done.stdout) == (74, "")
        found = stats(orders)
        assert (found["waiting"], found["committed"]) == (1, 0)

    @pytest.mark.parametrize(
        ("arguments", "code"), [(("orders", "--shell"), 64), (("none",), 66), (("orders", "--commit"), 0)]
    )
    def test_ends_with_its_own_code_though_nothing_can_be_said(self, orders, arguments, code):
        orders.ok("push", "orders", stdin=b"one")

        done = orders.run("pop", *arguments, wrapper=("/bin/sh", "-c", 'exec "$@" 2>/dev/full', "sh"))

        assert (done.returncode, done.stdout) == (code, "" if code else "one\n")

    def test_runs_where_every_standard_stream_was_closed(self, orders):
        orders.ok("push", "orders", stdin=b"one")
        closed = ("/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")

        done = orders.run("pop", "orders", "--exec", "cat", wrapper=closed)

        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
        assert orders.ok("pop", "orders", "--commit", "--timeout", "30s") == "one\n"

    def test_commits_nothing_on_a_full_disk(self, orders):
        orders.ok("push", "orders", stdin=b"one")
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [CASSQ, "pop", "orders", "--commit"],
                stdout=full,
                stderr=subprocess.PIPE,
                env=orders.env,
                timeout=30,
                check=False,
            )

        assert done.returncode == 74
        assert b"No space left" in done.stderr
        assert stats(orders)["waiting"] == 1


class TestPopWithKeys:
    @pytest.fixture
    def keyed(self, orders):
        orders.ok("push", "orders", "--lines", "--key", "a", stdin=b"one\ntwo\n")
        return orders

    def test_prints_one_of_a_key_where_it_gives_back_and_says_so(self, keyed):
        done = keyed.run("pop", "orders", "-n", "2")

        assert done.stdout == "one\n"
        assert "of each key one comes at most without --commit" in done.stderr
        assert "of each key" not in keyed.run("pop", "orders").stderr

    def test_prints_all_of_it_where_it_commits(self, keyed):
        assert keyed.ok("pop", "orders", "-n", "2", "--commit", "--timeout", "5") == "one\ntwo\n"


class TestPeek:
    def test_changes_nothing(self, orders):
        orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\nthree\n")

        for _ in range(2):
            assert orders.ok("peek", "orders", "-n", "2") == "one\ntwo\n"

        assert set(orders.lines("peek", "orders")[0]) == MESSAGE
        assert stats(orders)["popped"] == 0


class TestTypes:
    def test_who_asks_for_some_gets_those(self, orders):
        for kind in ("invoice", "refund", "refund"):
            orders.ok("push", "orders", "--type", kind, stdin=kind.encode())

        found = orders.lines("pop", "orders", "-n", "9", "--type", "refund", "--type", "other", "--commit")

        assert [(each["body"], each["type"]) for each in found] == [("refund", "refund")] * 2
        told = orders.json("queue", "stats", "orders", "--by", "type")
        # What was committed may have no pipe any more.
        assert [each["type"] for each in told if each["waiting"]] == ["invoice"]
        assert "invoice" in orders.ok("queue", "stats", "orders", "--by", "type")

    def test_a_command_hears_of_it(self, orders):
        orders.ok("push", "orders", "--type", "invoice", "--priority", "3", stdin=b"x")

        assert (
            orders.ok("pop", "orders", "--exec", 'echo "$CASSQ_TYPE $CASSQ_PRIORITY"', "--shell")
            == "invoice 3\n"
        )

    def test_what_is_no_type_is_refused(self, orders):
        done = orders.run("push", "orders", "--type", "no type", stdin=b"x")

        assert done.returncode == exit_codes.USAGE
        assert "'no type' is not a type of messages" in done.stderr


class TestOneMessage:
    def test_is_told_of_and_cancelled(self, orders):
        first, second = orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\n").split()

        assert orders.json("status", "orders", first) == {
            "state": "waiting",
            "attempt": 0,
            "due": None,
            "reason": "",
            "holder": "",
            "waits_for": None,
        }
        told = orders.ok("status", "orders", second)
        assert "state    waiting" in told
        assert "waits_for" not in told
        told = orders.json("cancel", "orders", first)
        assert told == {"queue": "orders", "id": first, "cancelled": True, "state": "purged"}
        assert orders.ok("pop", "orders", "--commit", "--timeout", "5") == "two\n"

    def test_tells_which_one_of_its_key_goes_before_it(self, orders):
        first, second = orders.ok("push", "orders", "--lines", "--key", "a", stdin=b"one\ntwo\n").split()

        assert orders.json("status", "orders", second)["waits_for"] == first
        assert f"waits_for  {first}" in orders.ok("status", "orders", second)

    def test_that_was_committed_is_not_cancelled(self, orders):
        message_id = orders.ok("push", "orders", stdin=b"one").strip()
        orders.ok("pop", "orders", "--commit", "--timeout", "5")

        late = orders.run("cancel", "orders", message_id)

        assert late.returncode == 1
        assert "not cancelled" in late.stderr
        assert orders.run("cancel", "orders", "nonsense").returncode == 64

    def test_gets_another_due_time(self, orders):
        message_id = orders.ok("push", "orders", "--delay", "1h", stdin=b"one").strip()

        told = orders.json("reschedule", "orders", message_id, "--due", "2027-01-01T08:00Z")
        assert told == {"queue": "orders", "id": message_id, "rescheduled": True, "state": "delayed"}
        assert orders.json("status", "orders", message_id)["due"] == "2027-01-01T08:00:00+00:00"

        assert (
            f"rescheduled {message_id}"
            in orders.run("reschedule", "orders", message_id, "--delay", "0").stderr
        )
        assert orders.ok("pop", "orders", "--commit", "--timeout", "5") == "one\n"

    def test_gets_another_priority(self, orders):
        first, second = orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\n").split()

        told = orders.json("reprioritise", "orders", second, "9")
        assert told == {"queue": "orders", "id": second, "reprioritised": True, "state": "waiting"}
        assert f"reprioritised {first}" in orders.run("reprioritise", "orders", first, "3").stderr

        assert orders.ok("pop", "orders", "-n", "2", "--commit", "--timeout", "5") == "two\none\n"

    def test_that_was_committed_is_not_moved(self, orders):
        message_id = orders.ok("push", "orders", stdin=b"one").strip()
        orders.ok("pop", "orders", "--commit", "--timeout", "5")

        late = orders.run("reschedule", "orders", message_id, "--delay", "1h")
        assert (late.returncode, "not rescheduled" in late.stderr) == (1, True)
        late = orders.run("reprioritise", "orders", message_id, "1", "--json")
        assert late.returncode == 1
        assert json.loads(late.stdout)["reprioritised"] is False

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["reschedule", "--delay", "1h", "--due", "2027-01-01T08:00Z"], "one of them"),
            (["reschedule"], "--delay 0s"),
            (["reschedule", "--due", "2027-01-01T08:00"], "zone"),
            (["reschedule", "--delay", "-1h"], "delay"),
            (["reprioritise", "10"], "0 to 9"),
            (["reprioritise", "high"], "high"),
            (["reprioritise"], "0..9"),
        ],
    )
    def test_is_not_moved_by_a_wrong_call(self, orders, arguments, words):
        message_id = orders.ok("push", "orders", stdin=b"one").strip()
        command, *rest = arguments

        refused = orders.run(command, "orders", message_id, *rest)

        assert (refused.returncode, words in refused.stderr) == (64, True), refused.stderr
        assert orders.run(command, "orders", "nonsense", *(rest or ["--delay", "1h"])).returncode == 64


class TestDead:
    @pytest.fixture
    def dead(self, cli):
        cli.ok("queue", "create", "orders", "--max-attempts", "1")
        cli.ok("push", "orders", "--lines", stdin=b"one\ntwo\n")
        cli.ok("pop", "orders", "-n", "2", "--rollback")
        return cli

    def test_messages_that_had_their_last_attempt_are_told(self, cli):
        cli.ok("queue", "create", "orders", "--max-attempts", "2")
        cli.ok("push", "orders", stdin=b"one")

        first, second = (cli.run("pop", "orders") for _ in range(2))

        assert "gave 1 message back; this counts as one of 2 attempts" in first.stderr
        assert "last" not in first.stderr
        assert "1 of them had the last one: `cassq dead list` shows" in second.stderr

    def test_letters_are_listed(self, dead):
        found = dead.json("dead", "list", "orders")

        assert [each["body"] for each in found] == ["one", "two"]
        assert set(found[0]) >= {"id", "attempts", "reason", "died_at", "headers", "encoding"}
        assert found[0]["id"] in dead.ok("dead", "list", "orders", "-n", "1")
        assert dead.ok("dead", "list", "orders").split()[:2] == ["id", "attempts"]

    def test_letters_tell_their_keys_where_one_has_any(self, dead):
        dead.ok("push", "orders", "--key", "customer-42", stdin=b"three")
        dead.ok("pop", "orders", "--rollback")

        assert [each["key"] for each in dead.json("dead", "list", "orders")] == [None, None, "customer-42"]
        header, *rows = dead.ok("dead", "list", "orders").splitlines()
        assert header.split()[:2] == ["id", "key"]
        assert [row.split()[1] for row in rows] == ["-", "-", "customer-42"]

    def test_a_letter_of_a_command_says_how_that_ended_and_a_table_has_a_line_for_each(self, cli):
        cli.ok("queue", "create", "orders", "--max-attempts", "1")
        cli.ok("push", "orders", stdin=b"one")
        assert "exit code 3" in cli.run("pop", "orders", "--exec", "exit 3", "--shell").stderr
        (letter,) = cli.json("dead", "list", "orders")
        assert letter["reason"] == "exit code 3"
        with cassq.connect(cli.url) as store, store.queue("orders").popper() as popper:
            store.find_queue("orders").push(b"two")
            assert popper.pop(timeout=60).reject("first\x1b[2J\nsecond")

        _, _, second = cli.ok("dead", "list", "orders").splitlines()

        assert second.endswith("first [2J second")

    def test_letters_are_put_back(self, dead):
        first = dead.json("dead", "list", "orders")[0]["id"]

        assert dead.json("dead", "put-back", "orders", first) == {"queue": "orders", "put_back": 1}
        assert dead.json("dead", "put-back", "orders", "--all")["put_back"] == 1
        assert dead.ok("pop", "orders", "-n", "2", "--commit") == "one\ntwo\n"

    def test_letters_are_counted_where_not_all_are_shown(self, dead):
        assert "the first 1 of 2 dead letters" in dead.run("dead", "list", "orders", "-n", "1").stderr
        assert "the first" not in dead.run("dead", "list", "orders", "-n", "2").stderr

    def test_chosen_letters_are_redriven_into_another_queue(self, dead):
        dead.ok("queue", "create", "later")
        dead.ok("push", "orders", "--header", "kind=new", stdin=b"three")
        dead.run("pop", "orders", "--exec", "exit 3", "--shell")
        wanted = (
            "dead",
            "redrive",
            "orders",
            "--reason",
            "exit code*",
            "--header",
            "kind=new",
            "--older",
            "0s",
        )

        would = dead.json(*wanted, "--dry-run")

        assert would == {"queue": "orders", "to": "orders", "redriven": 1, "reasons": {"exit code 3": 1}}
        assert dead.json(*wanted, "--to", "later", "--rate", "100") == would | {"to": "later"}
        assert dead.ok("pop", "later", "--commit") == "three\n"
        assert dead.json(*wanted)["redriven"] == 0
        assert dead.json("dead", "redrive", "orders", "--older", "1h")["redriven"] == 0
        assert dead.json("dead", "redrive", "orders", "--limit", "1")["redriven"] == 1
        assert [each["body"] for each in dead.json("dead", "list", "orders")] == ["two"]

    @pytest.mark.parametrize(
        ("options", "code"),
        [(("--to", "nowhere"), 66), (("--rate", "0"), 64), (("--limit", "0"), 64), (("--header", "x"), 64)],
    )
    def test_a_redrive_that_cannot_be_moves_nothing(self, dead, options, code):
        assert dead.run("dead", "redrive", "orders", *options).returncode == code
        assert len(dead.json("dead", "list", "orders")) == 2

    def test_letters_are_discarded(self, dead):
        assert dead.run("dead", "discard", "orders", "--all").returncode == 64
        assert dead.json("dead", "discard", "orders", "--all", "--yes")["discarded"] == 2
        assert dead.json("dead", "list", "orders") == []

    @pytest.mark.parametrize(
        ("command", "told", "left"),
        [(("put-back",), "put_back", ["two"]), (("discard", "--yes"), "discarded", ["two"])],
    )
    def test_ids_that_are_no_letters_are_told_and_the_others_dealt_with(self, dead, command, told, left):
        first = dead.json("dead", "list", "orders")[0]["id"]
        unknown = f"{first.partition(':')[0]}:77"

        done = dead.run("dead", *command, "orders", unknown, first, "--json")

        assert done.returncode == 66
        assert json.loads(done.stdout) == {"queue": "orders", told: 1}
        assert unknown in done.stderr
        assert first not in done.stderr
        assert [each["body"] for each in dead.json("dead", "list", "orders")] == left

    def test_letters_have_to_be_named(self, dead):
        assert dead.run("dead", "put-back", "orders").returncode == 64
        assert dead.run("dead", "put-back", "orders", "nonsense").returncode == 64


class TestSchema:
    def test_of_cassandra_is_shown_without_a_store(self):
        text = CommandLine().ok("schema", "show", "--replication", "dc1:3,dc2:2")

        assert "CREATE KEYSPACE IF NOT EXISTS cassq WITH replication" in text
        assert "'NetworkTopologyStrategy', 'dc1': 3, 'dc2': 2" in text

    def test_of_cassandra_is_shown_for_the_keyspace_of_the_url(self):
        text = CommandLine().ok(
            *("schema", "show", "--url", "cassandra://nowhere/billing"),
            *("--replication", '{"class": "SimpleStrategy", "replication_factor": 1}'),
        )

        assert "CREATE TABLE IF NOT EXISTS billing.queues" in text
        assert " cassq." not in text

    def test_of_a_file_is_shown_applied_and_checked(self, cli):
        assert "CREATE TABLE" in cli.ok("schema", "show")
        assert cli.run("schema", "check").returncode == 1
        assert cli.ok("schema", "version") == "none\n"

        applied = cli.json("schema", "apply")

        assert cli.json("schema", "version") == {"version": applied["version"], "needed": applied["version"]}
        assert cli.json("schema", "check") == {"differences": []}

    def test_of_a_file_that_has_drifted_is_mended_or_told(self, cli, tmp_path):
        cli.ok("schema", "apply")
        (path,) = tmp_path.glob("*.db")
        with closing(sqlite3.connect(path)) as db:
            db.execute("DROP TABLE statistics")
        mended = cli.run("schema", "apply")
        with closing(sqlite3.connect(path)) as db:
            db.execute("ALTER TABLE dead ADD COLUMN surplus TEXT")
        left = cli.run("schema", "apply")

        assert mended.returncode == 0
        assert cli.run("schema", "check").returncode == left.returncode == 1
        assert "left: table dead is " in left.stderr

    def test_of_a_file_has_no_replication(self, cli):
        assert cli.run("schema", "apply", "--replication", "simple:1").returncode == 64

    @pytest.mark.parametrize("text", ["three", "dc1:0", "dc1:1,dc1:2", "{}", '{"class": 1}', "{", ""])
    def test_refuses_a_replication_that_is_none(self, text):
        assert CommandLine().run("schema", "show", "--replication", text).returncode == 64


class TestReap:
    def test_makes_a_pass_and_tells(self, orders):
        orders.ok("push", "orders", stdin=b"one")
        orders.ok("pop", "orders", "--commit")

        report = orders.json("reap")

        assert set(report) == {each.name for each in dataclasses.fields(cassq.ReapReport)}
        assert report["failed"] == []
        assert stats(orders)["pipes"] == 0
        assert orders.ok("reap").startswith("examined 0 pipes")

    def test_goes_on_until_a_signal(self, orders):
        reaping = orders.start("reap", "--watch", "0.2", "--json")
        for _ in range(2):
            assert json.loads(reaping.stdout.readline())["failed"] == []

        reaping.send_signal(signal.SIGTERM)

        assert finish(reaping) == (0, "")


class TestDoctor:
    def test_finds_a_sound_file_sound(self, orders):
        found = orders.json("doctor")

        # What is said of the library depends on the machine.
        levels = {each["check"]: each["level"] for each in found["checks"]}
        assert levels.pop("library") in {"ok", "warn"}
        sound = ("file", "integrity", "schema", "journal", "durability", "disk", "pipes")
        assert levels == dict.fromkeys(sound, "ok")
        assert found["counts"]["fail"] == 0
        assert "ok    journal: write-ahead log" in orders.ok("doctor")

    def test_looks_without_making_a_file(self, cli, tmp_path):
        found = cli.json("doctor")

        assert [each["level"] for each in found["checks"]] == ["hint"]
        assert list(tmp_path.iterdir()) == []

    def test_fails_on_a_file_that_is_none(self, cli, tmp_path):
        (tmp_path / "store.db").write_bytes(b"no database" * 100)

        done = cli.run("doctor", "--json")

        assert done.returncode == 1
        first = json.loads(done.stdout)["checks"][0]
        assert (first["check"], first["level"]) == ("file", "fail")
        assert first["way_out"]

    def test_names_pipes_that_nobody_heals(self, cli, tmp_path):
        cli.ok("queue", "create", "orders", "--push-age-max", "1s", "--push-grace", "1s", "--lease", "1s")
        pushing = cli.start("push", "orders", "--lines")
        pushing.stdin.write(b"one\n")
        pushing.stdin.flush()
        pushing.stdout.readline()
        pushing.kill()
        pushing.communicate()
        self._age(tmp_path / "store.db", 3600_000)

        (pipes,) = [each for each in cli.json("doctor")["checks"] if each["check"] == "pipes"]

        assert pipes["level"] == "warn"
        assert "1 pipes of dead pushers still open" in pipes["told"]
        assert "cassq reap" in pipes["way_out"]
        assert cli.json("reap")["sealed"] == 1

    @staticmethod
    def _age(path, ms):
        db = sqlite3.connect(path)
        db.execute("UPDATE pipes SET created_at_ms = created_at_ms - ?", (ms,))
        db.commit()
        db.close()

    def test_hints_at_less_durability(self, orders):
        found = orders.json("doctor", "--url", f"{orders.url}?durability=normal")

        assert {"durability"} == {each["check"] for each in found["checks"] if each["level"] == "hint"}


class TestBadInput:
    """What the issue names, through the command line: the exit code and a word of the way out."""

    @pytest.mark.parametrize(
        ("url", "exit_code", "words"),
        [
            ("", 64, "no store is named"),
            ("nonsense", 64, "is not the URL of a store"),
            ("redis://localhost", 64, "is not the URL of a store"),
            ("sqlite://file.db", 64, "sqlite:///relative.db"),
            ("sqlite:///x.db?speed=1", 64, "'speed' is not an option"),
            ("sqlite:///x.db?durability=high", 64, "durability"),
            ("sqlite:////nowhere/at/all.db", 75, "/nowhere/at/all.db"),
            ("cassandra://", 64, "names no host"),
            ("cassandra://host", 64, "names no keyspace"),
            ("cassandra://host:port/x", 64, "'host:port'"),
            ("cassandra://host/x?zoo=1", 64, "'zoo' is not an option"),
            ("cassandra://user:secret@host:0/x", 64, "'host:0'"),
            ("cassandra://no-such-host.invalid/x", 75, "no-such-host.invalid"),
        ],
    )
    def test_urls(self, url, exit_code, words):
        done = CommandLine().run("queue", "list", *(["--url", url] if url else []))

        assert (done.returncode, done.stdout) == (exit_code, "")
        assert words in done.stderr
        assert "secret" not in done.stderr
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize("command", [("queue", "list"), ("reap",), ("schema", "check")])
    def test_a_host_that_refuses(self, command):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{closed.getsockname()[1]}"
            done = CommandLine(f"cassandra://{address}/x").run(*command, timeout=10)

        assert done.returncode == 75
        assert address in done.stderr

    def test_a_host_that_never_answers_costs_ten_seconds_at_most(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = "{}:{}".format(*silent.getsockname())
            begun = time.monotonic()
            done = CommandLine(f"cassandra://{address}/x").run("reap")

        assert time.monotonic() - begun < 10.5
        assert done.returncode == 75
        assert address in done.stderr

    @pytest.mark.parametrize("name", ["a b", "ä", "", "-x/", "a/b", "x" * 129])
    def test_queue_names(self, cli, name):
        for command in (("queue", "create"), ("push",), ("pop",)):
            done = cli.run(*command, "--", name)
            assert done.returncode == 64, done.stderr
            assert "queue name" in done.stderr

    @pytest.mark.parametrize(
        ("option", "value", "words"),
        [
            ("--lease", "13h", "out of range: 0.1s to 43200s"),
            ("--lease", "1ms", "out of range"),
            ("--lease", "30x", "write 500ms, 30s, 2m, 1h or 1d"),
            ("--lease", "half an hour", "a number with its unit"),
            ("--lease", "9" * 400 + "h", "too long"),
            ("--max-attempts", "0", "out of range: 1 to 1000000"),
            ("--max-attempts", "many", "not a valid int"),
            ("--pop-width", "257", "out of range"),
            ("--body-bytes-max", "9MiB", "out of range"),
            ("--body-bytes-max", "1MB", "64KiB"),
            ("--pipe-bytes-max", "1KiB", "raise pipe_bytes_max"),
        ],
    )
    def test_settings(self, cli, option, value, words):
        done = cli.run("queue", "create", "orders", option, value)

        assert done.returncode == 64
        assert words in done.stderr
        assert cli.json("queue", "list") == []

    def test_a_body_that_is_too_large(self, cli, tmp_path):
        cli.ok("queue", "create", "orders", "--body-bytes-max", "10B")
        (tmp_path / "large").write_bytes(b"x" * 11)

        for arguments in ((tmp_path / "large",), ("--lines", tmp_path / "large")):
            done = cli.run("push", "orders", *arguments)
            assert done.returncode == 65
            assert "body_bytes_max" in done.stderr
        assert cli.run("push", "orders", stdin=b"x" * 10).returncode == 0

    @pytest.mark.parametrize("header", ["type=two\nlines", "two\rlines=type"])
    def test_headers_of_more_than_one_line(self, orders, header):
        done = orders.run("push", "orders", "--header", header, stdin=b"x")

        assert done.returncode == 64
        assert "NUL, CR and LF are refused" in done.stderr

    def test_headers(self, orders):
        assert orders.run("push", "orders", "--header", "type", stdin=b"x").returncode == 64
        assert orders.run("push", "orders", "--header", f"a={'x' * 70_000}", stdin=b"x").returncode == 65

    @pytest.mark.parametrize(
        "command",
        [
            *(("push",), ("pop",), ("peek",), ("queue", "stats"), ("queue", "pipes"), ("queue", "runs")),
            *(("queue", "pause"),),
            *(("queue", "resume"), ("dead", "list")),
        ],
    )
    def test_a_queue_that_is_not_there(self, orders, command):
        done = orders.run(*command, "bills")

        assert done.returncode == 66
        assert "there are: orders" in done.stderr
        assert "cassq queue create bills" in done.stderr

    def test_a_queue_that_is_not_there_is_neither_purged_nor_deleted(self, orders):
        for command in ("purge", "delete"):
            assert orders.run("queue", command, "bills", "--yes").returncode == 66

    def test_a_file_that_is_no_database(self, cli, tmp_path):
        (tmp_path / "store.db").write_bytes(b"no database" * 100)

        done = cli.run("queue", "list")

        assert done.returncode == 65
        assert "is not an SQLite database" in done.stderr

    def test_a_file_of_another_program(self, cli, tmp_path):
        db = sqlite3.connect(tmp_path / "store.db")
        db.execute("CREATE TABLE theirs (x)")
        db.close()

        done = cli.run("queue", "list")

        assert done.returncode == 78
        assert "another program's tables" in done.stderr

    def test_a_file_that_is_read_only(self, orders, tmp_path):
        orders.ok("push", "orders", stdin=b"one")
        for path in (tmp_path / "store.db", tmp_path):
            path.chmod(path.stat().st_mode & 0o555)

        done = orders.run("push", "orders", stdin=b"two", wrapper=(sys.executable, "-c", WITHOUT_ROOT))

        tmp_path.chmod(0o755)
        assert done.returncode == 75, done.stderr
        assert "store.db" in done.stderr
        (tmp_path / "store.db").chmod(0o644)
        assert stats(orders)["pushed"] == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            ("bogus",),
            ("pop",),
            ("pop", "orders", "-n", "0"),
            ("pop", "orders", "--timeout", "-1"),
            ("--bogus",),
        ],
    )
    def test_usage(self, orders, arguments):
        done = orders.run(*arguments)

        assert done.returncode == 64
        assert done.stderr.startswith("cassq: ")
        assert done.stderr.count("\n") == 1


class TestWayOut:
    def test_every_error_ends_with_a_code_of_the_table(self):
        def walk(kind):
            yield kind
            for each in kind.__subclasses__():
                yield from walk(each)

        codes = {code for code, _ in exit_codes.TABLE}
        assert {kind.exit_code for kind in walk(cassq.CassqError)} <= codes

    def test_the_help_shows_the_table(self):
        text = CommandLine().ok("--help")

        for code, meaning in exit_codes.TABLE:
            assert f"{code:>5}  {meaning}" in text

    @pytest.mark.parametrize("is_debug", [False, True])
    def test_a_fault_of_ours_is_one_line(self, monkeypatch, capsys, is_debug):
        def fail(_url):
            raise RuntimeError("a fault")

        monkeypatch.setattr(cassq, "connect", fail)
        monkeypatch.setattr(Ending, "install", lambda _self, _mask: None)

        code = main.run(["queue", "list", "--url", "memory:", *(["--debug"] if is_debug else [])])

        said = capsys.readouterr().err
        assert code == 70
        assert "RuntimeError: a fault" in said
        assert ("Traceback" in said) is is_debug

    def test_the_url_may_stand_in_front_or_behind(self, tmp_path):
        bare = CommandLine()
        url = f"sqlite:///{tmp_path}/a.db"

        assert bare.ok("--url", url, "queue", "create", "orders") == ""
        assert bare.ok("queue", "list", "--names", "--url", url) == "orders\n"
        assert bare.ok("--json", "--url", url, "queue", "list", "--names") == '[{"queue": "orders"}]\n'

    def test_memory_is_a_store_too(self):
        assert CommandLine("memory:").json("queue", "list") == []
