"""Topics read by Spark, in batches and in streams that are restarted, on a real session and real stores."""

import json
from collections import Counter
from datetime import timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f


@pytest.fixture
def topic(store, name):
    return store.topic(name, partitions=3, segment_bytes=4096)


@pytest.fixture
def read(spark, url, name):
    """Return a frame of the topic, with more options."""

    def frame(**options):
        reader = spark.read.format("cassq").option("url", url).option("topic", name)
        for option, value in options.items():
            reader = reader.option(option, value)
        return reader.load()

    return frame


@pytest.fixture
def stream(spark, url, name):
    """A streaming frame of the topic, with more options."""

    def frame(**options):
        reader = spark.readStream.format("cassq").option("url", url).option("topic", name)
        for option, value in options.items():
            reader = reader.option(option, value)
        return reader.load()

    return frame


def fill(topic, first, last):
    topic.publish_many(
        (b"%d" % number, {"key": f"k{number % 7}", "type": "t"}) for number in range(first, last)
    )


def published_in(topic):
    pages = [topic.read(partition, limit=999) for partition in range(topic.partitions)]
    return Counter(int(each.body) for page in pages for each in page.messages)


def places(rows):
    return [(row.partition, row.offset) for row in rows]


def run(frame, folder):
    query = (
        frame.select("partition", "offset", "body")
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def written(spark, folder):
    return Counter(int(row.body) for row in spark.read.parquet(str(folder / "out")).collect())


def test_a_batch_has_each_message_once_with_all_that_it_has(topic, read):
    fill(topic, 0, 500)

    rows = read(partition_messages=50).collect()

    assert sorted(int(row.body) for row in rows) == list(range(500))
    assert len(set(places(rows))) == 500
    (row,) = [each for each in rows if each.body == b"13"]
    assert (row.topic, row.key, row.type, row.headers) == (topic.name, "k6", "t", {"key": "k6", "type": "t"})
    message = next(iter(topic.read(row.partition, since=row.offset, limit=1).messages))
    assert (
        abs(row.published_at.timestamp() - message.published_at_ms / 1000) < timedelta(days=1).total_seconds()
    )


def test_a_batch_begins_and_ends_where_it_is_told(topic, read):
    topic.publish_many((b"%d" % number for number in range(20)), partition=1)

    rows = read(start=json.dumps({"1": 5}), end=json.dumps({"1": 11})).collect()

    assert sorted(places(rows)) == [(1, offset) for offset in range(5, 11)]
    assert read(start="latest").count() == 0


def test_columns_that_nobody_asked_for_are_not_needed(topic, spark, url, name):
    fill(topic, 0, 10)
    frame = (
        spark.read.format("cassq").schema("offset long, key string").option("url", url).option("topic", name)
    )

    assert frame.load().groupBy("key").agg(f.count("offset")).count() == 7


def test_three_restarts_read_what_came_meanwhile_and_nothing_twice(topic, spark, stream, tmp_path):
    for turn in range(3):
        fill(topic, 100 * turn, 100 * (turn + 1))
        run(stream(messages_per_trigger=30, partition_messages=7), tmp_path)

    assert written(spark, tmp_path) == Counter(range(300))


def test_a_topic_that_was_made_anew_is_told_at_the_restart(topic, store, name, stream, tmp_path):
    fill(topic, 0, 10)
    run(stream(), tmp_path)
    store.delete_topic(name)
    store.topic(name, partitions=3)

    with pytest.raises(PySparkException, match="start the query with a new checkpoint"):
        run(stream(), tmp_path)


def test_what_retention_deleted_is_an_error_unless_it_may_be_skipped(topic, spark, stream, tmp_path):
    topic.publish_many((b"%d" % number for number in range(10)), partition=0)
    frame = stream(start=json.dumps({"0": 1}))
    skipping = stream(start=json.dumps({"0": 1}), skip_gone="true")
    topic.clear()
    topic.publish(b"10", partition=0)

    with pytest.raises(PySparkException, match="is gone by retention or clear"):
        run(frame, tmp_path / "strict")
    run(skipping, tmp_path / "skipping")
    assert written(spark, tmp_path / "skipping") == Counter([10])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": "yesterday"}, "is no place in a topic"),
        ({"start": '{"7": 1}'}, "partitions are 0 to 2"),
        ({"start": "{"}, "is no JSON"),
        ({"starting": "latest"}, "has no option 'starting'"),
    ],
)
def test_bad_options_are_told_before_anything_runs(topic, read, options, words):
    with pytest.raises(PySparkException, match=words):
        read(**options).collect()


def test_a_topic_that_is_not_there_is_told(store, read):
    with pytest.raises(PySparkException, match="there is no topic"):
        read().collect()


