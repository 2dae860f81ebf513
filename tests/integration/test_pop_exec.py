"""`cassq pop --exec`: a command for each message, on the embedded store."""

import json
import os
import signal

import pytest
from command_line import CommandLine, finish

import cassq


@pytest.fixture
def cli(tmp_path):
    return CommandLine(f"sqlite:///{tmp_path}/store.db")


@pytest.fixture
def orders(cli):
    cli.ok("queue", "create", "orders", "--lease", "20s", "--max-attempts", "3", "--retry-delay", "0s")
    return cli


def stats(cli):
    return cli.json("queue", "stats", "orders")


def script(tmp_path, code):
    """Write a command of its own; return its path."""
    path = tmp_path / "work"
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)
    return path


def test_exit_code_0_commits(orders):
    orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\n")

    done = orders.run("pop", "orders", "-n", "2", "--exec", "cat")

    assert (done.returncode, done.stdout) == (0, "onetwo")
    assert "committed 2, rolled back 0" in done.stderr
    assert stats(orders)["committed"] == 2


@pytest.mark.parametrize(
    ("command", "reason"), [("exit 3", "exit code 3"), ("kill -KILL $$", "killed by SIGKILL")]
)
def test_any_other_end_rolls_back_and_is_told(orders, command, reason):
    (pushed,) = orders.lines("push", "orders", stdin=b"one")

    done = orders.run("pop", "orders", "--shell", "--exec", command)

    assert done.returncode == 1
    assert f"message {pushed['id']} is rolled back (attempt 1 of 3): {reason}" in done.stderr
    found = stats(orders)
    assert (found["waiting"], found["rolled_back"], found["committed"]) == (1, 1, 0)


def test_a_message_that_always_fails_becomes_a_dead_letter(orders):
    orders.ok("push", "orders", stdin=b"one")

    done = orders.run("pop", "orders", "-n", "9", "--exec", "false", "--json")

    assert done.returncode == 1
    assert json.loads(done.stdout) == {"queue": "orders", "committed": 0, "rolled_back": 3}
    assert [each["attempts"] for each in orders.json("dead", "list", "orders")] == [3]


def test_what_the_command_is_told(orders):
    header = ("--header", "type=new", "--header", "my-id=x y")
    (pushed,) = orders.lines("push", "orders", *header, stdin="grün".encode())
    environment = orders.env | {"CASSQ_HEADER_OLD": "another message's", "CASSQ_ATTEMPT": "7"}

    told = orders.ok("pop", "orders", "--exec", "env", env=environment)

    found = dict(line.split("=", 1) for line in told.splitlines())
    assert found["CASSQ_QUEUE"] == "orders"
    assert found["CASSQ_MESSAGE_ID"] == pushed["id"]
    assert found["CASSQ_ATTEMPT"] == "1"
    assert found["CASSQ_PUSHED_AT"].endswith("+00:00")
    assert json.loads(found["CASSQ_HEADERS"]) == {"type": "new", "my-id": "x y"}
    assert (found["CASSQ_HEADER_TYPE"], found["CASSQ_HEADER_MY_ID"]) == ("new", "x y")
    assert "CASSQ_HEADER_OLD" not in found


def test_words_are_split_as_a_shell_does_and_nothing_is_expanded(orders):
    orders.ok("push", "orders", stdin=b"one")

    told = orders.ok("pop", "orders", "--exec", """printf '%s|' "two words" $HOME '*' ; \\#""")

    assert told == "two words|$HOME|*|;|#|"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--exec", "no-such-program -x"), "no program 'no-such-program'"),
        (("--exec", "/dev/null"), "no program '/dev/null'"),
        (("--exec", "cat 'it"), "cannot be split"),
        (("--exec", ""), "needs a command"),
        (("--exec", "cat", "--commit"), "leave --commit"),
        (("--exec", "cat", "--rollback"), "leave --commit"),
        (("--shell",), "name one"),
    ],
)
def test_a_command_that_cannot_be_is_refused_before_anything_is_popped(orders, arguments, words):
    orders.ok("push", "orders", stdin=b"one")

    done = orders.run("pop", "orders", *arguments)

    assert done.returncode == 64
    assert words in done.stderr
    assert stats(orders)["popped"] == 0


@pytest.mark.parametrize(
    ("beginning", "words"),
    [
        (b"neither a program nor a script", "Exec format error"),
        (b"#!/no/such/interpreter\n", "No such file or directory"),
        (b"#!/dev/null\n", "Permission denied"),
    ],
)
def test_a_command_that_the_system_cannot_run_costs_no_attempt(orders, tmp_path, beginning, words):
    orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\n")
    command = script(tmp_path, "")
    command.write_bytes(beginning)

    done = orders.run("pop", "orders", "-n", "2", "--exec", command)

    assert done.returncode == 64
    assert f"cannot be run ({words})" in done.stderr
    found = stats(orders)
    assert (found["waiting"], found["committed"], found["rolled_back"]) == (2, 0, 0)
    again = orders.lines("pop", "orders", "-n", "2", "--commit")
    assert [(each["body"], each["attempt"]) for each in again] == [("one", 1), ("two", 1)]


