"""A Kafka topic of one partition, through confluent-kafka and through kafka-python.

Owns what one process does with it: records that all replicas acknowledge, and a consumer whose progress is
committed beside the next reads. One producer waits 5 ms for company where whole batches are published, as
confluent-kafka's does by default; the other one sends at once.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPlace

from _bench.rivals.kafka_server import VERSION, KafkaServer

_TOPIC, _GROUP, _PARTITION = "bench", "readers", 0
_LINGER_MS = 5
_PATIENCE_S = 5.0
_CONFIRM_S = 120.0
_LOOK_S = 0.2
#: What is committed together while records come one by one.
_TOGETHER = 100


class ConfluentLog:
    """A topic, and a client in C."""

    name = "Kafka, confluent-kafka"
    durability = "process crashes; the disk has it when the kernel writes it"

    def __init__(self) -> None:
        self._server = KafkaServer()

    def start(self, folder: Path) -> None:
        """Start the broker, and make the topic."""
        self._server.start(folder)
        self._server.make_topic(_TOPIC)

    def stop(self) -> None:
        """End the broker."""
        self._server.stop()

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client."""
        return {"Kafka": VERSION, "confluent-kafka": metadata.version("confluent-kafka")}

    def opener(self) -> "Callable[[], ConfluentClient]":
        """Return what opens a client."""
        return partial(ConfluentClient, self._server.address)


class ConfluentClient:
    """Two producers and a member of a group."""

    def __init__(self, address: str) -> None:
        self._common = {"bootstrap.servers": address}
        made = {**self._common, "acks": "all", "queue.buffering.max.messages": 1_000_000}
        self._lingering = Producer({**made, "linger.ms": _LINGER_MS})
        self._prompt = Producer({**made, "linger.ms": 0})
        self._member: Consumer | None = None

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Publish without waiting, then wait for all: the client makes batches of its own."""
        del batch
        self._send(self._lingering, bodies)

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Publish one by one."""
        for body in bodies:
            self._send(self._prompt, [body])

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """Publish each when it is due, then wait for all."""
        self._send(self._prompt, bodies)

    def _send(self, producer: Producer, bodies: Iterable[bytes]) -> None:
        failed: list[KafkaError] = []

        def note(error: KafkaError | None, _message: object) -> None:
            if error:
                failed.append(error)

        for body in bodies:
            producer.produce(_TOPIC, body, partition=_PARTITION, on_delivery=note)
            producer.poll(0)
        left = producer.flush(_CONFIRM_S)
        if failed or left:
            raise RuntimeError(f"{left} records are not confirmed, and {failed[:1]}")

    def pop_batches(self, count: int, batch: int) -> int:
        """Read `batch` at a time; commit what was read beside the next read, and wait for the last commit."""
        member, popped = self._opened(), 0
        while popped < count:
            found = _read(member, min(batch, count - popped))
            if not found:
                break
            popped += len(found)
            if popped < count:
                member.commit(message=found[-1])
            else:
                member.commit(message=found[-1], asynchronous=False)
        return popped

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Read records as they come, and commit what is there together."""
        member = self._opened()
        while not until():
            first = member.poll(_LOOK_S)
            if first is not None and not first.error():
                found = [first, *member.consume(_TOGETHER, 0)]
                for each in found:
                    seen(_body_of(each))
                member.commit(message=found[-1])

    def replay(self, count: int, batch: int) -> int:
        """Read `count` records from the beginning."""
        with_no_group = {**self._common, "group.id": "nobody", "enable.auto.commit": False}
        reader, popped = Consumer(with_no_group), 0
        reader.assign([TopicPartition(_TOPIC, _PARTITION, _oldest(reader))])
        while popped < count and (found := _read(reader, min(batch, count - popped))):
            popped += len([_body_of(each) for each in found])
        reader.close()
        return popped

    def _opened(self) -> Consumer:
        """Return a member that has the partition without asking others: nobody shares it."""
        if self._member is None:
            made = {**self._common, "group.id": _GROUP, "enable.auto.commit": False}
            self._member = Consumer(made)
            known = _progress(self._member)
            begin = known if known >= 0 else _oldest(self._member)
            self._member.assign([TopicPartition(_TOPIC, _PARTITION, begin)])
        return self._member

    def close(self) -> None:
        """Close the member."""
        if self._member:
            self._member.close()


def _oldest(consumer: Consumer) -> int:
    """Return the first offset; an assignment that names none waits half a second before it asks for it."""
    return int(consumer.get_watermark_offsets(TopicPartition(_TOPIC, _PARTITION), _CONFIRM_S)[0])


def _progress(member: Consumer) -> int:
    """Return how far the group is; asked again while its coordinator has just begun."""
    until = time.monotonic() + _CONFIRM_S
    while True:
        try:
            return int(member.committed([TopicPartition(_TOPIC, _PARTITION)], _CONFIRM_S)[0].offset)
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_S)


def _read(consumer: Consumer, count: int) -> list[Message]:
    """Return so many records; less where they do not come in time, and none of those that tell an error."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        # Errors come in the place of records; what they are about is tried again.
        found = [each for each in consumer.consume(count, _PATIENCE_S) if not each.error()]
        if found or time.monotonic() > until:
            return found


