"""What the doctor says of topics."""

import pytest

import cassq
from cassq.cli.doctor.finding import Level
from cassq.cli.doctor.topics import examine


@pytest.fixture
def store():
    with cassq.connect("memory:") as opened:
        yield opened


def test_a_store_without_topics_is_told_nothing(store):
    assert list(examine(store)) == []


def test_a_group_with_messages_and_no_member_is_told(store):
    topic = store.topic("events")
    with topic.consumer("billing"):
        pass
    assert [each.level for each in examine(store)] == [Level.OK]
    topic.publish(b"x")

    (found,) = examine(store)

    assert found.level is Level.WARN
    assert "events/billing" in found.told
    assert "delete-group" in found.way_out


def test_a_group_whose_members_are_at_work_is_fine(store):
    topic = store.topic("events")
    with topic.consumer("billing") as consumer:
        topic.publish(b"x")
        assert consumer.poll(1, timeout=30)

        assert [each.level for each in examine(store)] == [Level.OK]


def test_a_topic_that_cannot_be_read_is_told_and_leaves_the_others(store, monkeypatch):
    store.topic("a")
    broken = store.topic("b")

    def fail():
        raise cassq.DecodeError("a row of somebody else")

    monkeypatch.setattr(broken, "groups", fail)

    (found,) = examine(store)

    assert (found.level, found.told) == (Level.FAIL, "topic b: a row of somebody else")
