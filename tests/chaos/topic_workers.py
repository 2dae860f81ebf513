"""Worker processes of a topic: they publish, read it from its begin, consume in a group, and relay.

Owns what each notes, in the words of `cassq.verification.ledger`: `message` is what was published, `pipe` and
`seq` its partition and offset, `attempt` a member's epoch, `words` the type. The rest is as in `workers`,
whose poppers and reapers work here, too. What must not break: a message's bytes follow from its name alone.

SIGUSR2 ends all connections of a process at once, with the answers that are under way.
"""

import os
import random
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("", "fault", "simulation")]

from topic_plants import PLANT, plant_bug

if PLANT:
    plant_bug(PLANT)  # before anything imports the library

from topic_reckoning import NUMBERED
from workers import Habits, Worker, digest_of, main

import cassq
from cassq.errors import OutcomeUnknownError, PartitionLostError, UnavailableError
from cassq.model.topic import Position
from cassq.topics.consumer import Consumer
from cassq.topics.group_message import GroupMessage
from cassq.topics.held_partition import HeldPartition
from cassq.topics.topic import Topic
from cassq.verification.ledger import Kind, LedgerWriter, Line

#: What a publisher's name begins with that numbers what it publishes.
WRITER = "writer"

TYPES = ("order.new", "order.paid", "user.new", "")
KEYS = 40

#: Of bodies, with how many of each: the last ones are stored apart from their links.
_SIZES = (60,) * 12 + (250,) * 6 + (2000,) * 3 + (24_000,)

_LOOK_S = 0.5

#: Each publish is read by all: few calls with many messages leave a small machine the time for that. A writer
#: publishes one at a time, and so less than the others.
_REST_S = 2.0
_WRITERS_SHARE = 0.3

_MANY = (20, 60, 150)
_SOON = (3, 10)

Places = Sequence[Position | None]


@dataclass(frozen=True, slots=True)
class Item:
    """One message, which follows from its name."""

    name: str

    def _dice(self) -> random.Random:
        return random.Random(self.name)

    @property
    def body(self) -> bytes:
        """Its name, and blanks up to some size."""
        return self.name.encode().ljust(self._dice().choice(_SIZES))

    @property
    def headers(self) -> dict[str, str]:
        """A type and a key, or not."""
        dice = self._dice()
        found = {"type": dice.choice(TYPES), "key": dice.choice(("", f"k{dice.randrange(KEYS)}"))}
        return {name: value for name, value in found.items() if value}


