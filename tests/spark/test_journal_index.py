"""The index of the journal: every message once, over crashes and compactions, and found by its key."""

import json
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

import cassq
from cassq.cli.main import run
from cassq.spark.pipeline import compact, find_in_index, history, journal_index, start_index

CASSQ = Path(sys.executable).with_name("cassq")
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


def told_of(frame):
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

    assert told_of(frame) == Counter(ended.items())
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

    assert told_of(frame) == Counter((ended | dict.fromkeys(map(str, more), "committed")).items())


def test_pipes_that_stand_are_added_where_that_is_asked_for(spark, url, store, ended, queue, tmp_path):
    index(spark, url, tmp_path)
    queue = store.find_queue(queue.name)
    ids = [queue.push(b"live", key="L") for _ in range(3)]
    with queue.popper() as popper:
        popper.pop(timeout=60).reject("no such customer")
        until(lambda: queue.dead.count() == 21)

        frame = history(spark, str(tmp_path), url).where(f.col("queue") == queue.name)

        assert told_of(frame) == Counter(
            (ended | {str(ids[0]): "dead", str(ids[1]): None, str(ids[2]): None}).items()
        )
        recent = frame.where("key = 'L' AND ending = 'dead' AND ended_at > now() - INTERVAL 1 HOUR")
        assert [row.message_id for row in recent.collect()] == [str(ids[0])]


def test_days_that_are_over_are_compacted_and_say_the_same(spark, url, ended, queue, tmp_path, monkeypatch):
    index(spark, url, tmp_path)
    assert compact(spark, str(tmp_path)) == 0  # today is not over
    monkeypatch.setattr(journal_index, "_is_over", lambda _: True)
    before = told_of(history(spark, str(tmp_path)))

    assert compact(spark, str(tmp_path)) > 0
    assert compact(spark, str(tmp_path)) == 0

    assert told_of(history(spark, str(tmp_path))) == before
    assert history(spark, str(tmp_path)).where(f"key = 'K' AND queue = '{queue.name}'").count() == 50
    assert not any((tmp_path / "compacted" / "pieces").glob("run=*/date=*/bucket=*/bucket=*"))


def test_one_message_is_found_without_a_session(spark, url, store, queue, tmp_path, monkeypatch, capsys):
    ids = [queue.push(b"%d" % number, {"customer": "c"}) for number in range(4)]
    assert queue.reprioritise(ids[1], 7)
    with queue.popper() as popper:
        popper.pop(timeout=60).rollback(reason="it was busy")
    work(queue, 4, bad=lambda delivery: delivery.body == b"1")
    retire(store, queue)
    index(spark, url, tmp_path)
    expected = [store.history(each) for each in ids]

    for _ in range(2):
        found = [find_in_index(str(tmp_path), each) for each in ids]

        assert [each.status.state for each in found] == [each.status.state for each in expected]
        assert [each.status.reason for each in found] == [each.status.reason for each in expected]
        assert [each.past for each in found] == [each.past for each in expected]
        assert [(each.queue, each.pusher, each.pipes) for each in found] == [
            (each.queue, each.pusher, each.pipes) for each in expected
        ]
        assert [each.ended_at for each in found] == [each.ended_at for each in expected]
        assert find_in_index(str(tmp_path), f"{ids[0].pipe}:99") is None
        monkeypatch.setattr(journal_index, "_is_over", lambda _: True)
        compact(spark, str(tmp_path))
    capsys.readouterr()
    assert run(["--url", url, "history", str(ids[1]), "--index", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["reason"]) == ("dead", "no such customer")
    with pytest.raises(cassq.InvalidOptionError, match="has no index of a journal"):
        find_in_index(f"{tmp_path}/other", ids[0])


@pytest.mark.slow
def test_the_command_indexes_what_is_there_and_ends(spark, url, ended, queue, tmp_path):
    out = f"{tmp_path}/index"
    words = "pipeline", "journal", out, "--once", "--headers", "customer", "--master", "local[2]"

    done = subprocess.run(
        [CASSQ, *words],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "CASSQ_URL": url},
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert told_of(history(spark, out).where(f.col("queue") == queue.name)) == Counter(ended.items())


def test_each_stream_has_a_registration_of_its_own(spark, url, ended, tmp_path, monkeypatch):
    """Spark adds to a registration's map from the thread of each stream: two at once leave it spoilt."""
    maps, begin = [], journal_index._start
    manager = spark._jsparkSession.sessionState().dataSourceManager()

    def begin_and_note(*given, **options):
        query = begin(*given, **options)
        maps.append(manager.lookupDataSource("cassq").dataSourceCls().envVars())
        return query

    monkeypatch.setattr(journal_index, "_start", begin_and_note)
    index(spark, url, tmp_path)
    maps[0]["of the first"] = "1"

    assert len(maps) == 2
    assert "of the first" not in dict(maps[1])


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

    assert told_of(history(spark, str(tmp_path)).where(f.col("queue") == queue.name)) == Counter(
        ended.items()
    )
