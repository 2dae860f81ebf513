"""What a client is sent that follows a topic, and when that ends."""

import asyncio
import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import cassq
from cassq import aio
from cassq.errors import InvalidOptionError, KeyRefusedError
from cassq.http import following
from cassq.http.following import LOT, _events, to_start
from cassq.http.service import InUse
from cassq.http.tails import Tails


class Service:
    """As much of a service as a stream uses; its key is good for so many looks.

    Attributes:
        asked: how often it was.
    """

    def __init__(self, store, looks):
        self.asked = 0
        self.draining = asyncio.Event()
        self.tails = Tails()
        self.topics = InUse(self._find)
        self._store = store
        self._looks = looks

    async def _find(self, _name):
        return await aio.Store(self._store).find_topic("news")

    async def admit(self, _asked, *, is_counted):
        assert not is_counted
        self.asked += 1
        if self.asked > self._looks:
            raise KeyRefusedError("revoked")


@pytest.fixture
def store():
    with cassq.connect("memory:") as opened:
        yield opened


def sent(store, looks, types=None, ends_after=10**9):
    """Return the events of a stream from the beginning, and how often its key was looked at."""

    async def run():
        service = Service(store, looks)
        call = SimpleNamespace(service=service, asked=None, name=lambda _: "news")
        found = []
        async for part in _events(call, {0: 1}, types):
            for event in part.decode().split("\n\n"):
                lines = dict(line.split(": ", 1) for line in event.splitlines() if not line.startswith(":"))
                if lines:
                    found.append((lines["event"], json.loads(lines["data"]), lines.get("id")))
            if len(found) >= ends_after:
                service.draining.set()
        return found, service.asked

    return asyncio.run(run())


def test_a_key_is_looked_at_before_each_lot_of_what_was_there_before(store):
    store.topic("news").publish_many([b"%d" % number for number in range(10 * LOT)])

    found, _ = sent(store, looks=3)

    assert [each["body"] for kind, each, _ in found if kind == "message"] == [str(n) for n in range(3 * LOT)]
    assert [(kind, each["code"]) for kind, each, _ in found if kind == "error"] == [("error", "key-refused")]


def test_a_lot_of_large_messages_comes_in_pieces_and_others_have_their_turn(store, monkeypatch):
    monkeypatch.setattr(following, "PIECE_BYTES", 1)
    store.topic("news").publish_many([b"%d" % number for number in range(10)])
    pieces, turns = [], []

    async def run():
        service = Service(store, 10**9)
        call = SimpleNamespace(service=service, asked=None, name=lambda _: "news")

        async def count():
            while True:
                turns.append(len(pieces))
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        async for part in _events(call, {0: 1}, None):
            pieces.append(part)
            if part.count(b"id: "):
                assert part.count(b"id: ") == 1
            if b'"9"' in part:
                service.draining.set()
        counting.cancel()

    asyncio.run(run())
    assert len([each for each in pieces if b"id: " in each]) == 10
    assert len(set(turns)) >= 10


def test_a_stream_ends_where_the_process_is_about_to(store):
    store.topic("news").publish_many([b"a", b"b"])

    found, _ = sent(store, looks=10**9, ends_after=2)

    assert [(kind, each["body"], place) for kind, each, place in found] == [
        ("message", "a", "0:2"),
        ("message", "b", "0:3"),
    ]


def test_what_is_not_wanted_is_passed_over_and_its_place_counts(store):
    topic = store.topic("news")
    for kind in ("mail", "order.new", "mail"):
        topic.publish(kind.encode(), type=kind)

    found, _ = sent(store, looks=10**9, types=["order.*"], ends_after=1)

    assert [(each["body"], place) for _, each, place in found] == [("order.new", "0:3")]


def test_what_retention_deleted_is_told_and_ends_the_stream(store):
    topic = store.topic("news")
    topic.publish(b"old")
    topic.clear()
    topic.publish(b"new")

    found, _ = sent(store, looks=10**9)

    assert [(kind, each["code"]) for kind, each, _ in found] == [("error", "offset-gone")]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0:17,3:4", {0: 17, 3: 4}),
        ("2027-01-01T08:00:00+00:00", datetime(2027, 1, 1, 8, tzinfo=UTC)),
    ],
)
def test_a_place_is_read(text, start):
    assert to_start(text) == start


@pytest.mark.parametrize("text", ["", "soon", "0", "0:1;1:2", "-1:1", "0:1,", "2027-01-01", "9" * 30 + ":1"])
def test_what_is_no_place_is_refused(text):
    with pytest.raises(InvalidOptionError, match="start="):
        to_start(text)