def _body_of(message: Message) -> bytes:
    if message.error():
        raise RuntimeError(f"a read failed: {message.error()}")
    return bytes(message.value() or b"")


class PythonLog(ConfluentLog):
    """A topic, and a client in Python."""

    name = "Kafka, kafka-python"

    def versions(self) -> Mapping[str, str]:
        """Tell the versions of server and client."""
        return {"Kafka": VERSION, "kafka-python": metadata.version("kafka-python")}

    def opener(self) -> "Callable[[], PythonClient]":  # type: ignore[override]
        """Return what opens a client."""
        return partial(PythonClient, self._server.address)


class PythonClient:
    """Two producers and a member of a group."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lingering = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=_LINGER_MS)
        self._prompt = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=0)
        self._member: KafkaConsumer | None = None

    def push_batches(self, bodies: Sequence[bytes], batch: int) -> None:
        """Publish without waiting, then wait for all: the client makes batches of its own."""
        del batch
        self._send(self._lingering, bodies)

    def push_each(self, bodies: Sequence[bytes]) -> None:
        """Publish one by one."""
        for body in bodies:
            self._prompt.send(_TOPIC, body, partition=_PARTITION).get(_CONFIRM_S)

    def push_ahead(self, bodies: Sequence[bytes]) -> None:
        """Publish each when it is due, then wait for all."""
        self._send(self._prompt, bodies)

    def _send(self, producer: KafkaProducer, bodies: Iterable[bytes]) -> None:
        sent = [producer.send(_TOPIC, body, partition=_PARTITION) for body in bodies]
        producer.flush(_CONFIRM_S)
        for each in sent:
            each.get(_CONFIRM_S)

    def pop_batches(self, count: int, batch: int) -> int:
        """Read `batch` at a time; commit what was read beside the next read, and wait for the last commit."""
        member, popped = self._opened(), 0
        while popped < count:
            found = self._read(member, min(batch, count - popped), _PATIENCE_S)
            if not found:
                break
            popped += len(found)
            if popped < count:
                member.commit_async()
        member.commit()
        return popped

    def pop_each(self, seen: Callable[[bytes], None], until: Callable[[], bool]) -> None:
        """Read records as they come, and commit what is there together."""
        member = self._opened()
        while not until():
            if found := self._read(member, _TOGETHER, _LOOK_S):
                for each in found:
                    seen(each)
                member.commit_async()

    def replay(self, count: int, batch: int) -> int:
        """Read `count` records from the beginning."""
        reader, popped = KafkaConsumer(bootstrap_servers=self._address, enable_auto_commit=False), 0
        place = KafkaPlace(_TOPIC, _PARTITION)
        reader.assign([place])
        reader.seek_to_beginning(place)
        while popped < count and (found := self._read(reader, min(batch, count - popped), _PATIENCE_S)):
            popped += len(found)
        reader.close()
        return popped

    def _read(self, consumer: KafkaConsumer, count: int, seconds: float) -> list[bytes]:
        found = consumer.poll(timeout_ms=round(seconds * 1000), max_records=count)
        return [each.value for records in found.values() for each in records]

    def _opened(self) -> KafkaConsumer:
        if self._member is None:
            self._member = KafkaConsumer(
                bootstrap_servers=self._address,
                group_id=_GROUP,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            )
            self._member.assign([KafkaPlace(_TOPIC, _PARTITION)])
        return self._member

    def close(self) -> None:
        """Close all."""
        self._lingering.close()
        self._prompt.close()
        if self._member:
            self._member.close()
