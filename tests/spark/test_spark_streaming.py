"""The streaming read and write, restarted from their checkpoints, on a real Spark session and real stores."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from popping import pop_exactly
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from cassq.model.ranges import Ranges
from cassq.model.shelf import Shelf
from cassq.pipes.run_rows import Return


def numbered(first, last):
    return [f"m{number}".encode() for number in range(first, last)]


@pytest.fixture
def stream(spark, url, name):
    """A streaming frame of the queue, with more options."""

    def frame(**options):
        reader = spark.readStream.format("cassq").option("url", url).option("queue", name)
        for option, value in ({"reader": "tests"} | options).items():
            reader = reader.option(option, value)
        return reader.load()

    return frame


@pytest.fixture
def folder(tmp_path):
    """Where sink and checkpoint are."""
    return tmp_path / "stream"


def run(frame, folder, sink="parquet", columns=("message_id", "body")):
    """Run a stream into files until everything that is there now was read."""
    query = (
        frame.select(*columns)
        .writeStream.format(sink)
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.exception() is None
    return query


def written(spark, folder):
    """Return the bodies in the sink."""
    return Counter(bytes(row.body) for row in spark.read.parquet(str(folder / "out")).collect())


def test_a_stream_consumes_the_queue(spark, queue, stream, folder):
    queue.push_many(numbered(0, 300))
    run(stream(), folder)
    assert written(spark, folder) == Counter(numbered(0, 300))
    stats = queue.stats()
    assert (stats.waiting, stats.pending, stats.committed) == (0, 0, 300)


def test_three_restarts_from_the_checkpoint_read_what_came_meanwhile_and_nothing_twice(
    spark, queue, stream, folder
):
    for turn in range(4):
        queue.push_many(numbered(100 * turn, 100 * (turn + 1)))
        run(stream(messages_per_trigger="30"), folder)
        assert written(spark, folder) == Counter(numbered(0, 100 * (turn + 1)))
    assert queue.stats().committed == 400


def test_a_stream_tells_what_its_messages_were_pushed_with(spark, queue, stream, folder):
    queue.push(b"urgent", priority=4, type="refund", ttl=timedelta(milliseconds=1 << 22))
    queue.push(b"due", due=datetime(2020, 1, 2, tzinfo=UTC))
    columns = "body", "priority", "type", "key", "due", "ttl"
    run(stream(), folder, columns=columns)
    found = {bytes(row.body): tuple(row)[1:] for row in spark.read.parquet(str(folder / "out")).collect()}
    due = found[b"due"][3]
    assert found == {
        b"urgent": (4, "refund", None, None, 4194.304),
        b"due": (0, None, None, due, None),
    }
    assert due.astimezone(UTC) == datetime(2020, 1, 2, tzinfo=UTC)


def test_a_batch_takes_no_more_than_the_limit(spark, queue, stream, folder):
    queue.push_many(numbered(0, 100))
    query = run(stream(messages_per_trigger="25"), folder)
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sum(sizes) == 100
    assert max(sizes) <= 25


def test_a_batch_that_failed_is_read_again_as_it_was(spark, queue, stream, folder):
    queue.push_many(numbered(0, 90))
    seen = []

    def handle(frame, batch):
        seen.append((batch, sorted((row.message_id, row.seq, row.attempt) for row in frame.collect())))
        if len(seen) in (2, 3):
            raise RuntimeError("the sink is down")

    for _ in range(3):
        query = (
            stream(messages_per_trigger="30")
            .writeStream.foreachBatch(handle)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException as error:
            assert "the sink is down" in str(error)
    assert [batch for batch, _ in seen] == [0, 1, 1, 1, 2]
    assert seen[1] == seen[2] == seen[3]
    ids = [row[0] for _, rows in (seen[0], *seen[3:]) for row in rows]
    assert len(ids) == len(set(ids)) == 90
    assert queue.stats().committed == 90


def test_a_stream_that_stops_leaves_its_last_batch_to_its_next_start(spark, queue, stream, folder):
    queue.push_many(numbered(0, 50))
    query = (
        stream()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 hour")
        .start()
    )
    while not (folder / "checkpoint" / "commits" / "0").exists():
        assert not query.awaitTermination(0.1)
    query.stop()
    assert queue.stats().pending == 50
    query = (
        stream()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert queue.stats().committed == 50


def test_what_was_leased_and_never_written_down_comes_first(spark, queue, stream, folder):
    queue.push_many(numbered(0, 40))
    # A stream of this name that is killed between its lease and the checkpoint.
    reader = queue.run_reader("tests", lease=timedelta(minutes=10))
    assert sum(run.count for run in reader.take(20)) == 20
    reader.close()
    run(stream(), folder)
    assert written(spark, folder) == Counter(numbered(0, 40))


def test_what_others_took_stops_a_stream_unless_it_may_leave_it_out(spark, queue, stream, folder):
    queue.push_many(numbered(0, 20))

    def fail(frame, batch):
        raise RuntimeError("the sink is down")

    def start(handle, **options):
        query = (
            stream(**options)
            .writeStream.foreachBatch(handle)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(PySparkException, match="the sink is down"):
        start(fail)
    # Its lease ends, and somebody else takes all.
    reader = queue.run_reader("tests", lease=timedelta(minutes=10))
    for left in reader.adopt([]):
        reader._leases.held_of(left).give_back(Ranges(left.parts), Return())
    reader.close()
    with queue.popper() as popper:
        popper.commit_many(pop_exactly(popper, 20))
    with pytest.raises(PySparkException, match=r"(?s)20 messages of the batch .*skip_lost"):
        start(fail)
    rows = []
    start(lambda frame, batch: rows.extend(frame.collect()), skip_lost="true")
    assert rows == []


class TestStreamingWrite:
    @pytest.fixture
    def source(self, spark, tmp_path):
        """A folder that is streamed from, a file each time, and how to add one."""
        folder = tmp_path / "source"
        folder.mkdir()

        def add(name, bodies):
            (folder / f"{name}.txt").write_text("\n".join(bodies) + "\n")

        return add, lambda: spark.readStream.text(str(folder)).withColumnRenamed("value", "body")

    def write(self, frame, url, name, folder):
        query = (
            frame.writeStream.format("cassq")
            .option("url", url)
            .option("queue", name)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def test_batches_come_once_over_restarts(self, store, queue, url, name, folder, source):
        add, frame = source
        for turn in range(3):
            add(f"file-{turn}", [f"{turn}-{line}" for line in range(50)])
            self.write(frame(), url, name, folder)
        assert queue.stats().waiting == 150
        (writer,) = queue.record.read().writers
        assert writer.startswith("query-")

    def test_a_batch_that_spark_repeats_is_published_once(self, store, queue, url, name, folder, source):
        add, frame = source
        add("first", [f"a{line}" for line in range(50)])
        self.write(frame(), url, name, folder)
        # As after a crash between the publication and Spark's own note of it.
        for note in (folder / "checkpoint" / "commits").iterdir():
            note.unlink()
        add("second", [f"b{line}" for line in range(30)])
        self.write(frame(), url, name, folder)
        assert queue.stats().waiting == 80
        assert store.storage.list_pipes(name, shelf=Shelf.STAGED).entries == ()


def test_a_queue_is_copied_into_another_by_a_stream(spark, store, queue, stream, url, name, folder):
    copy = store.queue(f"{name}-copy")
    like = {"priority": 2, "type": "refund", "ttl": timedelta(hours=64)}
    queue.push_many(((body, {"n": str(place)}) for place, body in enumerate(numbered(0, 120))), **like)
    query = (
        stream(messages_per_trigger="50")
        .select("body", f.col("headers"), "priority", "type", "ttl")
        .writeStream.format("cassq")
        .option("url", url)
        .option("queue", copy.name)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert copy.stats().waiting == 120
    assert queue.stats().committed == 120
    assert {(message.priority, message.type) for message in copy.peek(120)} == {(2, "refund")}


class TestWrongOptions:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"reader": "a/b"}, "a/b"),
            ({"messages_per_trigger": "0"}, "whole number from 1"),
            ({"lease": "1s"}, "10s to 43200s"),
            ({"skip_lost": "maybe"}, "true or false"),
            ({"queue": "*"}, "queue"),
            ({"queue": "nobody-made-it"}, "nobody-made-it"),
            ({"colour": "red"}, "colour"),
        ],
    )
    def test_the_error_names_it(self, queue, stream, folder, options, words):
        with pytest.raises(PySparkException, match=words):
            run(stream(**options), folder)

    def test_a_reader_must_be_named(self, spark, queue, url, name, folder):
        frame = spark.readStream.format("cassq").option("url", url).option("queue", name).load()
        with pytest.raises(PySparkException, match="needs the option 'reader'"):
            run(frame, folder)
