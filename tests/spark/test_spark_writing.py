"""The batch write, on a real Spark session and real stores."""

from collections import Counter

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from cassq.model.shelf import Shelf


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


class TestRefusals:
    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            ("id long", "no column 'body'"),
            ("body long", "column 'body' is bigint"),
            ("body string, headers string", "column 'headers' is string"),
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
