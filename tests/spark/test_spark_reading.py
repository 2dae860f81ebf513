"""The batch read, on a real Spark session and real stores."""

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from popping import pop_exactly
from pyspark.errors import PySparkException
from pyspark.sql import functions as f


def numbered(count):
    return [f"message {number}".encode() for number in range(count)]


@pytest.fixture
def full(queue):
    """A queue with messages in every state; returns how many of each."""
    queue.push_many((body, {"kind": "a"}) for body in numbered(50))
    with queue.popper() as popper:
        popper.commit_many(pop_exactly(popper, 15))
    return queue


def test_every_message_is_a_row(queue, read):
    ids = queue.push_many(numbered(50))
    rows = read().collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(numbered(50))
    assert {row.message_id for row in rows} == {str(message_id) for message_id in ids}
    assert {(row.state, row.attempt, row.holder) for row in rows} == {("waiting", 0, None)}
    assert all(row.message_id == f"{row.pipe}:{row.seq}" for row in rows)


def test_headers_and_times_come_along(queue, read):
    queue.push(b"x", {"type": "new", "n": "1"})
    message = queue.peek(1)[0]
    (row,) = read().collect()
    assert row.headers == {"type": "new", "n": "1"}
    assert row.pushed_at.astimezone(UTC) == message.pushed_at


def test_what_a_message_was_pushed_with_comes_along(queue, read):
    due = datetime(2031, 2, 3, tzinfo=UTC)
    queue.push(b"plain")
    queue.push(b"urgent", priority=4, type="refund", ttl=timedelta(milliseconds=1 << 22))
    queue.push(b"keyed", key="customer 4")
    moved = queue.push(b"later", delay=timedelta(days=1))
    assert queue.reschedule(moved, due=due)
    rows = {bytes(row.body): row for row in read().collect()}
    steering = {body: (row.priority, row.type, row.key, row.ttl) for body, row in rows.items()}
    assert steering == {
        b"plain": (0, None, None, None),
        b"urgent": (4, "refund", None, 4194.304),
        b"keyed": (0, None, "customer 4", None),
        b"later": (0, None, None, None),
    }
    assert [body for body, row in rows.items() if row.due] == [b"later"]
    assert rows[b"later"].due.astimezone(UTC) == due
    # It was moved, and is known by the id that its push returned
    assert rows[b"later"].message_id == str(moved)
    assert rows[b"later"].pipe != str(moved.pipe)


def test_states_are_told_apart(queue, read):
    queue.push_many(numbered(10))
    with queue.popper() as popper:
        deliveries = pop_exactly(popper, 10)
        popper.commit_many(deliveries[:4])
        deliveries[4].rollback()
        deliveries[5].rollback()
        found = Counter(row.state for row in read().collect())
        assert found["committed"] == 4
        assert found["leased"] + found["returned"] == 6
        assert found["returned"] <= 2
        held = read().where("state = 'leased'").collect()
        assert {row.attempt for row in held} <= {1, 2}
        assert all(row.holder and row.leased_at for row in held)


def test_a_committed_message_is_shown_below_the_floor_too(store, name, read):
    queue = store.queue(name)
    queue.push_many(numbered(30))
    with queue.popper() as popper:
        for count in (10, 10):
            popper.commit_many(pop_exactly(popper, count))
        popper.commit_many(pop_exactly(popper, 5))
    found = Counter(row.state for row in read().collect())
    assert found["committed"] == 25
    assert sum(found.values()) == 30


def test_dead_letters_are_rows_with_a_reason(store, name, read):
    queue = store.queue(name, max_attempts=1)
    queue.push(b"poison", {"a": "b"}, priority=3, type="refund")
    with queue.popper() as popper:
        popper.pop(timeout=5).rollback()
        assert popper.pop(timeout=1) is None
    (row,) = read().where("state = 'dead'").collect()
    assert bytes(row.body) == b"poison"
    assert row.headers == {"a": "b"}
    assert row.reason == "rolled back without a reason"
    assert row.phase is None
    assert (row.priority, row.type, row.key, row.due, row.ttl) == (3, "refund", None, None, None)


def test_purged_messages_are_no_rows(queue, read):
    queue.push_many(numbered(10))
    queue.purge()
    assert read().count() == 0


def test_reading_changes_nothing(full, read):
    before = full.stats()
    read().collect()
    read().where("state = 'waiting'").count()
    after = full.stats()
    assert (after.waiting, after.pending, after.committed) == (
        before.waiting,
        before.pending,
        before.committed,
    )
    assert after.popped == before.popped


def test_an_empty_queue_has_no_rows(queue, read):
    assert read().collect() == []


