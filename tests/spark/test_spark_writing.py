"""The batch write, on a real Spark session and real stores."""

import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from popping import pop_exactly
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from cassq.limits import NO_LIMIT
from cassq.model.shelf import Shelf
from cassq.pipes.batch_reader import read_all
from cassq.pipes.shelves import list_pipes_of


@pytest.fixture(autouse=True)
def _patient_looks(monkeypatch):
    """Let a pop wait for the end of its look, however slow the machine is."""
    monkeypatch.setattr("cassq.popping.consumer_line.LOOK_TIMEOUT_S", 120.0)


def drain(queue):
    """Pop and commit everything; return the deliveries."""
    found = []
    with queue.popper() as popper:
        while deliveries := popper.pop_many(1000, timeout=2.0 if not found else 0.3):
            popper.commit_many(deliveries)
            found += deliveries
    return found


def staged(store, queue):
    return store.storage.list_pipes(queue.name, shelf=Shelf.STAGED).entries


@pytest.fixture
def write(url, name):
    """Write a frame into the queue, with more options."""

    def save(frame, mode="append", **options):
        writer = frame.write.format("cassq").option("url", url).option("queue", name)
        for option, value in options.items():
            writer = writer.option(option, value)
        writer.mode(mode).save()

    return save


def bodies_of(spark, count, partitions=4):
    return spark.range(count).repartition(partitions).select(f.concat(f.lit("m"), "id").alias("body"))


def test_every_row_becomes_one_message(spark, store, queue, write):
    write(bodies_of(spark, 500))
    assert queue.stats().waiting == 500
    assert Counter(delivery.body for delivery in drain(queue)) == Counter(
        f"m{n}".encode() for n in range(500)
    )
    assert staged(store, queue) == ()
    assert queue.record.read().writers == {}


def test_binary_bodies_and_headers(spark, queue, write):
    frame = spark.createDataFrame(
        [(bytearray(b"\x00\xff"), {"a": "1"}), (bytearray(b""), None)],
        "body binary, headers map<string,string>",
    )
    write(frame)
    found = {(bytes(delivery.body), tuple(delivery.headers.items())) for delivery in drain(queue)}
    assert found == {(b"\x00\xff", (("a", "1"),)), (b"", ())}


def test_an_empty_frame_writes_nothing(spark, queue, write):
    write(bodies_of(spark, 0))
    assert queue.stats().waiting == 0


def test_a_failed_write_leaves_nothing(spark, store, queue, write):
    broken = bodies_of(spark, 200).select(
        f.when(f.col("body") == "m77", f.raise_error(f.lit("broken"))).otherwise(f.col("body")).alias("body")
    )
    with pytest.raises(PySparkException, match="broken"):
        write(broken)
    assert queue.stats().waiting == 0
    while staged(store, queue):  # tasks that still ran when the job failed
        queue.reap()
    assert drain(queue) == []


def test_a_body_that_is_too_large_is_named_and_nothing_is_written(spark, store, name, write):
    queue = store.queue(name, body_bytes_max=10)
    frame = spark.createDataFrame([("short",), ("far too long a body",)], "body string")
    with pytest.raises(PySparkException, match="19 bytes"):
        write(frame)
    assert queue.stats().waiting == 0


def test_a_null_body_is_refused(spark, queue, write):
    with pytest.raises(PySparkException, match="a body is null"):
        write(spark.createDataFrame([("x",), (None,)], "body string"))
    assert queue.stats().waiting == 0


def test_a_named_batch_is_written_once(spark, queue, write):
    for _ in range(2):
        write(bodies_of(spark, 30), writer="loader", batch="1")
    write(bodies_of(spark, 10), writer="loader", batch="2")
    assert queue.stats().waiting == 40


