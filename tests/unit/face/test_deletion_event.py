"""The deletion of a queue that keeps a journal has one event there, whoever dies, and whoever goes on."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from support.interrupted import Interrupted, Killed, die, lose

import cassq
from cassq.catalog.queue_catalog import QueueCatalog
from cassq.errors import CassqError
from cassq.topics.journal import NAME
from cassq.topics.topic_catalog import TopicCatalog


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


class AtCall:
    """A storage at one of whose calls its process dies, before it or after it."""

    def __init__(self, storage, number, *, is_after):
        self._storage, self._number, self._is_after = storage, number, is_after
        self.calls = 0

    def __getattr__(self, name):
        def call(*values, **named):
            self.calls += 1
            is_it = self.calls == self._number
            if is_it and not self._is_after:
                die()
            answer = getattr(self._storage, name)(*values, **named)
            if is_it:
                die()
            return answer

        return call


def with_storage(store, storage):
    """Have a store use a storage for its catalogs and for the journal."""
    store._catalog = QueueCatalog(storage, store._tell_deleted)
    store._services_of_topics = replace(store._services_of_topics, storage=storage)
    store._topic_catalog = TopicCatalog(storage, store.url, store._context_of)
    return storage


def events(store, incarnation):
    """Return the events of a queue's deletion."""
    with suppress(cassq.TopicNotFoundError):
        found = []
        reader = store.find_topic(NAME).reader()
        while page := reader.read_many(1000):
            found += [json.loads(each.body) for each in page if each.key == f"queue:{incarnation}"]
        return found
    return []


def make(store, name="q", journal="outline"):
    """Make a queue of which three messages are in the totals, and return its incarnation."""
    queue = store.queue(name, journal=journal)
    ids = list(queue.push_many([b"1", b"2", b"3"]))
    with queue.popper() as popper:
        for _ in ids:
            popper.pop(timeout=60).commit()
    incarnation = queue.record.incarnation
    queue.close()
    store.reap()
    return incarnation


@pytest.mark.parametrize("journal", ["outline", "headers"])
def test_it_has_the_totals(url, journal):
    with cassq.connect(url) as store:
        incarnation = make(store, journal=journal)

        store.delete_queue("q")

        (told,) = events(store, incarnation)
        assert told["queue"] == "q"
        assert told["totals"] == {
            "pushed": 3,
            "popped": 3,
            "committed": 3,
            "dead": 0,
            "purged": 0,
            "rolled_back": 0,
            "expired": 0,
        }
        for _ in range(2):
            store.reap()
        store.queue("q")
        assert len(events(store, incarnation)) == 1


def test_a_queue_without_a_journal_leaves_none(url):
    with cassq.connect(url) as store:
        incarnation = make(store, journal="off")

        store.delete_queue("q")

        assert events(store, incarnation) == []
        assert store.storage.glance_topic(NAME) is None


def go_on_by_reaping(store):
    store.reap()


def go_on_by_deleting(store):
    with suppress(cassq.QueueNotFoundError):
        store.delete_queue("q")


def go_on_by_creating(store):
    store.queue("q")


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("go_on", [go_on_by_reaping, go_on_by_deleting, go_on_by_creating])
def test_who_dies_at_any_call_leaves_a_deletion_that_is_told_once(url, go_on, is_after):
    number = 0
    while True:
        number += 1
        with cassq.connect(url) as other, cassq.connect(url) as store:
            incarnation = make(other)
            storage = with_storage(store, AtCall(store.storage, number, is_after=is_after))
            with suppress(Killed):
                store.delete_queue("q")
            is_deleted = "q" not in other.queues()

            go_on(other)
            go_on(other)

            if is_deleted or go_on is not go_on_by_creating:
                told = events(other, incarnation)
                assert len(told) == (1 if is_deleted or go_on is go_on_by_deleting else 0), number
            with suppress(cassq.QueueNotFoundError):
                other.delete_queue("q")
        if storage.calls < number:
            return


def test_a_link_whose_answer_is_lost_is_looked_for(url):
    with cassq.connect(url) as store, cassq.connect(url) as other:
        incarnation = make(other)
        storage = with_storage(store, Interrupted(store.storage))
        storage.after["link"] = lose
        with suppress(CassqError):
            store.delete_queue("q")

        other.reap()

        assert len(events(other, incarnation)) == 1
