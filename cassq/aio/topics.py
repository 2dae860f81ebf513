"""Topics for a program that awaits.

Decides nothing about messages. What must not break: each call takes the arguments of its synchronous twin.
"""

import functools
from collections.abc import Collection
from datetime import timedelta
from typing import Literal, Unpack
from uuid import UUID

from cassq.aio.landing import landed
from cassq.aio.lessors import GroupLessor
from cassq.aio.topic_readers import Consumer, Relay, TopicReader
from cassq.aio.twins import ClosingTwin, Opening, call_in_thread, in_thread
from cassq.model.message import Headers
from cassq.model.topic import Position
from cassq.model.topic_settings import TopicSettings
from cassq.topics.consumer import CommitHow
from cassq.topics.consumer import Consumer as SyncConsumer
from cassq.topics.group_lessor import GroupLessor as SyncGroupLessor
from cassq.topics.publisher import PUBLISH_TIMEOUT, PublishOptions
from cassq.topics.relay import Relay as SyncRelay
from cassq.topics.topic import Topic as SyncTopic
from cassq.topics.topic_reader import Start
from cassq.topics.topic_reader import TopicReader as SyncTopicReader


class Topic(ClosingTwin[SyncTopic]):
    """One topic; see `cassq.Topic`.

    Attributes:
        sync: the topic that this one calls.
        name: its name.
    """

    def __init__(self, sync: SyncTopic) -> None:
        super().__init__(sync)
        self.name = sync.name

    @property
    def settings(self) -> TopicSettings:
        """See `cassq.Topic.settings`."""
        return self.sync.settings

    @property
    def incarnation(self) -> UUID:
        """See `cassq.Topic.incarnation`."""
        return self.sync.incarnation

    @property
    def partitions(self) -> int:
        """See `cassq.Topic.partitions`."""
        return self.sync.partitions

    async def publish(
        self,
        body: bytes,
        headers: Headers | None = None,
        *,
        timeout: float | timedelta = PUBLISH_TIMEOUT,
        **options: Unpack[PublishOptions],
    ) -> Position:
        """Publish one message, together with those of other tasks; see `cassq.Topic.publish`.

        A publish that is cancelled goes on: nobody knows whether the message will be in the log.
        """
        publish = functools.partial(self.sync.publish_soon, body, headers, timeout=timeout, **options)
        return await landed(await call_in_thread(publish))

    publish_many = in_thread(SyncTopic.publish_many)

    def reader(
        self,
        start: Start = "earliest",
        *,
        types: Collection[str] | None = None,
        partitions: Collection[int] | None = None,
        on_gone: Literal["error", "oldest"] = "error",
    ) -> "Opening[SyncTopicReader, TopicReader]":
        """Open a reader: `async with topic.reader() as reader`; see `cassq.Topic.reader`."""
        make = functools.partial(self.sync.reader, start, types=types, partitions=partitions, on_gone=on_gone)
        return Opening(make, TopicReader)

    def consumer(
        self,
        group: str,
        *,
        start: Start = "earliest",
        commit: CommitHow = "grouped",
        types: Collection[str] | None = None,
        on_gone: Literal["error", "oldest"] = "error",
    ) -> "Opening[SyncConsumer, Consumer]":
        """Open a member of a group: `async with topic.consumer("g") as consumer`.

        See `cassq.Topic.consumer`.
        """
        make = functools.partial(
            self.sync.consumer, group, start=start, commit=commit, types=types, on_gone=on_gone
        )
        return Opening(make, Consumer)

    def lessor(
        self, group: str, *, on_gone: Literal["error", "oldest"] = "error"
    ) -> "Opening[SyncGroupLessor, GroupLessor]":
        """Open a member of a group that lends: `async with topic.lessor("g") as lessor`.

        See `cassq.Topic.lessor`.
        """
        return Opening(functools.partial(self.sync.lessor, group, on_gone=on_gone), GroupLessor)

    def subscribe(
        self,
        queue: str,
        *,
        types: Collection[str] | None = None,
        start: Start = "earliest",
        on_gone: Literal["error", "oldest"] = "error",
    ) -> "Opening[SyncRelay, Relay]":
        """Declare a subscription and run it: `async with topic.subscribe("billing") as relay`.

        See `cassq.Topic.subscribe`.
        """
        make = functools.partial(self.sync.subscribe, queue, types=types, start=start, on_gone=on_gone)
        return Opening(make, Relay)

    def relay(self, queue: str) -> "Opening[SyncRelay, Relay]":
        """Run a subscription: `async with topic.relay("billing") as relay`; see `cassq.Topic.relay`."""
        return Opening(functools.partial(self.sync.relay, queue), Relay)

    declare_subscription = in_thread(SyncTopic.declare_subscription)
    subscriptions = in_thread(SyncTopic.subscriptions)
    unsubscribe = in_thread(SyncTopic.unsubscribe)
    read = in_thread(SyncTopic.read)
    offset_at = in_thread(SyncTopic.offset_at)
    stats = in_thread(SyncTopic.stats)
    declare_group = in_thread(SyncTopic.declare_group)
    groups = in_thread(SyncTopic.groups)
    lag = in_thread(SyncTopic.lag)
    reset = in_thread(SyncTopic.reset)
    delete_group = in_thread(SyncTopic.delete_group)
    clear = in_thread(SyncTopic.clear)
    reap = in_thread(SyncTopic.reap)
