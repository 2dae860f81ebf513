"""The public types, as a type checker sees them; mypy reads this file, nobody runs it.

An error that is expected has its ignore: where the error is gone, mypy reports the ignore.
"""

from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import assert_type

import cassq


def opens_stores_and_queues() -> None:
    with cassq.connect("memory:") as store:
        assert_type(store, cassq.Store)
        assert_type(store.queues(), list[str])
        assert_type(store.queue("orders"), cassq.Queue)
        assert_type(store.find_queue("orders"), cassq.Queue)
        assert_type(store.reap(), cassq.ReapReport)
        store.queue("orders", lease=timedelta(seconds=30), max_attempts=5)
        store.queue("orders", lease=30)  # type: ignore[arg-type]
        store.queue("orders", leese=timedelta(seconds=30))  # type: ignore[call-arg]
        store.queue(b"orders")  # type: ignore[arg-type]
        assert_type(store.alter_queue("orders", lease=timedelta(seconds=30)), cassq.QueueSettings)
        store.alter_queue("orders", lease=30)  # type: ignore[arg-type]
        store.alter_queue("orders", push_grace=timedelta(seconds=30))  # type: ignore[call-arg]


def connects_with_options() -> None:
    cassq.connect("cassandra://c1/orders", zookeeper="z1", timeout=5, zookeeper_session=timedelta(seconds=10))
    cassq.connect("cassandra://c1/orders", timeout="500ms", tls="1", datacenter="dc1")
    cassq.connect("sqlite:///orders.db", durability="normal", mode="0660")
    cassq.connect("sqlite:///orders.db", mode=0o660)  # type: ignore[arg-type]
    cassq.connect("cassandra://c1/orders", timeOut=5)  # type: ignore[call-arg]


class Counting:
    """An observer."""

    def note(self, event: object) -> None:
        assert event


class Deaf:
    """No observer."""


def observes() -> None:
    cassq.connect("memory:", observer=Counting())
    cassq.connect("memory:", observer=Deaf())  # type: ignore[arg-type]


def pushes(queue: cassq.Queue) -> None:
    assert_type(queue.push(b"one", {"type": "new"}, timeout=1.5), cassq.MessageId)
    assert_type(queue.push_soon(b"one", timeout=timedelta(seconds=1)), Future[cassq.MessageId])
    assert_type(queue.push_many([b"one", (b"two", {"type": "new"})]), cassq.MessageIds)
    queue.push("one")  # type: ignore[arg-type]
    queue.push(b"one", {"number": 1})  # type: ignore[dict-item]


def pops(queue: cassq.Queue) -> None:
    with queue.popper(commit="grouped") as popper:
        assert_type(popper, cassq.Popper)
        assert_type(iter(popper), Iterator[cassq.Delivery])
        assert_type(popper.pop_many(10, timeout=1), list[cassq.Delivery])
        found = popper.pop(timeout=timedelta(seconds=1))
        assert_type(found, cassq.Delivery | None)
        found.commit()  # type: ignore[union-attr]
        if found:
            with found as delivery:
                assert_type(delivery, cassq.Delivery)
        popper.commit_many([])
    queue.popper(commit="sometimes")  # type: ignore[arg-type]


def ends(delivery: cassq.Delivery) -> None:
    assert_type(delivery.message_id, cassq.MessageId)
    assert_type(delivery.body, bytes)
    assert_type(delivery.attempt, int)
    assert_type(delivery.pushed_at, datetime)
    assert_type(delivery.rollback(delay=timedelta(seconds=1)), bool)
    assert_type(delivery.rollback(reason="busy"), bool)
    assert_type(delivery.reject("no JSON"), bool)
    assert_type(delivery.give_back(), bool)
    delivery.extend()
    delivery.rollback(1.0)  # type: ignore[arg-type]


def returns_after_a_block(delivery: cassq.Delivery) -> bytes:
    # A checker would miss a return here if it held that a delivery swallows the errors of its block.
    with delivery:
        return delivery.body


def looks(queue: cassq.Queue) -> None:
    assert_type(queue.settings, cassq.QueueSettings)
    assert_type(queue.stats(), cassq.QueueStats)
    assert_type(queue.pipes(), list[cassq.PipeStats])
    assert_type(queue.peek(), list[cassq.Message])
    assert_type(queue.has("id"), bool)
    assert_type(queue.status("id"), cassq.MessageStatus)
    assert_type(queue.status("id").state, cassq.MessageState)
    assert_type(queue.cancel("id", running=True), bool)
    assert_type(queue.reschedule("id", delay=timedelta(hours=1), timeout=1.5), bool)
    assert_type(queue.reschedule("id", due=datetime.now(UTC)), bool)
    assert_type(queue.reprioritise("id", 9), bool)
    assert_type(queue.purge(), int)
    assert_type(queue.dead, cassq.DeadLetters)
    for letter in queue.dead:
        assert_type(letter, cassq.DeadMessage)


