"""Topics on every store: published, read, followed, kept, and consumed by groups."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from support.patience import until

import cassq
from cassq.topics import pages

MEMBER = """
import sys
import cassq

store = cassq.connect(sys.argv[1])
with store.topic(sys.argv[2]).consumer("g", commit="each") as consumer:
    for message in consumer:
        with message:
            print(message.partition, message.offset, flush=True)
"""

RELAY = """
import sys
import cassq

store = cassq.connect(sys.argv[1])
with store.topic(sys.argv[2]).subscribe(sys.argv[2], types=["order.*"]) as relay:
    print("relays", flush=True)
    relay.wait()
"""

PUBLISHER = """
import sys
import cassq

topic = cassq.connect(sys.argv[1]).topic(sys.argv[2])
for number in range(1, 100_000):
    topic.publish(b"%d" % number, writer="outbox", number=number)
    print(number, flush=True)
"""


@pytest.fixture
def topic(store, name):
    return store.topic(name, partitions=2)


def bodies(messages):
    return [message.body for message in messages]


def read_all(topic, **how):
    with topic.reader(**how) as reader:
        found = []
        while more := reader.read_many(1000):
            found += more
    return found


def start(program, url, name):
    return subprocess.Popen(
        [sys.executable, "-c", program, url, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class TestPublishing:
    def test_offsets_are_numbers_without_a_gap(self, topic):
        places = [topic.publish(b"%d" % number, partition=1) for number in range(5)]
        places += [each.result() for each in [topic.publish_soon(b"5", partition=1) for _ in range(3)]]

        assert places == [cassq.Position(1, offset) for offset in range(1, 9)]
        assert [(each.partition, each.offset) for each in read_all(topic)] == [
            (1, offset) for offset in range(1, 9)
        ]

    def test_messages_of_one_key_are_in_one_partition_in_their_order(self, topic):
        for number in range(20):
            topic.publish(b"%d" % number, key=f"k{number % 5}", type="order.paid")

        found = read_all(topic)

        places = {
            key: {each.partition for each in found if each.key == key} for key in {e.key for e in found}
        }
        assert all(len(each) == 1 for each in places.values())
        assert {each.type for each in found} == {"order.paid"}
        for key in places:
            numbers = [int(each.body) for each in found if each.key == key]
            assert numbers == sorted(numbers)

    def test_many_come_as_they_were_given_whatever_their_size(self, topic):
        given = [os.urandom(size) for size in (0, 1, 5000, 300_000, 900_000, 3, 16_384, 700_000)] * 3

        stretches = topic.publish_many(given, partition=0)

        assert [(each.partition, each.first, each.last) for each in stretches] == [(0, 1, len(given))]
        assert bodies(read_all(topic, partitions=[0])) == given

    def test_a_number_of_a_writer_is_published_once_over_segments_and_processes(self, store, name):
        topic = store.topic(name, segment_bytes=1024)
        for number in range(1, 30):
            topic.publish(b"x" * 200, writer="outbox", number=number)

        again = [topic.publish(b"again", writer="outbox", number=number) for number in (29, 3, 30)]

        assert [each.is_repeat for each in again] == [True, True, False]
        assert len(read_all(topic)) == 30
        assert topic.stats()[0].segments > 1

    @pytest.mark.parametrize(
        "url", ["file", pytest.param("cassandra", marks=pytest.mark.service)], indirect=True
    )
    def test_a_publisher_that_is_killed_and_goes_on_publishes_each_number_once(self, store, name, url):
        topic = store.topic(name)
        for _ in range(3):
            process = start(PUBLISHER, url, name)
            for _ in range(20):
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            process.communicate()

        numbers = [int(each.body) for each in read_all(topic)]

        assert len(numbers) >= 20
        assert numbers == list(range(1, len(numbers) + 1))


class TestReading:
    def test_a_reader_that_follows_gets_what_is_published_meanwhile(self, topic):
        found = []
        with topic.reader("latest") as reader:

            def follow():
                for message in reader:
                    found.append(message.body)
                    if len(found) == 100:
                        return

            thread = threading.Thread(target=follow)
            thread.start()
            for number in range(100):
                topic.publish_soon(b"%d" % number, partition=number % 2)
            thread.join(60)

        assert sorted(found) == sorted(b"%d" % number for number in range(100))

    def test_whoever_reads_again_reads_the_same(self, topic):
        topic.publish_many((b"%d" % number, {"type": "abc"[number % 3]}) for number in range(300))
        with topic.reader() as reader:
            first = reader.read_many(40)
            places = reader.positions
            rest = reader.read_many(1000, timeout=5)

        assert read_all(topic, start=places)[: len(rest)] == rest
        assert read_all(topic)[: len(first)] == first
        assert {each.type for each in read_all(topic, types=["a", "[c]"])} == {"a", "c"}

    def test_pages_go_forward_and_back(self, topic):
        topic.publish_many((b"%d" % number for number in range(1, 11)), partition=0)

        page = topic.read(0, limit=4)
        last = topic.read(0, limit=4, order="descending")

        assert (bodies(page.messages), page.next, page.oldest, page.latest) == (
            [b"1", b"2", b"3", b"4"],
            5,
            1,
            11,
        )
        assert (bodies(last.messages), last.next) == ([b"10", b"9", b"8", b"7"], 6)
        assert topic.read(0, since=9).next is None
        assert topic.read(0, since=2, order="descending").next is None

    @pytest.mark.parametrize("order", ["ascending", "descending"])
    @pytest.mark.parametrize("limit", [7, 1000])
    def test_pages_have_no_more_bytes_than_they_may_and_say_where_to_read_on(
        self, topic, monkeypatch, order, limit
    ):
        monkeypatch.setattr(pages, "PAGE_BYTES", 100)
        sizes = [10, 40, 40, 101, 300, 1, 99, *[3] * 200]
        for size in sizes:
            topic.publish(b"x" * size, partition=0)
        found, since, count = [], None, 0
        while not count or since is not None:
            page = topic.read(0, since=since, limit=limit, order=order)
            told = [len(each.body) for each in page.messages]
            assert len(told) == 1 or (told and sum(told) <= 100)
            found, since, count = found + told, page.next, count + 1

        assert found == (sizes if order == "ascending" else sizes[::-1])
        assert count < 50

    def test_a_time_says_where_to_begin(self, topic):
        topic.publish(b"before", partition=0)
        until(lambda: datetime.now(UTC) > read_all(topic)[0].published_at + timedelta(milliseconds=2))
        second = topic.publish(b"after", partition=0)
        published_at = read_all(topic)[-1].published_at

        assert topic.offset_at(0, published_at) == second.offset
        assert bodies(read_all(topic, start=published_at)) == [b"after"]

    def test_what_is_gone_is_told_and_never_skipped_in_silence(self, topic):
        topic.publish_many((b"%d" % number for number in range(10)), partition=0)
        with topic.reader() as reader, topic.reader(on_gone="oldest") as patient:
            assert topic.clear() == 1
            topic.publish(b"new", partition=0)

            with pytest.raises(cassq.OffsetGoneError) as gone:
                reader.read_many(5, timeout=5)
            assert (gone.value.partition, gone.value.wanted, gone.value.oldest) == (0, 1, 11)
            assert bodies(patient.read_many(5, timeout=5)) == [b"new"]
            assert patient.skipped == 10

    def test_a_place_behind_the_end_is_refused(self, topic):
        topic.publish(b"one", partition=0)

        assert read_all(topic, start={0: 2}) == []
        with pytest.raises(cassq.InvalidOptionError, match="offset=3 is beyond the end of partition 0"):
            topic.reader({0: 3})

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda topic: topic.reader(types=5), "types=5 must be"),
            (lambda topic: topic.reader(types=[]), r"types=\[\] must be"),
            (lambda topic: topic.reader(partitions=0), "partitions=0 must be"),
            (lambda topic: topic.reader(partitions=[]), r"partitions=\[\] must be"),
            (lambda topic: topic.reader().seek("earliest"), "positions='earliest' must be"),
            (lambda topic: topic.consumer("g").commit(5), "messages=5 must be"),
            (lambda topic: topic.consumer("g").commit([5]), r"messages=\[5\] must be"),
            (lambda topic: topic.publish_many([b"x"], progress=5), "progress=5 must be"),
        ],
    )
    def test_a_value_that_breaks_a_rule_is_told_and_nothing_is_published(self, topic, call, words):
        with pytest.raises(cassq.InvalidOptionError, match=words):
            call(topic)

        assert [each.latest for each in topic.stats()] == [1] * topic.partitions

    def test_retention_by_size_deletes_the_oldest_segments_and_keeps_the_rest(self, store, name):
        topic = store.topic(name, segment_bytes=1024, retention_bytes=5000)
        for number in range(60):
            topic.publish(b"%03d" % number * 100)

        assert store.reap().segments > 0

        (left,) = topic.stats()
        assert 5000 <= left.size < 60 * 300
        assert [each.offset for each in read_all(topic)] == list(range(left.oldest, 61))


class TestTopics:
    def test_a_deleted_topic_is_gone_and_one_of_its_name_begins_anew(self, store, topic, name):
        topic.publish(b"old", partition=0)
        store.delete_topic(name)

        assert name not in store.topics()
        with pytest.raises(cassq.TopicNotFoundError):
            store.find_topic(name)
        anew = store.topic(name)
        assert anew.publish(b"new") == cassq.Position(0, 1)
        assert bodies(read_all(anew)) == [b"new"]

    def test_settings_are_altered_and_compared(self, store, topic, name):
        assert store.alter_topic(name, retention=timedelta(days=1)).retention == timedelta(days=1)
        assert topic.settings.retention == timedelta(days=1)
        with pytest.raises(cassq.InvalidOptionError, match="partitions of topic"):
            store.alter_topic(name, partitions=3)
        with pytest.raises(cassq.InvalidOptionError, match="partitions=2, not 5"):
            store.topic(name, partitions=5)


class TestGroups:
    def test_a_group_goes_on_where_it_was(self, topic):
        topic.publish_many((b"%d" % number for number in range(10)), partition=0)
        with topic.consumer("g") as consumer:
            for message in consumer.poll(4, timeout=30):
                with message:
                    pass
        with topic.consumer("g") as consumer:
            assert bodies(consumer.poll(2, timeout=30)) == [b"4", b"5"]
        assert sum(each.lag for each in topic.lag("g")) == 6

    def test_what_fails_comes_again_with_what_follows_it(self, topic):
        topic.publish_many((b"%d" % number for number in range(3)), partition=0)
        with topic.consumer("g", commit="each") as consumer:
            first, second, third = consumer.poll(10, timeout=30)
            first.done()
            with pytest.raises(ZeroDivisionError), second:
                raise ZeroDivisionError
            third.done()

            assert bodies(consumer.poll(10, timeout=30)) == [b"1", b"2"]

    def test_members_share_the_partitions_and_each_message_has_one(self, store, name):
        topic = store.topic(name, partitions=6)
        seen = Counter()
        with topic.consumer("g") as one, topic.consumer("g") as two, topic.consumer("g") as three:
            members = one, two, three
            until(lambda: sorted(len(each.partitions) for each in members) == [2, 2, 2])
            topic.publish_many((b"%d" % number, {"key": f"{number}"}) for number in range(300))
            while sum(seen.values()) < 300:
                for member in members:
                    for message in member.poll(50, timeout=0.1):
                        seen[message.body] += 1
                        message.done()
            until(lambda: sum(each.lag for each in topic.lag("g")) == 0)

        assert set(seen.values()) == {1}

    def test_a_reset_takes_the_members_back_and_raises_the_epoch(self, topic):
        topic.publish_many((b"%d" % number for number in range(3)), partition=0)
        with topic.consumer("g") as consumer:
            before = consumer.poll(3, timeout=30)
            for message in before:
                message.done()

            topic.reset("g", "earliest")
            again = consumer.poll(3, timeout=60)

        assert bodies(again) == [b"0", b"1", b"2"]
        assert again[0].epoch > before[0].epoch

    def test_a_group_that_is_slower_than_retention_goes_on_at_the_oldest_where_it_said_so(self, topic):
        topic.publish_many((b"%d" % number for number in range(10)), partition=0)
        with topic.consumer("g", on_gone="oldest") as consumer:
            for message in consumer.poll(2, timeout=30):
                message.done()
        topic.clear()
        topic.publish(b"new", partition=0)
        with topic.consumer("g", on_gone="oldest") as consumer:
            assert bodies(consumer.poll(2, timeout=30)) == [b"new"]

    @pytest.mark.parametrize(
        "url", ["file", pytest.param("cassandra", marks=pytest.mark.service)], indirect=True
    )
    def test_what_a_killed_member_had_goes_to_another_one(self, store, name, url):
        topic = store.topic(name, partitions=2)
        topic.publish_many((b"%d" % number, {"key": f"{number}"}) for number in range(2000))
        process = start(MEMBER, url, name)
        seen = Counter()
        for _ in range(50):
            partition, offset = map(int, process.stdout.readline().split())
            seen[partition, offset] += 1
        process.send_signal(signal.SIGKILL)
        for line in process.communicate()[0].splitlines():
            partition, offset = map(int, line.split())
            seen[partition, offset] += 1

        with topic.consumer("g") as consumer:
            while len(seen) < 2000:
                for message in consumer.poll(100, timeout=60):
                    seen[message.partition, message.offset] += 1
                    message.done()

        assert sum(seen.values()) <= 2000 + 2  # of each partition the one that it had in hand


def pop_all(queue, count):
    """Pop until so many messages came; return them by their places."""
    found = {}
    with queue.popper() as popper:
        while len(found) < count:
            deliveries = popper.pop_many(count, timeout=60)
            assert deliveries, f"{len(found)} of {count} came"
            for each in deliveries:
                assert each.headers["cassq-offset"] not in found
                found[each.headers["cassq-offset"]] = each.body
            popper.commit_many(deliveries)
    return found


def order(number):
    return b"%d" % number, {"type": "order.paid" if number % 2 else "user.new", "key": f"{number % 7}"}


class TestSubscriptions:
    def test_a_queue_has_the_messages_of_its_types_once_and_in_their_order(self, store, topic, name):
        queue = store.queue(name)
        topic.publish_many(order(number) for number in range(400))
        with topic.subscribe(name, types=["order.*"]):
            found = pop_all(queue, 200)
            topic.publish_many(order(number) for number in range(400, 500))
            found |= pop_all(queue, 50)

        wanted = {f"{each.partition}:{each.offset}": each.body for each in read_all(topic, types=["order.*"])}
        assert found == wanted
        assert topic.subscriptions()[name].types == ("order.*",)
        with queue.popper() as popper:
            assert popper.pop(timeout=0) is None

    def test_a_relay_goes_on_where_another_one_left_off(self, store, topic, name):
        queue = store.queue(name)
        for turn in range(3):
            topic.publish_many((b"%d" % number for number in range(50)), partition=turn % 2)
            with topic.subscribe(name):
                assert len(pop_all(queue, 50)) == 50

        assert sum(each.lag for each in topic.lag(name)) == 0
        assert queue.stats().pushed == 150

    def test_two_queues_have_all_of_it(self, store, topic, name):
        names = [f"{name}-{each}" for each in ("bill", "mail")]
        queues = [store.queue(each) for each in names]
        topic.publish_many(b"%d" % number for number in range(30))
        with topic.subscribe(names[0]), topic.subscribe(names[1]):
            found = [pop_all(queue, 30) for queue in queues]

        assert found[0] == found[1]
        assert topic.groups() == sorted(names)

    def test_what_is_rolled_back_there_comes_again_there(self, store, topic, name):
        queue = store.queue(name, retry_delay=timedelta(0))
        topic.publish(b"x")
        with topic.subscribe(name), queue.popper() as popper:
            first = popper.pop(timeout=60)
            first.rollback()
            again = popper.pop(timeout=60)
            again.commit()

        assert (again.message_id, again.attempt) == (first.message_id, 2)

    def test_a_reset_brings_it_all_once_more(self, store, topic, name):
        queue = store.queue(name)
        topic.publish_many(b"%d" % number for number in range(20))
        with topic.subscribe(name):
            before = pop_all(queue, 20)
            topic.reset(name, "earliest")
            assert pop_all(queue, 20) == before

    def test_one_that_ended_is_gone_and_its_queue_stays(self, store, topic, name):
        queue = store.queue(name)
        topic.publish(b"x")
        relay = topic.subscribe(name)
        pop_all(queue, 1)

        topic.unsubscribe(name)

        with pytest.raises(cassq.GroupNotFoundError):
            relay.wait(60)
        assert (topic.groups(), topic.subscriptions()) == ([], {})
        with pytest.raises(cassq.GroupNotFoundError):
            topic.unsubscribe(name)
        queue.push(b"y")
        with queue.popper() as popper:
            assert popper.pop(timeout=60).body == b"y"

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda topic, name: topic.subscribe("nobody"), "no queue 'nobody'"),
            (lambda topic, name: topic.subscribe(name, types="order"), "types='order'"),
            (lambda topic, name: topic.subscribe(name, on_gone="what"), "on_gone='what'"),
            (lambda topic, name: topic.subscribe(name, start="soon"), "start='soon'"),
            (lambda topic, name: topic.consumer(name), "is the subscription of a queue"),
            (lambda topic, name: topic.subscribe(name, types=["a"]), "unsubscribe it first"),
            (lambda topic, name: topic.delete_group(name), r"unsubscribe\(\) ends it"),
        ],
    )
    def test_what_breaks_a_rule_is_told(self, store, topic, name, call, words):
        store.queue(name)
        if words.startswith(("is the", "unsubscribe")) or "ends it" in words:
            topic.subscribe(name).close()
        with pytest.raises(cassq.UsageError, match=words):
            call(topic, name)

    def test_a_queue_that_was_made_anew_is_another_one(self, store, topic, name):
        store.queue(name)
        topic.subscribe(name).close()
        store.delete_queue(name)
        store.queue(name)

        with pytest.raises(cassq.InvalidOptionError, match="made anew"):
            topic.subscribe(name)

    def test_a_deleted_queue_ends_its_relay(self, store, topic, name):
        store.queue(name)
        with topic.subscribe(name) as relay:
            store.delete_queue(name)
            topic.publish(b"x")
            with pytest.raises(cassq.QueueNotFoundError):
                relay.wait(60)

    @pytest.mark.parametrize(
        "url", ["file", pytest.param("cassandra", marks=pytest.mark.service)], indirect=True
    )
    def test_relays_that_are_killed_bring_each_message_once(self, store, name, url):
        topic = store.topic(name, partitions=2)
        queue = store.queue(name, pipe_messages_max=100)
        found, count = {}, 0
        for turn in range(6):
            process = start(RELAY, url, name)
            assert process.stdout.readline() == "relays\n"
            topic.publish_many(order(number) for number in range(count, count + 400))
            count += 400
            found |= pop_all(queue, 20 * turn)  # somewhere in the middle
            process.send_signal(signal.SIGKILL)
            process.communicate()
        with topic.subscribe(name, types=["order.*"]):
            found |= pop_all(queue, count // 2 - len(found))
            until(lambda: sum(each.lag for each in topic.lag(name)) == 0)
        with queue.popper() as popper:
            assert popper.pop(timeout=0) is None

        wanted = {f"{each.partition}:{each.offset}": each.body for each in read_all(topic, types=["order.*"])}
        assert found == wanted
        assert queue.stats().pushed == len(wanted)