def test_a_program_that_goes_meanwhile_costs_no_attempt_and_ends_it(orders, tmp_path):
    orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\nthree\n")

    done = orders.run("pop", "orders", "-n", "3", "--exec", script(tmp_path, 'rm "$0"'))

    assert done.returncode == 64
    assert "there is no program" in done.stderr
    found = stats(orders)
    assert (found["committed"], found["waiting"], found["rolled_back"]) == (1, 2, 0)


def test_a_body_larger_than_any_pipe_is_read_or_not(cli, tmp_path):
    cli.ok("queue", "create", "orders", "--body-bytes-max", "8MiB")
    (tmp_path / "large").write_bytes(b"x" * (8 << 20))
    for command, told in (("wc -c", f"{8 << 20}\n"), ("true", "")):
        cli.ok("push", "orders", "-q", tmp_path / "large")
        assert cli.ok("pop", "orders", "--exec", command).strip() == told.strip()

    assert stats(cli)["committed"] == 2


@pytest.mark.parametrize(
    "command", ["head -c 3", "head -c 3; exec 0<&-; sleep 0.1", "exec 0<&-; echo -n xxx"]
)
def test_a_body_of_which_the_command_reads_a_part_ends_as_the_command_does(cli, tmp_path, command):
    cli.ok("queue", "create", "orders", "--body-bytes-max", "8MiB")
    (tmp_path / "large").write_bytes(b"x" * (8 << 20))
    cli.ok("push", "orders", "-q", tmp_path / "large")

    assert cli.ok("pop", "orders", "--shell", "--exec", command) == "xxx"

    assert stats(cli)["committed"] == 1


@pytest.mark.slow
def test_the_lease_goes_on_while_a_second_signal_ends_the_command(cli, tmp_path):
    cli.ok("queue", "create", "orders", "--lease", "4s", "--clock-skew-max", "0s")
    cli.ok("push", "orders", stdin=b"one")
    command = script(tmp_path, 'trap "" TERM; echo $$; while :; do sleep 0.1; done')
    running = cli.start("pop", "orders", "--follow", "--exec", command)
    stubborn = int(running.stdout.readline())

    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGTERM)

    with cassq.connect(cli.url) as store, store.find_queue("orders").popper() as popper:
        assert popper.pop(timeout=60).attempt == 2
        with pytest.raises(ProcessLookupError):  # whoever has the message next is alone with it
            os.kill(stubborn, 0)
    assert finish(running)[0] == 143


@pytest.mark.slow
def test_the_lease_goes_on_while_the_command_runs(cli, tmp_path):
    cli.ok("queue", "create", "orders", "--lease", "6s", "--clock-skew-max", "0s")
    cli.ok("push", "orders", stdin=b"one")
    running = cli.start("pop", "orders", "--exec", script(tmp_path, "echo begun; sleep 14"))
    assert running.stdout.readline() == b"begun\n"

    with cassq.connect(cli.url) as store, store.find_queue("orders").popper() as popper:
        assert popper.pop(timeout=10) is None

    assert finish(running) == (0, "cassq: committed 1, rolled back 0\n")
    assert stats(cli)["rolled_back"] == 0


@pytest.mark.parametrize(
    ("number", "options", "exit_code"),
    [
        (signal.SIGTERM, ("--follow",), 0),
        (signal.SIGHUP, ("--follow",), 0),
        (signal.SIGINT, ("--follow",), 130),
        (signal.SIGTERM, ("-n", "9"), 143),
        (signal.SIGHUP, ("-n", "9"), 129),
    ],
)
def test_a_first_signal_lets_the_command_finish(orders, tmp_path, number, options, exit_code):
    orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\n")
    command = script(tmp_path, f'echo begun; while [ ! -e "{tmp_path}/go" ]; do sleep 0.05; done')
    running = orders.start("pop", "orders", *options, "--exec", command)
    assert running.stdout.readline() == b"begun\n"

    running.send_signal(number)
    (tmp_path / "go").touch()

    assert finish(running) == (exit_code, "cassq: committed 1, rolled back 0\n")
    found = stats(orders)
    assert (found["committed"], found["waiting"], found["rolled_back"]) == (1, 1, 0)


def test_a_second_signal_ends_the_command_and_gives_its_message_back(orders, tmp_path):
    orders.ok("push", "orders", "--lines", stdin=b"one\ntwo\n")
    command = script(tmp_path, 'trap "echo ended; exit 1" TERM; echo begun; while :; do sleep 0.1; done')
    running = orders.start("pop", "orders", "--follow", "--exec", command)
    assert running.stdout.readline() == b"begun\n"

    running.send_signal(signal.SIGINT)  # of two kinds: none waits for the other to be noticed
    running.send_signal(signal.SIGTERM)

    told, words = running.communicate(timeout=60)
    assert (running.returncode, told) == (143, b"ended\n")
    assert b"attempt 1 of 3): cassq was interrupted" in words
    found = stats(orders)
    assert (found["committed"], found["waiting"], found["rolled_back"]) == (0, 2, 1)


def test_nothing_to_pop_is_told(orders):
    done = orders.run("pop", "orders", "--timeout", "0", "--exec", "cat")

    assert done.returncode == 0
    assert "no message came within 0 s" in done.stderr
