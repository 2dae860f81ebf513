"""Topics as one process has them open: who is told of what, what is closed, and how much is asked."""

import threading
from datetime import timedelta

import pytest
from support.clocks import HandClock
from support.patience import until

import cassq
from cassq.errors import (
    AccessDeniedError,
    CoordinationUnavailableError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from cassq.limits import BATCH_MESSAGES_MAX
from cassq.storage.topic_port import LogQuery
from cassq.topics import spreading
from cassq.topics.bell import Bell, Listener


@pytest.fixture
def store(tmp_path):
    with cassq.connect(f"sqlite:///{tmp_path}/t.db") as made:
        yield made


@pytest.fixture
def other(tmp_path, store):
    with cassq.connect(f"sqlite:///{tmp_path}/t.db") as made:
        yield made


def asked(store, method):
    count = store.telemetry.snapshot().get(method)
    return count.calls if count else 0


def threads_of(name):
    return [each for each in threading.enumerate() if each.name == name]


class TestMembers:
    def test_a_commit_that_is_refused_for_good_is_heard_by_who_polls(self, store, monkeypatch):
        topic = store.topic("t")
        topic.publish(b"x")
        with topic.consumer("g") as consumer:
            (message,) = consumer.poll(1, timeout=30)

            def deny(*_):
                raise AccessDeniedError("no")

            monkeypatch.setattr(topic._context.storage, "change_progress", deny, raising=False)
            message.done()

            with pytest.raises(AccessDeniedError):
                until(lambda: consumer.poll(1, timeout=0.1))

    def test_are_closed_with_their_store_and_what_is_done_is_committed(self, tmp_path):
        url = f"sqlite:///{tmp_path}/t.db"
        with cassq.connect(url) as store:
            topic = store.topic("members")
            topic.publish_many([b"1", b"2", b"3"])
            consumer = topic.consumer("g")
            for message in consumer.poll(2, timeout=30):
                message.done()
        until(lambda: not threads_of("cassq-group-members"))

        with pytest.raises(cassq.ClosedError):
            consumer.poll()
        with cassq.connect(url) as store:
            assert sum(each.lag for each in store.topic("members").lag("g")) == 1

    def test_a_loop_goes_on_after_an_outage(self, store, monkeypatch):
        topic = store.topic("t")
        with topic.consumer("g") as consumer:
            until(lambda: consumer.partitions == [0])
            looks = []

            def fail_once(*_, **__):
                looks.append(1)
                if len(looks) == 1:
                    topic.publish(b"x")
                    raise StorageUnavailableError("away")
                return read(*_, **__)

            read = consumer._share.held()[0].read
            monkeypatch.setattr(consumer._share.held()[0], "read", fail_once)
            for message in consumer:
                assert message.body == b"x"
                break
        assert len(looks) > 1


class Deaf:
    """A coordinator that is out of reach at first."""

    def __init__(self):
        self.calls = 0

    def announce_hunger(self, *_):
        self.calls += 1
        if self.calls == 1:
            raise CoordinationUnavailableError("away")
        return 0

    def withdraw_hunger(self, *_):
        pass


class PassingClock(HandClock):
    def wait(self, _condition, seconds):
        self.seconds += seconds or 0.0


def test_who_could_not_be_announced_is_announced_at_the_next_sleep():
    clock, coordinator = PassingClock(), Deaf()
    listener = Listener(Bell(coordinator, "t", clock, "me"), "me", clock)
    looks = []

    for _ in range(3):
        listener.sleep(1.0, lambda: bool(looks.append(1)))

    assert coordinator.calls == 2
    assert len(looks) == 1
    assert clock.seconds == pytest.approx(HandClock().seconds + 3.0)


def test_in_a_fast_flow_nobody_is_announced_and_after_it_is_again():
    clock, coordinator = PassingClock(), Deaf()
    coordinator.calls = 1  # it is within reach
    listener = Listener(Bell(coordinator, "t", clock, "me"), "me", clock)
    for _ in range(3):
        clock.seconds += 0.001
        listener.note_found(1)

    slept = []
    while coordinator.calls == 1:
        before = clock.seconds
        listener.sleep(1.0, lambda: False)
        slept.append(clock.seconds - before)

    assert slept[-1] == pytest.approx(1.0)
    assert len(slept) > 1
    assert all(each < 0.001 for each in slept[:-1])
    assert 0.005 < sum(slept[:-1]) < 0.02


class TestSettings:
    def test_that_were_altered_elsewhere_reach_who_publishes(self, store, other):
        topic = store.topic("t")
        topic.publish(b"x" * 3000)
        other.alter_topic("t", segment_bytes=2048)

        def publish():
            topic.publish(b"x")
            return topic.settings.segment_bytes == 2048

        until(publish)
        topic.publish(b"x")
        assert topic.stats()[0].segments == 2


class TestReaping:
    def test_a_topic_that_was_cleared_is_asked_for_no_more(self, store):
        topic = store.topic("t", partitions=8)
        with topic.consumer("g"):
            pass
        store.delete_topic("t")
        store.reap()
        before = asked(store, "list_segments"), asked(store, "delete_progress")

        store.reap()

        assert (asked(store, "list_segments"), asked(store, "delete_progress")) == before

    def test_what_is_left_of_a_clear_that_died_goes_with_the_next_pass(self, store, monkeypatch):
        topic = store.topic("t", segment_bytes=1024)
        for _ in range(10):
            topic.publish(b"x" * 600)
        died = []

        def die(place):
            died.append(place)
            raise StorageUnavailableError("away")

        monkeypatch.setattr(topic._context.storage, "delete_segment", die, raising=False)
        with pytest.raises(StorageUnavailableError):
            topic.clear()
        monkeypatch.undo()

        assert store.reap().segments == 1
        assert topic.stats()[0].oldest > 1


class TestManyWithANumber:
    GIVEN = tuple((b"%d" % number, {"key": f"{number % 50}"}) for number in range(6000))

    @pytest.fixture
    def topic(self, store):
        return store.topic("t", partitions=3)

    def test_are_one_link_of_each_partition_and_are_published_once(self, store, topic):
        before = asked(store, "link")
        stretches = topic.publish_many(self.GIVEN, writer="etl", number=7)
        assert asked(store, "link") - before == len(stretches) == 3

        places = [topic._context.key(each).segment(1) for each in range(3)]
        read = topic._context.storage.read_log
        counts = [batch.count for place in places for batch in read(place, LogQuery(1, limit=9))]
        assert sum(counts) == len(self.GIVEN)
        assert max(counts) <= BATCH_MESSAGES_MAX < max(each.last for each in stretches)

        told = []
        again = [
            topic.publish_many(self.GIVEN, writer="etl", number=number, progress=told.append)
            for number in (7, 6)
        ]

        assert (again, told) == ([[], []], [])
        assert [each.latest - 1 for each in topic.stats()] == [each.last for each in sorted(stretches)]
        for stretch in stretches:
            page = topic.read(stretch.partition, since=stretch.first, limit=6000)
            numbers = [int(each.body) for each in page.messages]
            assert numbers == sorted(numbers)
            assert len(numbers) == stretch.last

    def test_go_on_where_a_call_ended_between_two_partitions(self, store, topic, monkeypatch):
        storage, linked, first = topic._context.storage, [], threading.Lock()
        link = storage.link

        def fail_once(place, *given):
            if not first.acquire(blocking=False):
                raise StorageUnavailableError("out of reach")
            linked.append(place.partition)
            return link(place, *given)

        monkeypatch.setattr(storage, "link", fail_once, raising=False)
        with pytest.raises(OutcomeUnknownError):
            topic.publish_many(self.GIVEN, writer="etl", number=7, timeout=0.2)
        monkeypatch.undo()

        stretches = topic.publish_many(self.GIVEN, writer="etl", number=7)

        assert {each.partition for each in stretches} == {0, 1, 2} - set(linked)
        assert sum(each.latest - 1 for each in topic.stats()) == len(self.GIVEN)

    def test_a_repeat_that_fails_does_not_say_that_nothing_is_published(self, topic, monkeypatch):
        storage = topic._context.storage
        link = storage.link

        def fail(place, *rest):
            if place.partition:
                raise StorageUnavailableError("out of reach")
            return link(place, *rest)

        monkeypatch.setattr(storage, "link", fail, raising=False)
        for _ in range(2):
            with pytest.raises(OutcomeUnknownError, match="others are not"):
                topic.publish_many(self.GIVEN, writer="etl", number=1, timeout=0.2)

    def test_without_a_key_are_in_one_partition(self, topic):
        (stretch,) = topic.publish_many([b"x"] * 3000, writer="etl", number=1)
        assert (stretch.first, stretch.last) == (1, 3000)

    def test_that_are_too_many_for_one_transaction_are_refused_before_any_is_published(
        self, topic, monkeypatch
    ):
        monkeypatch.setattr(spreading, "NUMBERED_MESSAGES_MAX", 1000)
        with pytest.raises(
            cassq.InvalidOptionError, match=r"more than 1000 messages .* nothing is published"
        ):
            topic.publish_many(self.GIVEN, writer="etl", number=7)
        assert sum(each.latest - 1 for each in topic.stats()) == 0

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"writer": "etl"}, "give both"),
            ({"writer": "etl", "number": -1}, "must be an int of 0 or more"),
            ({"key": "k"}, r"'key' is no option of publish_many\(\); the options are number, writer"),
        ],
    )
    def test_with_bad_options_are_refused(self, topic, options, words):
        with pytest.raises(cassq.InvalidOptionError, match=words):
            topic.publish_many([b"x"], **options)


