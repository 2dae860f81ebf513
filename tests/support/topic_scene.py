"""One topic whose storage does something else between its calls, and what works on it.

Owns the making of its parts, each as if it were of another process. Refuses to choose what happens when.
"""

from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import UUID

from support.clocks import HandClock
from support.contexts import context_of
from support.interrupted import Interrupted

from cassq.catalog.queue_context import QueueContext
from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import CassqError
from cassq.model.ids import new_token
from cassq.model.settings import QueueSettings
from cassq.model.topic import Position, TopicMessage, TopicRecord, first_head
from cassq.model.topic_settings import TopicSettings
from cassq.runtime.background_thread import BackgroundThread
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.topics.group import Group
from cassq.topics.group_message import GroupMessage
from cassq.topics.held_partition import HeldPartition
from cassq.topics.known_topic import KnownTopic
from cassq.topics.log_end import LogEnd
from cassq.topics.log_reader import LogReader
from cassq.topics.publish_request import Numbered, PublishRequest
from cassq.topics.relayed_partition import RelayedPartition
from cassq.topics.retention import Retention
from cassq.topics.topic_context import TopicContext
from cassq.topics.wishes import Wishes


class PassingClock(HandClock):
    """Moves by what is waited, at once."""

    def wait(self, _condition: Any, seconds: float | None) -> None:
        self.seconds += seconds or 0.0


class TopicScene:
    """A topic of one partition.

    Attributes:
        rows: the storage that does what it is told.
        storage: the one between whose calls something happens.
    """

    def __init__(self, **settings: Any) -> None:
        self.clock = PassingClock()
        self.rows = SqliteStorage(None, is_synced=False, clock=self.clock)
        self.storage = Interrupted(self.rows)
        self.coordinator = LocalCoordinator(None, self.clock)
        self.record = TopicRecord("t", new_token(), TopicSettings(**settings), new_token())
        self.context = self.context_of(self.storage)
        self.elsewhere = self.context_of(self.rows)
        self.key = self.context.key(0)
        first = self.key.segment(1)
        self.rows.create_segment(first, first_head(first, 1))
        assert self.rows.change_topic(None, self.record)

    def context_of(self, storage: Any) -> TopicContext:
        """Return the context of a process of its own."""
        return TopicContext(
            *(storage, self.coordinator, KnownTopic(storage, self.record, self.clock), self.clock, self),
            lambda name: context_of(storage, QueueSettings(), self.clock, queue=name),
        )

    def relayed(self, group: UUID, name: str, target: QueueContext, **how: Any) -> RelayedPartition:
        """Return a partition that a relay has taken over, by the storage that is interrupted or another."""
        how = {"wishes": Wishes(lambda _: True), "on_pushed": lambda _: None} | how
        context = self.context if target.storage is self.storage else self.elsewhere
        made = RelayedPartition(context, target, group, name, **how)
        assert made.take_over(0)
        return made

    def request(self, body: bytes, numbered: Numbered | None = None, within_s: float = 5.0) -> PublishRequest:
        """Return what publishes one message, as it has begun."""
        made = PublishRequest(BackgroundThread("t"), (body,), ({},), self.clock.now() + within_s, numbered)
        assert made.begin()
        return made

    def publish(
        self, body: bytes, numbered: Numbered | None = None, *, end: LogEnd | None = None
    ) -> Position:
        """Publish one message from another process, or by an end."""
        request = self.request(body, numbered)
        (end or LogEnd(self.elsewhere, 0)).publish([request], request.deadline)
        return request.future.result(0)

    def clear(self) -> None:
        """Have another process clear it."""
        Retention(self.elsewhere, 0).clear()

    def end(self) -> None:
        """Have another process delete all of a topic whose record says so."""
        Retention(self.elsewhere, 0).end()

    def read(self, since: int = 1, storage: Any = None) -> list[TopicMessage]:
        """Return all that is there from an offset on."""
        reader = LogReader(self.context_of(storage or self.rows), 0, since)
        found: list[TopicMessage] = []
        while more := reader.read():
            found += more
        return found

    def group(self, name: str = "g") -> Group:
        """Return a group, as another process sees it."""
        return Group(self.elsewhere, name)

    def member(
        self, group: Any, name: str, wants: Callable[[TopicMessage], bool] | None = None, **how: Any
    ) -> HeldPartition:
        """Return what holds the partition for a member of a group."""
        held = HeldPartition(self.context, group, name, Wishes(wants or (lambda _: True), **how))
        assert held.take_over(0)
        return held


def outcome_of(call: Callable[[], Any]) -> Any:
    """Return what a call returned, or the error that it raised."""
    try:
        return call()
    except CassqError as error:
        return error


def hand_out(held: HeldPartition) -> list[GroupMessage]:
    """Return what a member is handed next of its partition."""
    ready: deque[GroupMessage] = deque()
    held.read(ready)
    return [*ready]


def offsets(messages: list[GroupMessage] | list[TopicMessage]) -> list[int]:
    """Return the offsets of messages."""
    return [each.offset for each in messages]
