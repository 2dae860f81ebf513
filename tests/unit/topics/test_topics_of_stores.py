"""What comes between the calls of a store that opens, reaps and deletes topics."""

import pytest
from support.interrupted import Interrupted, lose

import cassq
from cassq.errors import TopicNotFoundError


@pytest.fixture
def store(tmp_path):
    with cassq.connect(f"sqlite:///{tmp_path}/t.db") as made:
        yield made


@pytest.fixture
def other(tmp_path, store):
    with cassq.connect(f"sqlite:///{tmp_path}/t.db") as made:
        yield made


@pytest.fixture
def between(store, monkeypatch):
    """The store's storage, between whose calls something happens."""
    made = Interrupted(store._topic_catalog._storage)
    monkeypatch.setattr(store._topic_catalog, "_storage", made)
    return made


class TestReaping:
    def test_a_topic_that_is_deleted_during_a_pass_ends_it_for_no_other(self, store, other, between):
        store.topic("a")
        store.topic("b").publish(b"x")
        between.after["read_topics"] = lambda *_: other.delete_topic("a")

        assert store.reap() is not None

    def test_a_topic_that_is_made_anew_during_a_pass_stays_open(self, store, between):
        store.topic("a").publish(b"old")
        made = []

        def renew(*_):
            store.delete_topic("a")
            made.append(store.topic("a"))

        between.after["read_topics"] = renew

        store.reap()

        assert made[0].publish(b"new").offset == 1


class TestDeletion:
    def test_no_publish_is_acknowledged_once_a_deletion_without_an_answer_ended(
        self, store, other, monkeypatch
    ):
        topic = other.topic("a")
        topic.publish(b"x")
        known = store.topic("a")._context.known
        made = Interrupted(known._storage)
        monkeypatch.setattr(known, "_storage", made)
        made.after["change_topic"] = lose

        store.delete_topic("a")

        with pytest.raises(TopicNotFoundError):
            topic.publish(b"late")

    def test_of_two_deletions_at_once_one_hears_that_there_is_no_such_topic(self, store, monkeypatch):
        store.topic("a")
        real = store.find_topic

        def find(name):
            found = real(name)
            monkeypatch.undo()
            store.delete_topic(name)
            return found

        monkeypatch.setattr(store, "find_topic", find)

        with pytest.raises(TopicNotFoundError):
            store.delete_topic("a")

    def test_an_alteration_beside_a_deletion_hears_that_there_is_no_such_topic(self, store, monkeypatch):
        store.topic("a")
        real = store.find_topic

        def find(name):
            found = real(name)
            monkeypatch.undo()
            store.delete_topic(name)
            return found

        monkeypatch.setattr(store, "find_topic", find)

        with pytest.raises(TopicNotFoundError):
            store.alter_topic("a", segment_bytes=2048)

    def test_a_topic_of_the_same_name_begins_anew_and_the_one_before_hears_of_it(self, store, other):
        old = other.topic("a")
        old.publish(b"old")
        reader = old.reader()
        store.delete_topic("a")
        new = store.topic("a")

        with pytest.raises(TopicNotFoundError):
            old.publish(b"late")
        with pytest.raises(TopicNotFoundError):
            reader.read_many()
        assert new.publish(b"new").offset == 1
        assert [each.body for each in new.reader().read_many()] == [b"new"]


class TestClosing:
    def test_all_that_was_promised_soon_has_ended_once_the_topic_is_closed(self, store):
        topic = store.topic("a", partitions=2)
        futures = [topic.publish_soon(b"%d" % each, partition=each % 2) for each in range(200)]
        futures[7].cancel()

        topic.close()

        assert all(each.done() for each in futures)
        told = {tuple(each.result(0)[:2]) for each in futures if not each.cancelled()}
        there = {(each.partition, each.offset) for each in store.topic("a").reader().read_many(1000)}
        there |= {
            (each.partition, each.offset)
            for part in (0, 1)
            for each in store.topic("a").read(part, limit=1000).messages
        }
        assert told == there
