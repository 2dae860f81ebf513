"""A stream's whole driver is killed twice and started again: each message is in the files exactly once."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

MESSAGES = 20_000
APP = Path(__file__).with_name("stream_app.py")
SEED = 6


@pytest.fixture
def queue(store, name):
    """A queue of pipes of some size."""
    return store.queue(name, pipe_messages_max=1000)


def start(url, name, folder):
    return subprocess.Popen(
        [sys.executable, str(APP), url, name, str(folder), str(MESSAGES)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )


def kill_at(driver, batches):
    """Kill a driver with all its processes when it has noted so many batches as done."""
    for line in driver.stdout:
        if int(line) >= batches:
            break
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    driver.stdout.close()


@pytest.mark.slow
def test_a_stream_that_is_killed_twice_has_every_message_once(spark, queue, url, name, tmp_path):
    bodies = [f"m{number}".encode() for number in range(MESSAGES)]
    queue.push_many(bodies)
    chosen = random.Random(SEED)
    done = 0
    for _ in range(2):
        done += chosen.randint(2, 6)
        driver = start(url, name, tmp_path / "stream")
        kill_at(driver, done)
    driver = start(url, name, tmp_path / "stream")
    driver.communicate(timeout=900)
    assert driver.returncode == 0
    found = Counter(bytes(row.body) for row in spark.read.parquet(str(tmp_path / "stream" / "out")).collect())
    assert found == Counter(bodies)
    assert queue.stats().committed == MESSAGES