class TestMany:
    def test_with_keys_are_linked_in_large_batches(self, store):
        topic = store.topic("t", partitions=64)
        before = asked(store, "link")

        stretches = topic.publish_many((b"%d" % number, {"key": f"{number}"}) for number in range(5000))

        assert asked(store, "link") - before <= 64
        assert sum(each.last - each.first + 1 for each in stretches) == 5000
        with topic.reader() as reader:
            found = []
            while more := reader.read_many(1000):
                found += more
        for partition in range(64):
            numbers = [int(each.body) for each in found if each.partition == partition]
            assert numbers == sorted(numbers)

    def test_a_page_of_one_message_reads_little(self, store):
        topic = store.topic("t", segment_bytes=1024)
        for _ in range(20):
            topic.publish(b"x" * 600)
        before = asked(store, "glance_head")

        topic.read(0, limit=1)

        assert asked(store, "glance_head") - before <= 3


def test_retention_by_age_deletes_what_is_older(store, monkeypatch):
    topic = store.topic("t", retention=timedelta(minutes=1), segment_bytes=1024)
    for _ in range(6):
        topic.publish(b"x" * 600)
    storage = topic._context.storage
    listed = storage.list_segments

    def later(key):
        found = listed(key)
        return type(found)(found.segments, found.now_ms + 3_600_000)

    monkeypatch.setattr(storage, "list_segments", later, raising=False)

    assert topic.reap() >= 3
    topic.publish(b"new")
    assert topic.read(0).messages[-1].body == b"new"