class TestLabels:
    def test_each_row_has_what_its_columns_say(self, spark, queue, write):
        frame = spark.sql(
            "SELECT concat('m', id) AS body, CAST(id % 3 AS TINYINT) AS priority,"
            " CASE WHEN id % 2 = 0 THEN 'even' END AS type, IF(id % 5 = 0, 60.5, NULL) AS ttl"
            " FROM range(0, 60, 1, 3)"
        )
        write(frame)
        told = {message.body: (message.priority, message.type) for message in queue.peek(100)}
        assert told == {f"m{n}".encode(): (n % 3, "even" if n % 2 == 0 else None) for n in range(60)}
        storage = queue._context.storage
        listed = list_pipes_of(storage, queue.name, queue.record.read().settings, (Shelf.READY,))
        limited = {
            body: batch.ttl_ms
            for entry in listed
            for batch in read_all(storage, entry.pipe, NO_LIMIT)
            for body in batch.bodies
            if batch.ttl_ms
        }
        assert limited.keys() == {f"m{n}".encode() for n in range(0, 60, 5)}
        assert {60_500 <= ttl_ms <= 61_500 for ttl_ms in limited.values()} == {True}
        with queue.popper(types=["even"]) as popper:
            deliveries = pop_exactly(popper, 30)
            assert {delivery.body for delivery in deliveries} == {f"m{n}".encode() for n in range(0, 60, 2)}

    def test_rows_of_one_key_and_task_are_worked_on_one_by_one_in_their_order(self, spark, queue, write):
        frame = spark.range(45).selectExpr("CAST(id AS STRING) AS body", "concat('k', id % 3) AS key")
        write(frame.repartition(2, "key").sortWithinPartitions(f.col("body").cast("int")))
        seen = defaultdict(list)
        queue.record.read()  # which tells that there are keys by now
        with queue.popper() as popper:
            for _ in range(15):
                deliveries = pop_exactly(popper, 3)
                assert {delivery.key for delivery in deliveries} == {"k0", "k1", "k2"}
                for delivery in deliveries:
                    seen[delivery.key].append(int(delivery.body))
                popper.commit_many(deliveries)
        assert seen == {f"k{rest}": list(range(rest, 45, 3)) for rest in range(3)}

    def test_due_times_and_intervals(self, spark, queue, read, write):
        frame = spark.sql(
            "SELECT * FROM VALUES"
            " ('past', TIMESTAMP '2020-01-02 03:04:05 Asia/Kolkata', INTERVAL '1' DAY),"
            " ('later', current_timestamp() + INTERVAL '3' DAY, NULL),"
            " ('now', NULL, INTERVAL '90' MINUTE)"
            " AS rows(body, due, ttl)"
        )
        write(frame)
        assert (queue.stats().waiting, queue.stats().delayed) == (2, 1)
        rows = {bytes(row.body): row for row in read().collect()}
        assert rows[b"past"].due.astimezone(UTC) == datetime(2020, 1, 1, 21, 34, 5, tzinfo=UTC)
        assert (rows[b"now"].due, rows[b"later"].ttl) == (None, None)
        assert 86_400 <= rows[b"past"].ttl <= 86_400 * 65 / 64
        assert 5_400 <= rows[b"now"].ttl <= 5_400 * 65 / 64

    def test_what_a_snapshot_shows_is_written_as_it_is(self, spark, store, queue, name, url, read, write):
        queue.push(b"1", {"a": "b"}, priority=4, type="refund", ttl=timedelta(hours=1))
        queue.push(b"2", key="customer 4", priority=1)
        queue.push(b"3", delay=timedelta(days=2))
        other = store.queue(f"{name}-other")
        columns = "body", "headers", "priority", "type", "key", "due", "ttl"
        frame = read().select(*columns)
        frame.write.format("cassq").option("url", url).option("queue", other.name).mode("append").save()
        again = spark.read.format("cassq").option("url", url).option("queue", other.name).load()
        found = [sorted(each.select(*columns).collect(), key=lambda row: row.body) for each in (frame, again)]
        assert found[0] == found[1]
        assert len(found[0]) == 3

    @pytest.mark.parametrize(
        ("row", "words"),
        [
            ("10 AS priority", "priority=10 must be a whole number from 0 to 9"),
            ("'no such/type' AS type", "'no such/type' is not a type of messages"),
            ("repeat('x', 257) AS key", "has 257 bytes of UTF-8, and a key has 1 to 256"),
            ("0.5 AS ttl", "ttl=0.5s must be a timedelta from 1s"),
            ("CAST('nan' AS DOUBLE) AS ttl", "ttl=nan is no number of seconds"),
            ("TIMESTAMP '2999-01-01 00:00:00' AS due", "1830 are allowed"),
            ("'a' AS key, current_timestamp() AS due", "goes with no delay= and no due="),
        ],
    )
    def test_a_bad_value_is_told_with_its_rule_and_nothing_is_written(
        self, spark, store, queue, write, row, words
    ):
        good = spark.range(30).selectExpr("'x' AS body")
        bad = spark.sql(f"SELECT 'x' AS body, {row}")
        with pytest.raises(PySparkException, match=re.escape(words)):
            write(good.unionByName(bad, allowMissingColumns=True))
        assert queue.stats().waiting == 0
        while staged(store, queue):  # tasks that still ran when the job failed
            queue.reap()
        assert drain(queue) == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            ("id long", "no column 'body'"),
            ("body long", "column 'body' is bigint"),
            ("body string, headers string", "column 'headers' is string"),
            ("body string, priority string", "column 'priority' is string"),
            ("body string, due timestamp_ntz", "column 'due' is timestamp_ntz"),
            ("body string, colour string", "column 'colour'"),
        ],
    )
    def test_a_frame_that_does_not_fit_is_refused_before_any_task_runs(
        self, spark, queue, write, columns, words
    ):
        with pytest.raises(PySparkException, match=words):
            write(spark.createDataFrame([], columns))

    def test_overwriting_is_refused(self, spark, queue, write):
        with pytest.raises(PySparkException, match="never overwritten"):
            write(bodies_of(spark, 1), mode="overwrite")

    def test_a_queue_that_does_not_exist_is_named(self, spark, store, write, name):
        with pytest.raises(PySparkException, match=name):
            write(bodies_of(spark, 1))

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"writer": "loader"}, "go together"),
            ({"writer": "a/b", "batch": "1"}, "a/b"),
            ({"writer": "a", "batch": "-1"}, "'-1'"),
            ({"format": "x"}, "format"),
        ],
    )
    def test_wrong_options_are_named(self, spark, queue, write, options, words):
        with pytest.raises(PySparkException, match=words):
            write(bodies_of(spark, 1), **options)
