"""What the storage port says of topics, asked of every adapter."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest

from cassq.model.ids import new_pipe_id, new_token
from cassq.model.offer import Offer
from cassq.model.topic import (
    LogBatch,
    PartitionKey,
    Progress,
    SegmentState,
    Subscription,
    TopicRecord,
    TopicState,
    WriterRow,
    closed,
    first_head,
    linked,
)
from cassq.model.topic_settings import TopicSettings
from cassq.storage.topic_port import LogQuery

LARGE = b"x" * 20_000


@pytest.fixture
def name():
    """A topic name that no other test uses."""
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture
def key():
    """A partition that nobody else has."""
    return PartitionKey(new_token(), 3)


@pytest.fixture
def place(storage, key):
    """The first segment of that partition, which exists."""
    made = key.segment(1)
    storage.create_segment(made, first_head(made, 1))
    return made


def topic(name, **changes):
    return replace(TopicRecord(name, new_token(), TopicSettings(partitions=4), new_token()), **changes)


def batch_of(head, wanted, *bodies, headers=None):
    return LogBatch(head.next, len(bodies), bodies, headers, wanted.op)


def publish(storage, place, *bodies, headers=None, writers=()):
    head = storage.load_head(place)
    wanted = linked(head, len(bodies), sum(map(len, bodies)))
    assert storage.link(place, head, wanted, [batch_of(head, wanted, *bodies, headers=headers)], writers)
    return wanted


def bodies_of(batches):
    return [body for batch in batches for body in batch.bodies]


def read_all(storage, place, since=1, **query):
    return storage.read_log(place, LogQuery(since, 100, **query))


class TestRecords:
    def test_a_topic_reads_back_as_it_was_written(self, storage, name):
        wanted = topic(
            name,
            groups={"billing": new_token(), "jobs": new_token()},
            subscriptions={"jobs": Subscription(new_token(), ("order.*",), on_gone="oldest")},
        )

        assert storage.change_topic(None, wanted)

        assert list(storage.read_topics(name)) == [wanted]
        assert wanted in storage.read_topics()
        assert name in storage.list_topics()
        assert storage.glance_topic(name) == wanted
        assert storage.glance_topic(name).read_at_ms > 1_700_000_000_000
        assert list(storage.read_topics(f"{name}x")) == []
        assert storage.glance_topic(f"{name}x") is None

    def test_a_second_creation_is_refused(self, storage, name):
        first = topic(name)
        assert storage.change_topic(None, first)

        assert not storage.change_topic(None, topic(name))

        assert storage.glance_topic(name) == first

    def test_a_change_needs_the_op_that_was_seen(self, storage, name):
        first = topic(name)
        second = replace(first, op=new_token(), state=TopicState.DELETED)
        storage.change_topic(None, first)

        assert storage.change_topic(first, second)
        assert not storage.change_topic(first, replace(first, op=new_token()))
        assert name not in storage.list_topics()
        assert storage.change_topic(
            second, cleared := replace(second, op=new_token(), state=TopicState.CLEARED)
        )
        assert name not in storage.list_topics()
        assert storage.change_topic(cleared, third := topic(name))

        assert list(storage.read_topics(name)) == [third]

    def test_subscriptions_come_and_go(self, storage, name):
        first = topic(name)
        second = replace(first, op=new_token(), subscriptions={"a": Subscription(new_token())})
        third = replace(second, op=new_token(), subscriptions={})
        storage.change_topic(None, first)

        assert storage.change_topic(first, second)
        assert storage.glance_topic(name) == second
        assert storage.change_topic(second, third)
        assert storage.glance_topic(name) == third

    def test_of_many_that_change_it_at_once_one_does(self, storage, name):
        first = topic(name)
        storage.change_topic(None, first)
        wanted = [replace(first, op=new_token()) for _ in range(4)]

        with ThreadPoolExecutor(4) as pool:
            applied = list(pool.map(lambda each: storage.change_topic(first, each), wanted))

        assert applied.count(True) == 1
        assert list(storage.read_topics(name)) == [wanted[applied.index(True)]]


class TestSegments:
    def test_a_partition_has_no_segment_at_first(self, storage, key):
        found = storage.list_segments(key)

        assert found.segments == ()
        assert found.now_ms > 1_700_000_000_000
        assert storage.load_head(key.segment(1)) is None
        assert storage.glance_head(key.segment(1)) is None

    def test_a_segment_is_listed_with_its_head_and_its_writers(self, storage, key):
        first, second = key.segment(1), key.segment(2)
        storage.create_segment(first, first_head(first, 1))
        storage.create_segment(second, first_head(second, 41), [WriterRow("import", 7, 40)])

        found = storage.list_segments(key)

        assert [(each.number, each.first) for each in found.segments] == [(1, 1), (2, 41)]
        assert all(0 <= found.now_ms - each.created_at_ms < 60_000 for each in found.segments)
        assert storage.load_head(second) == storage.glance_head(second) == first_head(second, 41)
        assert list(storage.read_writers(second)) == [WriterRow("import", 7, 40)]
        assert list(storage.read_writers(first)) == []

    def test_a_creation_that_comes_again_changes_nothing(self, storage, place):
        head = publish(storage, place, b"a", b"b")

        storage.create_segment(place, first_head(place, 1))

        assert storage.load_head(place) == head
        assert bodies_of(read_all(storage, place)) == [b"a", b"b"]

    def test_what_was_deleted_is_gone_and_stays_gone(self, storage, key, place):
        publish(storage, place, b"a", writers=[WriterRow("import", 1, 1)])
        publish(storage, place, LARGE)
        head = storage.load_head(place)
        storage.create_segment(place.successor, first_head(place.successor, 3))

        storage.delete_segment(place)
        storage.delete_segment(place)
        storage.create_segment(place, first_head(place, 1))

        assert [each.number for each in storage.list_segments(key).segments] == [2]
        assert storage.load_head(place) is None
        assert read_all(storage, place) == []
        assert list(storage.read_writers(place)) == []
        assert not storage.link(place, head, linked(head, 0, 0))

    def test_partitions_and_incarnations_have_nothing_in_common(self, storage, key, place):
        publish(storage, place, b"a")
        for other in (key._replace(partition=4), key._replace(incarnation=new_token())):
            assert storage.list_segments(other).segments == ()
            assert storage.load_head(other.segment(1)) is None
            assert read_all(storage, other.segment(1)) == []


class TestLinks:
    @pytest.mark.parametrize(
        ("bodies", "headers"),
        [
            ((b"a", b"", b"\0c"), None),
            ((b"a", b"b"), ({"type": "x", "key": "ü"}, {})),
            ((LARGE, b"b"), None),
            ((b"a", LARGE), ({"a": "b"}, {"c": "d"})),
        ],
        ids=["plain", "with headers", "large", "large with headers"],
    )
    def test_a_batch_reads_back_as_it_was_linked(self, storage, place, bodies, headers):
        wanted = publish(storage, place, *bodies, headers=headers)

        (found,) = read_all(storage, place)

        assert (found.first, found.count, found.bodies, found.headers) == (1, len(bodies), bodies, headers)
        assert found.link_id == wanted.op
        assert found.published_at_ms > 1_700_000_000_000
        (outline,) = read_all(storage, place, is_outline=True)
        assert outline == replace(found, bodies=(), headers=None)

    def test_one_link_may_bring_several_batches(self, storage, place):
        seen = storage.load_head(place)
        wanted = linked(seen, 4, 4)
        batches = [
            LogBatch(1, 2, (b"a", LARGE), None, wanted.op),
            LogBatch(3, 1, (b"",), ({"x": "y"},), wanted.op),
            LogBatch(4, 1, (b"d",), None, wanted.op),
        ]

        assert storage.link(place, seen, wanted, batches)

        found = read_all(storage, place)
        assert [replace(each, published_at_ms=0) for each in found] == batches
        assert storage.load_head(place) == wanted

    def test_a_link_needs_the_op_that_was_seen(self, storage, place):
        seen = storage.load_head(place)
        publish(storage, place, b"a")
        late = linked(seen, 1, 1)

        assert not storage.link(place, seen, late, [batch_of(seen, late, b"late")], [WriterRow("w", 1, 1)])

        assert bodies_of(read_all(storage, place)) == [b"a"]
        assert list(storage.read_writers(place)) == []

    def test_of_many_that_link_at_once_one_does(self, storage, place):
        seen = storage.load_head(place)
        wanted = [linked(seen, 1, 1) for _ in range(4)]

        def link(each):
            return storage.link(place, seen, each, [batch_of(seen, each, str(each.op).encode())])

        with ThreadPoolExecutor(4) as pool:
            applied = list(pool.map(link, wanted))

        assert applied.count(True) == 1
        winner = wanted[applied.index(True)]
        assert storage.load_head(place) == winner
        assert bodies_of(read_all(storage, place)) == [str(winner.op).encode()]

    def test_a_link_may_bring_no_batch(self, storage, place):
        head = publish(storage, place, b"a")
        wanted = closed(head)

        assert storage.link(place, head, wanted)

        assert storage.load_head(place) == wanted
        assert storage.load_head(place).state is SegmentState.CLOSED
        assert bodies_of(read_all(storage, place)) == [b"a"]

    def test_the_later_offer_of_a_source_stands_whole(self, storage, place):
        if not storage.offer(place, Offer("~a", 2, (b"x", LARGE), ({"type": "t"}, {}))):
            assert storage.read_offers(place) is None
            return
        assert storage.offer(place, Offer("~a", 3, (b"y",), None))
        assert storage.offer(place, Offer("~a", 2, (b"x", LARGE), ({"type": "t"}, {})))
        assert storage.offer(place, Offer("~b", 1, (b"z",), ({"key": "k"},)))

        assert sorted(storage.read_offers(place)) == [
            Offer("~a", 3, (b"y",), None),
            Offer("~b", 1, (b"z",), ({"key": "k"},)),
        ]
        assert storage.read_offers(place.successor) == []
        assert bodies_of(read_all(storage, place)) == []
        storage.delete_segment(place)
        assert storage.offer(place, Offer("~a", 4, (b"late",), None))
        assert storage.read_offers(place) == []

    def test_the_row_of_a_writer_is_shown_with_the_head(self, storage, place):
        head = publish(storage, place, b"a", writers=[WriterRow("~a", 2, 1), WriterRow("~b", 5, 1)])

        assert storage.glance_writer(place, "~b") == (head, WriterRow("~b", 5, 1))
        assert storage.glance_writer(place, "~c") == (head, None)
        storage.delete_segment(place)
        assert storage.glance_writer(place, "~b") == (None, None)

    def test_rows_of_writers_come_with_the_link(self, storage, place):
        publish(storage, place, b"a", writers=[WriterRow("x", 1, 1), WriterRow("y", 5, 1)])
        publish(storage, place, b"b", writers=[WriterRow("x", 2, 2)])

        assert sorted(storage.read_writers(place)) == [WriterRow("x", 2, 2), WriterRow("y", 5, 1)]


class TestReading:
    @pytest.fixture
    def filled(self, storage, place):
        for number in range(1, 8):
            publish(storage, place, *(f"{number}-{each}".encode() for each in range(number)))
        return place

    @pytest.mark.parametrize(("since", "first"), [(1, 1), (2, 2), (3, 2), (4, 4), (6, 4), (22, 22), (28, 22)])
    def test_the_batch_that_holds_an_offset_comes_first(self, storage, filled, since, first):
        assert [each.first for each in storage.read_log(filled, LogQuery(since, 1))] == [first]

    def test_nothing_is_there_behind_the_last(self, storage, filled):
        assert list(storage.read_log(filled, LogQuery(29, 10))) == []
        assert list(storage.read_log(filled, LogQuery(29, 10, is_edge=True))) == []

    def test_no_more_than_the_limit_comes(self, storage, filled):
        assert [each.first for each in storage.read_log(filled, LogQuery(3, 3))] == [2, 4, 7]
        assert [each.first for each in storage.read_log(filled, LogQuery(4, 2, is_edge=True))] == [4, 7]

    def test_large_and_small_ones_come_in_their_order(self, storage, place):
        for body in (b"a", LARGE, b"b", LARGE + b"2", b"c"):
            publish(storage, place, body)

        assert bodies_of(read_all(storage, place)) == [b"a", LARGE, b"b", LARGE + b"2", b"c"]


class TestProgress:
    def test_progress_reads_back_as_it_was_written(self, storage):
        group = new_token()
        first = Progress(2, 1, "me", 17)

        assert storage.read_progress(group, 2) is None
        assert storage.change_progress(group, None, first)

        assert storage.read_progress(group, 2) == first
        assert storage.read_progress(group, 1) is None
        assert list(storage.list_progress(group, 4)) == [first]
        assert list(storage.list_progress(group, 2)) == []
        assert list(storage.list_progress(new_token(), 4)) == []

    def test_a_change_needs_epoch_and_offset_that_were_seen(self, storage):
        group = new_token()
        first, second = Progress(0, 1, "a", 1), Progress(0, 1, "a", 9)
        storage.change_progress(group, None, first)

        assert not storage.change_progress(group, None, Progress(0, 1, "b", 5))
        assert storage.change_progress(group, first, second)
        assert not storage.change_progress(group, first, Progress(0, 2, "b", 1))
        assert not storage.change_progress(group, replace(second, epoch=2), Progress(0, 3, "b", 1))

        assert storage.read_progress(group, 0) == second

    def test_a_pipe_is_named_and_no_more(self, storage):
        group, pipe = new_token(), new_pipe_id()
        pipes = (None, None), (pipe, None), (pipe, None), (None, pipe), (new_pipe_id(), pipe)
        steps = [Progress(0, epoch, "a", 1, *each) for epoch, each in enumerate(pipes, 1)]
        storage.change_progress(group, None, steps[0])

        for seen, wanted in pairwise(steps):
            assert storage.change_progress(group, seen, wanted)
            assert storage.read_progress(group, 0) == wanted
            assert list(storage.list_progress(group, 1)) == [wanted]

    def test_what_was_deleted_is_gone(self, storage):
        group = new_token()
        for partition in range(3):
            storage.change_progress(group, None, Progress(partition, 1, "a", 1))

        storage.delete_progress(group, 3)

        assert list(storage.list_progress(group, 3)) == []
        assert storage.read_progress(group, 1) is None
