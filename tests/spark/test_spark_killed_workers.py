"""Python workers are killed in the middle of a read and of a write: Spark tries the task again."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import functions as f
from python_workers import kill_workers, stop_once_at

PATIENCE_S = 60.0


def wait_for(path):
    """Wait until a file is there."""
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < until, f"{path} was never made"
        time.sleep(0.02)


@pytest.fixture
def beside():
    """A thread for the query that is hit."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_read_that_is_hit_shows_every_message_once(queue, read, tmp_path, beside):
    bodies = [f"m{number}".encode() for number in range(300)]
    queue.push_many(bodies)
    marker = tmp_path / "stopped"
    frame = read(partition_messages="60").select("body").mapInArrow(stop_once_at(str(marker)), "body binary")
    found = beside.submit(frame.collect)
    wait_for(marker)
    assert kill_workers() > 0
    assert Counter(bytes(row.body) for row in found.result(PATIENCE_S)) == Counter(bodies)


def test_a_write_that_is_hit_writes_every_message_once(spark, store, queue, url, name, tmp_path, beside):
    marker = tmp_path / "stopped"
    frame = (
        spark.range(400)
        .repartition(4)
        .select(f.concat(f.lit("m"), "id").alias("body"))
        .mapInArrow(stop_once_at(str(marker)), "body string")
    )
    writer = frame.write.format("cassq").option("url", url).option("queue", name).mode("append")
    written = beside.submit(writer.save)
    wait_for(marker)
    assert kill_workers() > 0
    written.result(PATIENCE_S)
    found = Counter()
    with queue.popper() as popper:
        while deliveries := popper.pop_many(1000, timeout=2.0 if not found else 0.3):
            popper.commit_many(deliveries)
            found.update(delivery.body for delivery in deliveries)
    assert found == Counter(f"m{number}".encode() for number in range(400))
    assert store.storage.list_pipes(name, is_staged=True).entries == ()
