"""What a scrape of an exporter shows, from one round to the next."""

import pytest
from prometheus_client import CollectorRegistry
from support.clocks import HandClock

import cassq
from cassq.metrics.exporter import StoreFigures


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def figures(clock):
    return StoreFigures(clock, every_s=15, queues_max=2)


@pytest.fixture
def shown(figures):
    registry = CollectorRegistry()
    registry.register(figures)
    return registry.get_sample_value


@pytest.fixture
def store():
    with cassq.connect("memory:") as opened:
        opened.queue("a").push(b"x")
        yield opened


PUSHED = "cassq_messages_total", {"queue": "a", "event": "pushed"}


def test_before_the_first_round_there_is_no_figure(shown):
    assert shown("cassq_store_up") == 0
    assert shown(*PUSHED) is None


def test_after_a_failure_no_figure_of_before_is_shown(figures, shown, store):
    figures.read(store)
    assert (shown("cassq_store_up"), shown(*PUSHED)) == (1, 1)
    figures.note_failure()
    assert (shown("cassq_store_up"), shown(*PUSHED)) == (0, None)
    assert shown("cassq_exporter_failures_total") == 1


def test_figures_of_long_ago_are_not_shown(figures, shown, store, clock):
    figures.read(store)
    clock.seconds += 100
    assert shown(*PUSHED) == 1
    clock.seconds += 10
    assert (shown("cassq_store_up"), shown(*PUSHED)) == (0, None)


def test_a_queue_that_cannot_be_read_leaves_the_others(figures, shown, store, monkeypatch):
    store.queue("b").push(b"x")
    broken = store.queue("b")

    def fail():
        raise cassq.DecodeError("a row of somebody else")

    monkeypatch.setattr(broken, "stats", fail)
    figures.read(store)
    assert shown("cassq_exporter_failures_total") == 1
    assert shown("cassq_pipes", {"queue": "a"}) == 1
    assert shown("cassq_pipes", {"queue": "b"}) is None


def test_a_queue_that_is_deleted_meanwhile_is_no_failure(figures, shown, store, monkeypatch):
    monkeypatch.setattr(store, "queues", lambda: ["a", "gone"])
    figures.read(store)
    assert (shown("cassq_store_up"), shown("cassq_exporter_failures_total")) == (1, 0)


def test_a_round_that_is_given_up_shows_what_was_read_before(figures, shown, store):
    figures.read(store)
    store.queue("a").push(b"y")
    figures.read(store, lambda: True)
    assert shown(*PUSHED) == 1


def test_topics_are_told_with_the_lag_of_their_groups(figures, shown, store):
    topic = store.topic("events", partitions=2)
    topic.publish_many([b"abc"] * 5, partition=0)
    with topic.consumer("billing") as consumer:
        for message in consumer.poll(2, timeout=30):
            message.done()

    figures.read(store)

    assert shown("cassq_topic_messages", {"topic": "events"}) == 5
    assert shown("cassq_topic_bytes", {"topic": "events"}) == 15
    assert shown("cassq_group_lag", {"topic": "events", "group": "billing"}) == 3
