"""What is damaged in the store is one application's trouble: all others are answered as before."""

import sqlite3
from contextlib import closing

import pytest
from support.serving import Serving, keys_of

import cassq


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("service") / "orders.db"


@pytest.fixture(scope="module")
def keys(place):
    return keys_of(f"sqlite:///{place}", "shop", "bank")


@pytest.fixture(scope="module")
def serving(place, keys):
    """A service over a store where a queue and a topic of `shop` are damaged."""
    assert keys
    url = f"sqlite:///{place}"
    with cassq.connect(url) as store:
        for name in ("shop.bad", "shop.good", "bank.good"):
            store.queue(name)
            store.topic(name)
    with closing(sqlite3.connect(place)) as db, db:
        for table in ("queues", "topics"):
            assert db.execute(f"UPDATE {table} SET settings = '[' WHERE name = 'shop.bad'").rowcount == 1
    made = Serving(url)
    yield made
    made.end()


@pytest.mark.parametrize("kind", ["queues", "topics"])
class TestOneDamagedRecord:
    def test_every_listing_is_answered_and_names_it_to_its_owner(self, serving, keys, kind):
        for key, names in zip(keys, (["bad", "good"], ["good"]), strict=True):
            with serving.client(key) as client:
                answer = client.get(f"/v1/{kind}")
                assert (answer.status_code, answer.json()) == (200, {"names": names})

    def test_what_is_not_there_is_not_found_and_can_be_made(self, serving, keys, kind):
        with serving.client(keys[1]) as client:
            assert client.get(f"/v1/{kind}/none").status_code == 404
            assert client.put(f"/v1/{kind}/new").status_code == 201
            assert client.delete(f"/v1/{kind}/new").status_code == 200

    def test_others_are_used_as_before_and_its_owner_is_told_of_a_fault(self, serving, keys, kind):
        for key in keys:
            with serving.client(key) as client:
                assert client.post(f"/v1/{kind}/good/messages", content=b"x").status_code == 201
        with serving.client(keys[0]) as client:
            bad = client.post(f"/v1/{kind}/bad/messages", content=b"x")
        assert (bad.status_code, bad.json()["code"]) == (500, "decode")


def test_what_is_not_damaged_is_reaped(serving):
    with cassq.connect(serving.url) as store:
        report = store.reap()

    assert sorted(each.partition(":")[0] for each in report.failed) == ["queue shop.bad", "topic shop.bad"]
