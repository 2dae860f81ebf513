"""`cassq reap` as cron runs it: a bare environment, an absolute path, overlapping runs, kills."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta

import pytest
from command_line import BARE, CASSQ, CommandLine

import cassq

SEED = 20261121

#: A machine may stand still for a while between a pop and its commit.
LEASE = timedelta(seconds=2)

# A pusher and a popper that die with everything in hand: pipes open, messages leased, claims held.
LEAVE_A_MESS = """
import os, signal, sys
import cassq
queue = cassq.connect(sys.argv[1]).find_queue("orders")
queue.push_many(b"%d" % number for number in range(300))
popper = queue.popper()
for delivery in popper.pop_many(20, 10.0):
    delivery.commit()
assert popper.pop_many(20, 10.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def url(tmp_path):
    """A store with the remains of dead processes, old enough to be healed."""
    url = f"sqlite:///{tmp_path}/store.db"
    with cassq.connect(url) as store:
        store.queue(
            "orders",
            lease=LEASE,
            push_age_max=timedelta(milliseconds=200),
            push_grace=timedelta(milliseconds=100),
            clock_skew_max=timedelta(0),
            pipe_messages_max=50,
            max_attempts=1000,
        )
    died = subprocess.run([sys.executable, "-c", LEAVE_A_MESS, url], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    with cassq.connect(url) as store:
        queue, deadline = store.find_queue("orders"), time.monotonic() + 60
        ended_at = time.monotonic() + LEASE.total_seconds()
        while any(pipe.owner for pipe in queue.pipes()) or time.monotonic() < ended_at:
            assert time.monotonic() < deadline, "the claims of the dead popper do not end"
    return url


def reap(url):
    """Start a pass as cron does."""
    return subprocess.Popen(
        [CASSQ, "reap", "--json", "--url", url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env=BARE,
    )


def report_of(process):
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr.decode()
    assert stderr == b""
    return json.loads(stdout)


def check_nothing_is_lost(url):
    """Every message that was not committed is delivered; the totals are exact, and nothing is left."""
    with cassq.connect(url) as store:
        queue = store.find_queue("orders")
        bodies = []
        with queue.popper() as popper:
            while queue.stats().committed < 300:
                deliveries = popper.pop_many(100, 1.0)
                popper.commit_many(deliveries)
                bodies += [delivery.body for delivery in deliveries]
        assert len(bodies) == len(set(bodies)) == 280
        deadline = time.monotonic() + 30
        while queue.pipes():
            assert queue.reap().failed == []
            assert time.monotonic() < deadline
        stats = queue.stats()
    assert (stats.pushed, stats.popped, stats.committed) == (300, 300, 300)
    assert (stats.waiting, stats.pending, stats.dead, stats.pipes) == (0, 0, 0, 0)


def test_a_pass_heals_what_dead_processes_left(url):
    report = report_of(reap(url))

    assert report["failed"] == []
    assert report["busy"] == 0
    assert report["examined"] >= 6
    assert report["sealed"] >= 1
    assert report["returned"] >= 20
    check_nothing_is_lost(url)


def test_a_second_pass_finds_nothing_to_heal(url):
    report_of(reap(url))

    report = report_of(reap(url))

    assert (report["sealed"], report["returned"], report["retired"], report["failed"]) == (0, 0, 0, [])
    check_nothing_is_lost(url)


def test_two_at_once_are_harmless(url):
    for _ in range(3):
        for report in [report_of(each) for each in [reap(url), reap(url)]]:
            assert report["failed"] == []

    check_nothing_is_lost(url)


def test_a_kill_at_any_point_is_harmless(url):
    chance = random.Random(SEED)
    began = time.monotonic()
    report_of(reap(url))
    whole_s = time.monotonic() - began
    for _ in range(8):
        process = reap(url)
        try:
            process.wait(chance.uniform(0.3, 1.1) * whole_s)  # a point in time, not a wait for anything
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()

    report_of(reap(url))
    check_nothing_is_lost(url)


def test_an_unreachable_store_is_75_and_one_line(tmp_path):
    done = subprocess.run(
        [CASSQ, "reap", "--url", f"sqlite:///{tmp_path}/none/store.db"],
        env=BARE,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 75
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_what_could_not_be_done_is_1_and_told(url, tmp_path):
    # A pipe whose rows are not cassq's cannot be healed; the others are.
    db = sqlite3.connect(tmp_path / "store.db")
    db.execute("UPDATE heads SET phase = 'melted' WHERE pipe = (SELECT min(pipe) FROM heads)")
    db.commit()
    db.close()

    done = CommandLine(url).run("reap", "--json")

    assert done.returncode == 1
    (failure,) = json.loads(done.stdout)["failed"]
    assert failure in done.stderr