def leases(queue: cassq.Queue, lease: cassq.Lease) -> None:
    with queue.lessor() as lessor:
        assert_type(lessor, cassq.Lessor)
        assert_type(lessor.lease(100, timeout=20), list[cassq.Leased])
        assert_type(lessor.lease_soon(100).result(), list[cassq.Leased])
    assert_type(cassq.Lease.parse(lease.to_text()), cassq.Lease)
    assert_type(queue.leases.commit([lease]), list[cassq.Settled])
    assert_type(queue.leases.commit_soon(lease).result(), cassq.Settled)
    assert_type(queue.leases.extend([lease]), list[cassq.Extension])
    back = {7: cassq.Rollback(timedelta(hours=1))}
    assert_type(queue.leases.settle(lease, rolled_back=back, rejected={9: "why"}), cassq.Settled)
    queue.leases.commit(["token"])  # type: ignore[list-item]


def opens_topics(store: cassq.Store) -> None:
    assert_type(store.topic("events", partitions=4, retention=timedelta(days=7)), cassq.Topic)
    assert_type(store.find_topic("events"), cassq.Topic)
    assert_type(store.topics(), list[str])
    assert_type(store.alter_topic("events", retention=timedelta(days=7)), cassq.TopicSettings)
    store.delete_topic("events")
    assert_type(store.history("id"), cassq.MessageHistory)
    store.topic("events", retention=7)  # type: ignore[arg-type]
    store.topic("events", lease=timedelta(days=7))  # type: ignore[call-arg]
    store.alter_topic("events", partitions=4)  # type: ignore[call-arg]


def publishes(topic: cassq.Topic) -> None:
    assert_type(topic.publish(b"one", {"key": "a"}, timeout=1.5), cassq.Position)
    assert_type(topic.publish(b"one", writer="outbox", number=1), cassq.Position)
    assert_type(topic.publish_soon(b"one", partition=0), Future[cassq.Position])
    assert_type(topic.publish_many([b"one", (b"two", {"type": "new"})]), list[cassq.Stretch])
    topic.publish("one")  # type: ignore[arg-type]
    assert_type(topic.publish(b"one", key="a", type="new"), cassq.Position)


def reads(topic: cassq.Topic) -> None:
    with topic.reader(datetime.now(UTC), types=["order.*"], on_gone="oldest") as reader:
        assert_type(reader, cassq.TopicReader)
        assert_type(iter(reader), Iterator[cassq.TopicMessage])
        assert_type(reader.read_many(10, timeout=1), list[cassq.TopicMessage])
        assert_type(reader.positions, dict[int, int])
    topic.reader({0: 17})
    topic.reader("sometime")  # type: ignore[arg-type]
    page = topic.read(0, since=17, order="descending")
    assert_type(page, cassq.Page)
    assert_type(page.messages, list[cassq.TopicMessage])
    assert_type(page.next, int | None)
    assert_type(topic.offset_at(0, datetime.now(UTC)), int)


def consumes(topic: cassq.Topic) -> None:
    with topic.consumer("billing", start="latest", commit="each") as consumer:
        assert_type(consumer, cassq.Consumer)
        assert_type(iter(consumer), Iterator[cassq.GroupMessage])
        assert_type(consumer.partitions, list[int])
        for message in consumer.poll(10, timeout=timedelta(seconds=1)):
            assert_type(message, cassq.GroupMessage)
            assert_type(message.epoch, int)
            message.done()
            message.again()
        consumer.commit([])
    topic.consumer("billing", commit="sometimes")  # type: ignore[arg-type]


def fans_out(topic: cassq.Topic) -> None:
    with topic.subscribe("billing", types=["order.*"], start="latest", on_gone="oldest") as relay:
        assert_type(relay, cassq.Relay)
        assert_type(relay.queue, str)
        assert_type(relay.partitions, list[int])
        assert_type(relay.wait(1.5), bool)
    assert_type(topic.declare_subscription("billing", types=["order.*"]), cassq.Subscription)
    assert_type(topic.relay("billing"), cassq.Relay)
    assert_type(topic.subscriptions(), dict[str, cassq.Subscription])
    topic.unsubscribe("billing")
    topic.subscribe("billing", on_gone="skip")  # type: ignore[arg-type]


def returns_after_a_message(message: cassq.GroupMessage) -> bytes:
    with message:
        return message.body


def looks_at_topics(topic: cassq.Topic) -> None:
    assert_type(topic.stats(), list[cassq.PartitionStats])
    assert_type(topic.groups(), list[str])
    assert_type(topic.lag("billing"), list[cassq.PartitionLag])
    assert_type(topic.lag("billing")[0].lag, int)
    topic.reset("billing", {0: 17})
    assert_type(topic.clear(), int)
