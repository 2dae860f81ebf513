"""What the sink of topics publishes of what tasks have, without a session of Spark."""

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

import cassq
from cassq.errors import StorageUnavailableError
from cassq.spark import publishing
from cassq.spark.options import topic_write_options
from cassq.topics import spreading

SCHEMA = StructType().add("body", StringType()).add("key", StringType()).add("partition", IntegerType())


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def topic(url):
    with cassq.connect(url) as store:
        yield store.topic("events", partitions=2)


@pytest.fixture
def sink(url, topic):
    options = topic_write_options({"url": url, "topic": "events", "writer": "nightly", "batch": "7"})
    return publishing.make_batch_publisher(options, SCHEMA, is_overwriting=False)


def rows(*given):
    columns = zip(*given, strict=True)
    types = pa.string(), pa.string(), pa.int32()
    arrays = [pa.array(column, type=kind) for column, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["body", "key", "partition"])


def bodies(topic):
    pages = [topic.read(partition, limit=1000) for partition in range(topic.partitions)]
    return Counter(int(each.body) for page in pages for each in page.messages)


@pytest.fixture
def of_two(sink):
    """What two tasks have, of 300 messages of 20 keys."""
    return [
        sink.write(iter([rows(*((f"{number}", f"k{number % 20}", None) for number in range(first, 300, 2)))]))
        for first in (0, 1)
    ]


def test_a_batch_that_is_computed_anew_in_another_order_is_published_once(topic, sink, of_two):
    sink.commit(of_two)
    sink.commit(of_two[::-1])

    assert bodies(topic) == Counter(range(300))


def test_more_than_one_number_may_have_comes_in_parts_each_of_which_is_there_once(
    topic, sink, of_two, monkeypatch
):
    monkeypatch.setattr(spreading, "NUMBERED_MESSAGES_MAX", 40)
    sink.commit(of_two)
    sink.commit(of_two[::-1])

    assert bodies(topic) == Counter(range(300))
    for partition in range(2):
        numbers = [
            (each.key, int(each.body) % 2, int(each.body))
            for each in topic.read(partition, limit=300).messages
        ]
        for key in {key for key, *_ in numbers}:
            for task in (0, 1):
                own = [number for *of, number in numbers if of == [key, task]]
                assert own == sorted(own)


def test_too_much_of_one_key_is_refused_before_anything_is_published(topic, sink, monkeypatch):
    monkeypatch.setattr(spreading, "NUMBERED_MESSAGES_MAX", 40)
    given = [(f"{number}", None, 0) for number in range(10)] + [(f"{number}", "k", 1) for number in range(99)]
    with pytest.raises(cassq.InvalidOptionError, match="too many of them have one key"):
        sink.commit([sink.write(iter([rows(*given)]))])
    assert not bodies(topic)


def test_a_commit_that_fails_between_two_partitions_tells_how_far_it_came_and_goes_on(
    topic, sink, of_two, monkeypatch
):
    sent = publishing._topic(sink.options)
    publish_many = sent.publish_many

    def fail(part, *, partition, **options):
        if partition:
            raise StorageUnavailableError("out of reach")
        return publish_many(part, partition=partition, **options)

    monkeypatch.setattr(sent, "publish_many", fail)
    with pytest.raises(StorageUnavailableError) as told:
        sink.commit(of_two)
    published = bodies(topic).total()
    assert 0 < published < 300
    assert f"before that {published} of the 300 messages" in told.value.__notes__[-1]
    monkeypatch.undo()

    sink.commit(of_two)

    assert bodies(topic) == Counter(range(300))


def test_a_task_without_rows_publishes_nothing(topic, sink):
    sink.commit([sink.write(iter([])), None])
    assert not bodies(topic)