class TestReaders:
    def test_of_one_process_are_announced_once_and_hear_its_own_publishes(self, store, monkeypatch):
        topic = store.topic("t")
        announced = []
        coordinator = topic._context.coordinator
        announce = coordinator.announce_hunger
        monkeypatch.setattr(
            coordinator,
            "announce_hunger",
            lambda line, *rest: announced.append(line) or announce(line, *rest),
            raising=False,
        )
        readers = [topic.reader("latest") for _ in range(5)]
        found = []

        def follow(reader):
            found.extend(reader.read_many(1, timeout=60))

        threads = [threading.Thread(target=follow, args=(each,)) for each in readers]
        for each in threads:
            each.start()
        until(lambda: len(topic._bell._sleepers) == 5)
        topic.publish(b"x")
        for each in threads:
            each.join(60)

        assert [each.body for each in found] == [b"x"] * 5
        assert announced.count("t~") <= 2

    def test_that_find_nothing_again_and_again_ask_the_head_alone(self, store):
        reader = store.topic("t").reader()
        assert reader.read_many() == []
        before = asked(store, "read_log"), asked(store, "glance_head")

        for _ in range(5):
            assert reader.read_many() == []

        assert (asked(store, "read_log"), asked(store, "glance_head")) == (before[0], before[1] + 5)