class TopicWorker(Worker):
    """One process's seat in a run."""

    ROLES: ClassVar = {
        "publisher": "publish",
        "reader": "read",
        "consumer": "consume",
        "relay": "relay",
        "popper": "pop",
        "reaper": "reap",
    }

    def __init__(self, ledger: LedgerWriter, habits: Habits) -> None:
        super().__init__(ledger, habits)
        self._held: set[HeldPartition] = set()

    def _topic(self, store: cassq.Store) -> Topic:
        return self.patiently(lambda: store.find_topic(self.habits.topic))

    # -- publishing ------------------------------------------------------------------------------------

    def publish(self, store: cassq.Store) -> None:
        """Publish by a rate: a writer one number after the other, others in calls of all kinds."""
        topic = self._topic(store)
        is_writer = self.habits.queue.startswith(WRITER)
        author = self.habits.queue if is_writer else self.ledger.who
        rate = self.habits.rate * (_WRITERS_SHARE if is_writer else 1.0)
        made, begun_at = 0, self.ledger.now()
        while not self.is_over.is_set():
            due = int((self.ledger.now() - begun_at) * rate) - made
            if due > 0 and is_writer:
                self._publish_number(topic, author, self.habits.begin + made)
                made += 1
            elif due > 0:
                made += self._publish_some(topic, author, made, due)
            else:
                self.is_over.wait(self.dice.random() * _REST_S)
            if not is_writer:
                self.is_over.wait(self.dice.random() * _REST_S)

    def _publish_number(self, topic: Topic, writer: str, number: int) -> None:
        """Publish a number until it is known to be published."""
        item = Item(f"{writer}-{number}")

        def publish() -> Places:
            place = topic.publish(item.body, item.headers, timeout=self.timeout, writer=writer, number=number)
            return [None if place.is_repeat else place]

        while not self.is_over.is_set():
            if self._try([item], publish, NUMBERED) is Kind.ACKNOWLEDGED:
                return

    def _publish_some(self, topic: Topic, author: str, made: int, due: int) -> int:
        """Make one call, or several at once; return how many messages that were."""
        roll = self.dice.random()
        count = 1
        if due >= _SOON[0]:
            count = min(due, self.dice.choice(_SOON if roll < 0.5 else _MANY))
        items = [Item(f"{author}-{made + place}") for place in range(count)]
        if count > 1 and roll < 0.5:
            self._publish_soon(topic, items)
            return count
        partition = self.dice.randrange(topic.partitions)

        def publish() -> Places:
            if count == 1:
                return [topic.publish(items[0].body, items[0].headers, timeout=self.timeout)]
            bodies = [(each.body, each.headers) for each in items]
            found = topic.publish_many(bodies, partition=partition, timeout=self.timeout)
            return [Position(each.partition, at) for each in found for at in range(each.first, each.last + 1)]

        if self._try(items, publish) is Kind.UNKNOWN_PUSH and self.dice.random() < 0.5:
            self._try(items, publish)  # as whoever would rather have it twice than not at all
        return count

    def _try(self, items: Sequence[Item], publish: Callable[[], Places], words: str = "") -> Kind:
        self._note_items(Kind.ATTEMPTED, items, words=words)
        try:
            places = publish()
        except UnavailableError as error:
            return self._note_items(Kind.REFUSED, items, words=str(error))
        except OutcomeUnknownError as error:
            return self._note_items(Kind.UNKNOWN_PUSH, items, words=str(error))
        return self._note_items(Kind.ACKNOWLEDGED, items, places)

    def _publish_soon(self, topic: Topic, items: Sequence[Item]) -> None:
        self._note_items(Kind.ATTEMPTED, items)
        futures = [
            partial(topic.publish_soon(each.body, each.headers, timeout=self.timeout).result)
            for each in items
        ]
        for item, result in zip(items, futures, strict=True):
            try:
                place = result()
            except UnavailableError as error:
                self._note_items(Kind.REFUSED, [item], words=str(error))
            except OutcomeUnknownError as error:
                self._note_items(Kind.UNKNOWN_PUSH, [item], words=str(error))
            else:
                self._note_items(Kind.ACKNOWLEDGED, [item], [place])

    def _note_items(self, kind: Kind, items: Sequence[Item], places: Places = (), *, words: str = "") -> Kind:
        at, who = self.ledger.now(), self.ledger.who
        known = places or [None] * len(items)
        self.ledger.append(
            Line(
                *(at, who, kind, each.name),
                pipe=str(place.partition) if place else "",
                seq=place.offset if place else 0,
                digest=digest_of(each.body, each.headers),
                words=words,
            )
            for each, place in zip(items, known, strict=True)
        )
        return kind

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, store: cassq.Store) -> None:
        """Follow the topic from its begin, to its end once that is told."""
        topic = self._topic(store)
        with self.patiently(lambda: topic.reader("earliest")) as reader:
            is_last = False
            while not is_last:
                is_over = self.is_over.is_set()
                with suppress(UnavailableError, OutcomeUnknownError):
                    found = reader.read_many(500, 0.0 if is_over else _LOOK_S)
                    self.ledger.append(read_lines(self.ledger, found))
                    is_last = is_over and not found

    # -- consuming -------------------------------------------------------------------------------------

    def consume(self, store: cassq.Store) -> None:
        """Be a member of a group, with one of the three ways to commit."""
        topic = self._topic(store)
        how = self.habits.commit or self.dice.choice(("grouped", "grouped", "each", "manual"))
        with self.patiently(lambda: topic.consumer(self.habits.queue, commit=how)) as consumer:
            while not self.is_over.is_set():
                self._note_lost()
                try:
                    messages = consumer.poll(self.dice.choice((1, 10, 100)), timeout=_LOOK_S)
                except (UnavailableError, OutcomeUnknownError):
                    continue
                self._note(Kind.DELIVERED, messages)
                self._held.update(each.held for each in messages)
                if messages and self.habits.work_s:
                    self.is_over.wait(self.dice.random() * self.habits.work_s)
                kept = self._put_back(messages)
                {"grouped": self._end, "each": self._end_each, "manual": self._commit}[how](consumer, kept)
            self._note_lost()

    def _put_back(self, messages: Sequence[GroupMessage]) -> Sequence[GroupMessage]:
        """Have one message come again at times; return those that do not."""
        if not messages or self.dice.random() > self.habits.keyed:
            return messages
        back = self.dice.choice(messages)
        self._note(Kind.ROLLING_BACK, [back])
        back.again()
        return [each for each in messages if each.held is not back.held or each.offset < back.offset]

    def _end(self, _: Consumer, messages: Sequence[GroupMessage]) -> None:
        for message in messages:
            self._note(Kind.COMMITTING, [message])
            try:
                message.done()
            except PartitionLostError:
                self._note(Kind.EXPIRED, [message])

    def _end_each(self, consumer: Consumer, messages: Sequence[GroupMessage]) -> None:
        for message in messages:
            self._commit(consumer, [message])

    def _commit(self, consumer: Consumer, messages: Sequence[GroupMessage]) -> None:
        """Commit until it is known what became of it."""
        if not messages:
            return
        self._note(Kind.COMMITTING, messages)
        while True:
            try:
                consumer.commit(messages)
            except PartitionLostError:
                self._note(Kind.EXPIRED, [each for each in messages if each.held.is_lost])
                self._note(Kind.COMMITTED, [each for each in messages if not each.held.is_lost])
            except (UnavailableError, OutcomeUnknownError):
                if not self.is_over.wait(0.1):
                    continue
            else:
                self._note(Kind.COMMITTED, messages)
            return

    def _note(self, kind: Kind, messages: Iterable[GroupMessage]) -> None:
        at, who = self.ledger.now(), self.ledger.who
        self.ledger.append(
            Line(
                *(at, who, kind, name_in(each.body)),
                attempt=each.epoch,
                pipe=str(each.partition),
                seq=each.offset,
                digest=digest_of(each.body, each.headers) if kind is Kind.DELIVERED else "",
            )
            for each in messages
        )

    def _note_lost(self) -> None:
        """Note which partitions went, other than by being let go with all that was done."""
        for held in [each for each in self._held if each.is_lost]:
            self._held.remove(held)
            if not (held.is_leaving and held.is_idle and held.is_committed):
                at, who = self.ledger.now(), self.ledger.who
                place = Line(at, who, Kind.EXPIRED, attempt=held.epoch, pipe=str(held.partition))
                self.ledger.append([place])

    # -- relaying --------------------------------------------------------------------------------------

    def relay(self, store: cassq.Store) -> None:
        """Run a relay of a queue."""
        topic = self._topic(store)
        with self.patiently(lambda: topic.relay(self.habits.queue)) as relay:
            while not self.is_over.is_set():
                relay.wait(0.2)


def name_in(body: bytes) -> str:
    """Return the name of what was published."""
    return body.decode().rstrip()


def read_lines(ledger: LedgerWriter, messages: Iterable[cassq.TopicMessage]) -> Iterator[Line]:
    """Yield what a reader notes."""
    at, who = ledger.now(), ledger.who
    for each in messages:
        yield Line(
            *(at, who, Kind.DELIVERED, name_in(each.body)),
            pipe=str(each.partition),
            seq=each.offset,
            digest=digest_of(each.body, each.headers),
            words=each.type or "",
        )


def break_connections() -> None:
    """End all connections of this process; who uses them hears of it as of a server that died."""
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if stat.S_ISSOCK(each.stat().st_mode):
                with socket.socket(fileno=os.dup(int(each.name))) as connection:
                    if connection.family == socket.AF_INET:
                        connection.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, lambda *_: threading.Thread(target=break_connections).start())
    sys.exit(main(TopicWorker))
