"""The index of the journal: every message once, over crashes and compactions, and found by its key."""

import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import functions as f
from support.patience import until

from cassq.spark.pipeline import compact, history, journal_index, start_index

APP = Path(__file__).with_name("index_app.py")


@pytest.fixture
def queue(store, name):
    return store.queue(
        name, journal="headers", pipe_messages_max=50, retry_delay=timedelta(0), max_attempts=2
    )


def work(queue, count, bad=lambda _: False):
    """Take so many messages; those that are bad become dead letters."""
    with queue.popper() as popper:
        left = count
        while left:
            for delivery in popper.pop_many(left, timeout=60):
                left -= 1
                if bad(delivery):
                    delivery.reject("no such customer")
                else:
                    delivery.commit()


def retire(store, queue):
    """Have all that was pushed retire, which has ended, and return the queue, opened anew."""
    queue.close()

    def is_empty():
        store.reap()
        return not store.find_queue(queue.name).pipes()

    until(is_empty)
    return store.find_queue(queue.name)


def index(spark, url, out, headers=("customer",)):
    for query in start_index(spark, url, str(out), headers, once=True):
        query.awaitTermination()
        assert query.exception() is None


def told(frame):
    """Return how often each message is told of, with how it ended."""
    return Counter((row.message_id, row.ending) for row in frame.select("message_id", "ending").collect())


@pytest.fixture
def ended(store, queue):
    """200 messages in pipes that are gone, by what became of them."""
    given = [(b"%d" % number, {"customer": f"c{number % 5}"} if number % 2 else {}) for number in range(150)]
    ids = [*queue.push_many(given), *(queue.push(b"%d" % number, key="K") for number in range(150, 200))]
    assert queue.cancel(ids[0])
    work(queue, 199, bad=lambda delivery: int(delivery.body) % 10 == 3)
    retire(store, queue)
    ends = {str(ids[0]): "purged"}
    for number, message_id in enumerate(ids[1:], 1):
        ends[str(message_id)] = "dead" if number % 10 == 3 else "committed"
    return ends


def test_each_message_is_told_once_with_all_that_is_known(spark, url, ended, queue, tmp_path):
    index(spark, url, tmp_path)

    frame = history(spark, str(tmp_path)).where(f.col("queue") == queue.name)

    assert told(frame) == Counter(ended.items())
    now = datetime.now(UTC)
    for row in frame.collect():
        assert row.message_id == f"{row.pipe}:{row.seq}"
        assert row.attempts == 1 or row.ending == "purged"
        assert (row.reason == "no such customer") is (row.ending == "dead")
        assert now - timedelta(hours=1) < row.ended_at.astimezone(UTC) <= now
        assert row.date == row.retired_at.astimezone(UTC).date()
        assert bool(row.key or row.headers) is (row.pushed_at is not None)
    assert frame.where("headers['customer'] = 'c3'").count() == 15
    assert frame.where("key = 'K'").count() == 50


def test_all_errored_messages_of_a_key_in_the_last_hour_are_one_expression(
    spark, url, ended, queue, tmp_path
):
    index(spark, url, tmp_path)

    found = history(spark, str(tmp_path)).where(
        "key = 'K' AND ending = 'dead' AND ended_at > now() - INTERVAL 1 HOUR"
    )

    assert {row.reason for row in found.collect()} == {"no such customer"}
    assert sum(end == "dead" for end in ended.values()) == 20
    assert found.where(f.col("queue") == queue.name).count() == 5
    assert (
        "explode" not in found._jdf.queryExecution().optimizedPlan().toString()
    )  # only what has a key is read


def test_what_comes_later_is_added_and_nothing_twice(spark, url, store, ended, queue, tmp_path):
    index(spark, url, tmp_path)
    index(spark, url, tmp_path)
    queue = store.find_queue(queue.name)
    more = queue.push_many([b"later"] * 30)
    work(queue, 30)
    retire(store, queue)
    index(spark, url, tmp_path)

    frame = history(spark, str(tmp_path)).where(f.col("queue") == queue.name)

    assert told(frame) == Counter((ended | dict.fromkeys(map(str, more), "committed")).items())


def test_pipes_that_stand_are_added_where_that_is_asked_for(spark, url, store, ended, queue, tmp_path):
    index(spark, url, tmp_path)
    queue = store.find_queue(queue.name)
    ids = [queue.push(b"live", key="L") for _ in range(3)]
    with queue.popper() as popper:
        popper.pop(timeout=60).reject("no such customer")
        until(lambda: queue.dead.count() == 21)

        frame = history(spark, str(tmp_path), url).where(f.col("queue") == queue.name)

        assert told(frame) == Counter(
            (ended | {str(ids[0]): "dead", str(ids[1]): None, str(ids[2]): None}).items()
        )
        recent = frame.where("key = 'L' AND ending = 'dead' AND ended_at > now() - INTERVAL 1 HOUR")
        assert [row.message_id for row in recent.collect()] == [str(ids[0])]


def test_days_that_are_over_are_compacted_and_say_the_same(spark, url, ended, queue, tmp_path, monkeypatch):
    index(spark, url, tmp_path)
    assert compact(spark, str(tmp_path)) == 0  # today is not over
    monkeypatch.setattr(journal_index, "_is_over", lambda _: True)
    before = told(history(spark, str(tmp_path)))

    assert compact(spark, str(tmp_path)) > 0
    assert compact(spark, str(tmp_path)) == 0

    assert told(history(spark, str(tmp_path))) == before
    assert history(spark, str(tmp_path)).where(f"key = 'K' AND queue = '{queue.name}'").count() == 50
    assert not any((tmp_path / "compacted" / "pieces").glob("run=*/date=*/bucket=*/bucket=*"))


def start(url, out):
    return subprocess.Popen(
        [sys.executable, str(APP), url, str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )


@pytest.mark.slow
def test_a_driver_that_is_killed_twice_leaves_each_message_told_once(spark, url, ended, queue, tmp_path):
    for batches in (1, 2):
        driver = start(url, tmp_path)
        for line in driver.stdout:
            if int(line) >= batches:
                break
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
    index(spark, url, tmp_path)

    assert told(history(spark, str(tmp_path)).where(f.col("queue") == queue.name)) == Counter(ended.items())