def test_partitions_are_stretches_of_pipes(queue, read):
    queue.push_many(numbered(100))
    pipes = len(queue.pipes())
    assert pipes >= 5
    frame = read(partition_messages="40")
    letters = 1
    assert frame.rdd.getNumPartitions() == -(-pipes // 2) + letters
    assert frame.count() == 100


def test_all_queues_are_read_by_a_star(spark, store, url, name):
    for suffix in ("a", "b"):
        store.queue(f"{name}-{suffix}").push_many(numbered(3))
    frame = spark.read.format("cassq").option("url", url).option("queue", "*").load()
    counts = {row.queue: row["count"] for row in frame.groupBy("queue").count().collect()}
    assert {each: count for each, count in counts.items() if each.startswith(name)} == {
        f"{name}-a": 3,
        f"{name}-b": 3,
    }


def test_a_schema_with_fewer_columns_reads_only_those(spark, full, url, name):
    frame = (
        spark.read.format("cassq").schema("seq long, state string").option("url", url).option("queue", name)
    )
    rows = frame.load().collect()
    assert {row.asDict().keys() == {"seq", "state"} for row in rows} == {True}
    assert len(rows) >= 35


def test_what_steers_messages_is_read_without_their_bodies(spark, queue, url, name):
    queue.push_many(numbered(3), priority=2, ttl=timedelta(seconds=64))
    columns = "priority int, type string, key string, due timestamp, ttl double"
    frame = spark.read.format("cassq").schema(columns).option("url", url).option("queue", name).load()
    assert [tuple(row) for row in frame.collect()] == [(2, None, None, None, 64.0)] * 3


class TestFilters:
    @pytest.fixture
    def pushing(self, spark):
        """The setting under which Spark hands filters to a source."""
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        yield
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    @pytest.mark.usefixtures("pushing")
    def test_a_state_is_read_alone(self, full, read):
        waiting = read(pushdown="true").where("state = 'waiting'")
        assert waiting.count() == 35
        both = read(pushdown="true").where(f.col("state").isin("waiting", "committed"))
        assert both.count() == 35 + read().where("state = 'committed'").count()

    @pytest.mark.usefixtures("pushing")
    def test_a_pipe_is_read_alone(self, full, read):
        pipe = full.pipes()[-1].pipe
        frame = read(pushdown="true").where(f.col("pipe") == str(pipe))
        assert {row.pipe for row in frame.collect()} == {str(pipe)}
        assert frame.rdd.getNumPartitions() <= 2

    @pytest.mark.usefixtures("pushing")
    def test_other_filters_are_left_to_spark(self, full, read):
        frame = read(pushdown="true").where("seq <= 3 and state = 'waiting'")
        assert {row.seq for row in frame.collect()} <= {1, 2, 3}

    def test_it_is_not_offered_unasked(self, full, read):
        assert read().where("state = 'waiting'").count() == 35

    def test_offered_where_spark_does_not_want_it_the_setting_is_named(self, full, read):
        with pytest.raises(PySparkException, match="filterPushdown"):
            read(pushdown="true").where("state = 'waiting'").count()


class TestWrongOptions:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"queu": "x"}, "queu"),
            ({"partition_messages": "many"}, "'many'"),
            ({"partition_messages": "0"}, "whole number from 1"),
            ({"pushdown": "yes"}, "true or false"),
            ({"queue": "no such/queue"}, "no such/queue"),
            ({"queue": "nobody-made-it"}, "nobody-made-it"),
            ({"url": "memory:"}, "share no memory"),
            ({"url": "mysql://x"}, "mysql"),
        ],
    )
    def test_the_error_names_it_before_any_task_runs(self, queue, read, options, words):
        with pytest.raises(PySparkException, match=words):
            read(**options).collect()

    def test_a_queue_must_be_named(self, spark, url):
        with pytest.raises(PySparkException, match="needs the option 'queue'"):
            spark.read.format("cassq").option("url", url).load().collect()

    def test_a_column_that_messages_do_not_have_is_named(self, spark, queue, url, name):
        frame = spark.read.format("cassq").schema("colour string").option("url", url).option("queue", name)
        with pytest.raises(PySparkException, match="colour"):
            frame.load().collect()


_UNREGISTERED = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("cassq").option("url", sys.argv[1]).option("queue", sys.argv[2]).load()
print("rows", frame.count())
"""


def test_spark_finds_the_format_by_itself(queue, url, name):
    """In a program that never imports cassq: by the name of the module `pyspark_cassq`."""
    queue.push(b"x")
    command = [sys.executable, "-c", _UNREGISTERED, url, name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert "rows 1" in ended.stdout, ended.stderr


def test_a_load_goes_on_to_read_the_pipes_that_it_planned_with(queue, read):
    """As the page says: load again for a new snapshot."""
    queue.push_many(numbered(5))
    frame = read()
    assert frame.count() == 5
    queue.push_many(numbered(200))
    assert 5 <= frame.count() < 205
    assert read().count() == 205
