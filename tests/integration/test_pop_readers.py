"""`cassq pop` and the reader of its output: one that is slow, stuck, or gone."""

import os
import signal
import time

import pytest
from command_line import CommandLine

COUNT, SIZE = 100, 2000

#: The pipe to a reader holds fewer than all of them.
BODIES = [b"%04d" % number + b"x" * (SIZE - 4) for number in range(COUNT)]


@pytest.fixture
def cli(tmp_path):
    return CommandLine(f"sqlite:///{tmp_path}/store.db")


@pytest.fixture
def orders(cli):
    cli.ok("queue", "create", "orders", "--lease", "3s", "--clock-skew-max", "0s")
    cli.ok("push", "orders", "--lines", "-q", stdin=b"".join(body + b"\n" for body in BODIES))
    return cli


@pytest.fixture
def start(orders):
    """Start a pop; what is left of it is ended."""
    started = []

    def begin(*options):
        started.append(orders.start("pop", "orders", *options))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def stats(cli):
    return cli.json("queue", "stats", "orders")


def wait_until_stuck(cli):
    """Wait until messages are committed though nobody reads: the pipe is full, as it holds less than all."""
    until = time.monotonic() + 60
    while not (committed := stats(cli)["committed"]):
        assert time.monotonic() < until, "nothing is committed while nobody reads"
        time.sleep(0.05)
    return committed


def pass_a_lease(cli):
    """Let more than a lease go by; meanwhile nobody else gets what the first popper has in hand."""
    assert cli.ok("pop", "orders", "--timeout", "5") == ""


def read_all(process):
    """Read what was written, after the end of the process."""
    return process.stdout.read().splitlines()


def test_a_message_ends_as_it_is_written_though_the_reader_is_slow(orders, start):
    popping = start("--commit", "-n", str(COUNT))

    committed = wait_until_stuck(orders)

    pass_a_lease(orders)
    assert stats(orders)["committed"] == committed < COUNT
    assert read_all(popping) == BODIES
    assert popping.wait(30) == 0
    found = stats(orders)
    assert (found["committed"], found["rolled_back"]) == (COUNT, 0)


def test_what_is_to_come_back_is_printed_once_though_the_reader_is_slow(orders, start):
    popping = start("-n", str(COUNT))
    first = popping.stdout.read(SIZE + 1)

    pass_a_lease(orders)

    assert [first.rstrip(), *read_all(popping)] == BODIES
    assert popping.wait(30) == 0
    found = stats(orders)
    assert (found["waiting"], found["rolled_back"]) == (COUNT, COUNT)


@pytest.mark.parametrize(
    ("number", "options", "code"),
    [
        (signal.SIGTERM, ("-n", str(COUNT)), 143),
        (signal.SIGHUP, ("-n", str(COUNT)), 129),
        (signal.SIGTERM, ("--follow",), 0),
        (signal.SIGINT, ("--follow",), 130),
    ],
)
def test_a_signal_ends_a_pop_whose_reader_is_stuck(orders, start, number, options, code):
    popping = start("--commit", *options)
    committed = wait_until_stuck(orders)

    popping.send_signal(number)

    assert popping.wait(30) == code
    assert read_all(popping) == BODIES[:committed]
    assert popping.stderr.read() == b""
    rest = orders.lines("pop", "orders", "-n", str(COUNT), "--commit")
    assert len(rest) == COUNT - committed
    assert {each["attempt"] for each in rest} == {1}


def test_what_was_not_written_out_comes_again_without_an_attempt(orders, start):
    popping = start("--commit", "-n", str(COUNT))
    wait_until_stuck(orders)

    popping.stdout.close()

    assert popping.wait(30) == 141
    committed = stats(orders)["committed"]
    rest = orders.lines("pop", "orders", "-n", str(COUNT), "--commit")
    assert len(rest) == COUNT - committed
    assert {each["attempt"] for each in rest} == {1}


def test_what_was_written_in_part_counts_as_an_attempt(cli, tmp_path, start_large):
    popping = start_large
    popping.stdout.close()

    assert popping.wait(30) == 141
    found = cli.lines("pop", "large", "-n", "3", "--commit", "--timeout", "5")
    assert sorted((each["body"][0], each["attempt"]) for each in found) == [("0", 2), ("1", 1), ("2", 1)]


@pytest.fixture
def start_large(cli, tmp_path):
    """A pop of three messages that are larger than a pipe, of which the first was begun."""
    cli.ok("queue", "create", "large", "--lease", "30s")
    for name in "012":
        (tmp_path / name).write_bytes(name.encode() * 300_000)
    cli.ok("push", "large", *(tmp_path / name for name in "012"))
    popping = cli.start("pop", "large", "--commit", "-n", "3")
    os.read(popping.stdout.fileno(), 1)
    yield popping
    popping.kill()
    popping.stdin.close()
    popping.stderr.close()
