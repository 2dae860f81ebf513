"""Python workers are killed in the middle of a read and of a write: Spark tries the task again."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import functions as f
from python_workers import kill_workers, stop_once_at

from cassq.model.shelf import Shelf

PATIENCE_S = 60.0


def wait_until(is_so):
    """Wait until something is so."""
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, "it never was"
        time.sleep(0.02)


@pytest.fixture
def beside():
    """A thread for the query that is hit."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_read_that_is_hit_shows_every_message_once(spark, queue, read, tmp_path, beside):
    bodies = [f"m{number}".encode() for number in range(300)]
    queue.push_many(bodies)
    marker = tmp_path / "stopped"
    frame = read(partition_messages="60").select("body").mapInArrow(stop_once_at(str(marker)), "body binary")

    def hit():
        try:
            wait_until(marker.exists)
        finally:  # or the query waits for ever
            killed = kill_workers()
        return killed

    hitting = beside.submit(hit)
    found = Counter(bytes(row.body) for row in frame.collect())
    assert hitting.result(PATIENCE_S) > 0
    assert found == Counter(bodies)


def test_a_write_that_is_hit_writes_every_message_once(spark, store, queue, url, name, tmp_path, beside):
    marker = tmp_path / "stopped"
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    frame = (
        spark.range(400)
        .repartition(4)
        .select(f.concat(f.lit("m"), "id").alias("body"))
        .mapInArrow(stop_once_at(str(marker), batch=5), "body string")
    )

    def hit():
        try:
            wait_until(marker.exists)
            wait_until(lambda: store.storage.list_pipes(name, shelf=Shelf.STAGED).entries)
        finally:
            killed = kill_workers()
        return killed

    hitting = beside.submit(hit)
    frame.write.format("cassq").option("url", url).option("queue", name).mode("append").save()
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert hitting.result(PATIENCE_S) > 0
    found = Counter()
    with queue.popper() as popper:
        while deliveries := popper.pop_many(1000, timeout=2.0 if not found else 0.3):
            popper.commit_many(deliveries)
            found.update(delivery.body for delivery in deliveries)
    assert found == Counter(f"m{number}".encode() for number in range(400))