class TestSink:
    """Frames that are published."""

    @pytest.fixture
    def write(self, spark, url, name):
        """Publish rows, with more options."""

        def published(rows, schema, **options):
            writer = spark.createDataFrame(rows, schema).repartition(4).write.format("cassq").mode("append")
            for option, value in {"url": url, "topic": name, **options}.items():
                writer = writer.option(option, value)
            writer.save()

        return published

    @pytest.fixture
    def publish(self, url, name, tmp_path):
        """Publish what a stream reads of a folder of JSON, up to what is there; return the query."""

        def run(frame, **options):
            writer = frame.writeStream.format("cassq").trigger(availableNow=True)
            checkpoint = str(tmp_path / "checkpoint")
            for option, value in {
                "url": url,
                "topic": name,
                "checkpointLocation": checkpoint,
                **options,
            }.items():
                writer = writer.option(option, value)
            query = writer.start()
            query.awaitTermination()
            return query

        return run

    @pytest.fixture
    def source(self, store, spark, url, name):
        """A topic with 300 messages, and a stream of them in small batches."""
        fill(store.topic(f"{name}-source", partitions=2), 0, 300)
        reader = spark.readStream.format("cassq").option("url", url).option("topic", f"{name}-source")
        return reader.option("messages_per_trigger", 40).load().select("body", "key")

    def test_a_frame_is_published_with_all_that_it_says(self, topic, write):
        rows = [(f"{number}", {"a": "b"}, f"k{number % 5}", "t", None) for number in range(200)]
        rows += [(f"{number}", None, None, None, 2) for number in range(200, 210)]
        write(rows, "body string, headers map<string,string>, key string, type string, partition int")

        found = {int(each.body): each for part in range(3) for each in topic.read(part, limit=999).messages}
        assert found.keys() == set(range(210))
        assert (found[7].key, found[7].type, found[7].headers["a"]) == ("k2", "t", "b")
        assert {found[number].partition for number in range(200, 210)} == {2}
        of_key = {key: {each.partition for each in found.values() if each.key == key} for key in ("k1", "k2")}
        assert all(len(each) == 1 for each in of_key.values())

    def test_a_batch_that_has_a_number_is_published_once(self, topic, write):
        for _ in range(2):
            write([(f"{number}",) for number in range(500)], "body string", writer="nightly", batch=3)

        assert published_in(topic) == Counter(range(500))

    def test_a_stream_that_is_repeated_publishes_nothing_twice(self, topic, spark, source, publish, tmp_path):
        publish(source)
        published = [each.latest for each in topic.stats()]
        # The driver died before Spark wrote down that its last batch, and one more, were done.
        commits = sorted(
            (tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda each: int(each.name)
        )
        for commit in commits[-2:]:
            for left in (commit, commit.with_name(f".{commit.name}.crc")):
                left.unlink(missing_ok=True)
        assert len(commits) > 2

        publish(source)

        assert [each.latest for each in topic.stats()] == published
        assert published_in(topic) == Counter(range(300))

    def test_a_batch_whose_commit_ended_halfway_goes_on_where_it_was(self, topic, write):
        # What an earlier driver published of the batch before it died.
        rows = [(f"{number}", number % 3) for number in range(90)]
        topic.publish_many(
            [b"%d" % number for number in range(90) if number % 3 == 1],
            partition=1,
            writer="nightly",
            number=3,
        )

        write(rows, "body string, partition int", writer="nightly", batch=3)

        assert published_in(topic) == Counter(range(90))

    @pytest.mark.parametrize(
        ("schema", "row", "options", "words"),
        [
            ("body string, partition int", ("x", 3), {}, "topic .* has partitions 0 to 2"),
            (
                "body string, priority int",
                ("x", 3),
                {},
                "'priority' has no place in a message",
            ),
            ("body string", (None,), {}, "a body is null"),
            ("body string", ("x",), {"writer": "w"}, "'writer' and 'batch' go together"),
            ("body string, key string", ("x", "k" * 70_000), {}, "headers"),
        ],
    )
    def test_what_breaks_a_rule_is_told_and_nothing_is_published(
        self, topic, write, schema, row, options, words
    ):
        with pytest.raises(PySparkException, match=words):
            write([row, *[("y", *row[1:])] * 3] if row[0] else [row], schema, **options)
        assert [each.latest for each in topic.stats()] == [1, 1, 1]

    def test_a_topic_is_not_overwritten(self, topic, spark, url, name):
        writer = spark.createDataFrame([("x",)], "body string").write.format("cassq").mode("overwrite")
        with pytest.raises(PySparkException, match="never overwritten"):
            writer.option("url", url).option("topic", name).save()
