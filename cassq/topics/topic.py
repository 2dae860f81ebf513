"""What users hold: one topic, to publish into, to read, and to consume by groups.

Owns the public interface; decides nothing about messages itself.
"""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Unpack
from uuid import UUID
from weakref import WeakSet

from cassq.model.ids import new_token
from cassq.model.message import Headers
from cassq.model.topic import Position, Subscription
from cassq.model.topic_settings import TopicSettings
from cassq.runtime.fork_guard import process_name
from cassq.runtime.reentry import Closing
from cassq.topics.bell import Bell
from cassq.topics.consumer import CommitHow, Consumer
from cassq.topics.group import Group, PartitionLag, made_anew
from cassq.topics.many_messages import Stretch
from cassq.topics.pages import Page, read_page
from cassq.topics.publisher import (
    PUBLISH_TIMEOUT,
    NumberedOptions,
    Publisher,
    PublishOptions,
    check_partition,
)
from cassq.topics.relay import Relay
from cassq.topics.retention import Retention
from cassq.topics.segments import Segments
from cassq.topics.topic_context import TopicContext
from cassq.topics.topic_reader import Start, TopicReader, check_on_gone, filter_of


class PartitionStats(NamedTuple):
    """Figures of one partition.

    Attributes:
        oldest: the oldest offset that is left.
        latest: the offset that the next message gets.
        segments: how many there are.
        size: bytes of bodies and headers in them.
    """

    partition: int
    oldest: int
    latest: int
    segments: int
    size: int


class Topic:
    """One topic. Made by `Store.topic`; threads may share it.

    Attributes:
        name: its name.
    """

    def __init__(self, context: TopicContext) -> None:
        self._context = context
        self.name = context.name
        self._bell = Bell(
            context.coordinator, context.name, context.clock, f"{process_name()}-{str(new_token())[:8]}"
        )
        self._publisher = Publisher(context, self._bell)
        self._closing = Closing(context.clock)
        self._opened: WeakSet[TopicReader | Consumer | Relay] = WeakSet()

    @property
    def settings(self) -> TopicSettings:
        """Its settings, as far as is known."""
        return self._context.settings

    @property
    def incarnation(self) -> UUID:
        """What tells it from an earlier or a later topic of its name."""
        return self._context.incarnation

    @property
    def partitions(self) -> int:
        """How many ordered logs it has."""
        return self._context.settings.partitions

    def publish(
        self,
        body: bytes,
        headers: Headers | None = None,
        *,
        timeout: float | timedelta = PUBLISH_TIMEOUT,
        **options: Unpack[PublishOptions],
    ) -> Position:
        """Publish one message; return its place once it is durable, and every reader can see it.

        Messages with one header `key` are in one partition, in the order in which they were published.

        Args:
            body: the bytes.
            headers: str to str; readers may ask for some values of `type`.
            timeout: how long it may take.
            options: `key` and `type`: the headers of these names. `partition`, from 0 on; else that of the
                key, or of the writer's name; else one that this process chose for all that has neither.
                `writer` and `number`: a number that a writer has used before publishes nothing, for ever; it
                has to rise, and is compared in its partition alone, which remembers 1000 writers.

        Raises:
            InvalidOptionError, InvalidNameError, BodyTooLargeError: a value breaks a rule; nothing happened.
            TopicNotFoundError, ClosedError: the topic was deleted or closed.
            StorageUnavailableError: nothing was published.
            OutcomeUnknownError: it may be published; with the writer's number it may be published again.
        """
        return self._publisher.publish(body, headers, timeout, options)

    def publish_soon(
        self,
        body: bytes,
        headers: Headers | None = None,
        *,
        timeout: float | timedelta = PUBLISH_TIMEOUT,
        **options: Unpack[PublishOptions],
    ) -> "Future[Position]":
        """Publish one message soon; return a future that ends as `publish` does.

        Those of one thread into one partition are published in order. Waits while the buffer is full.
        """
        return self._publisher.publish_soon(body, headers, timeout, options)

    def publish_many(
        self,
        bodies: Iterable[bytes | tuple[bytes, Headers]],
        *,
        partition: int | None = None,
        progress: Callable[[int], None] | None = None,
        timeout: float | timedelta = PUBLISH_TIMEOUT,
        **numbered: Unpack[NumberedOptions],
    ) -> list[Stretch]:
        """Publish many messages, in large batches; return where they are.

        In each partition they are in the order of the bodies.

        Args:
            bodies: bodies, or pairs of a body and its headers.
            progress: is told how many more are published.
            timeout: how long each batch may take; with a number, all of a partition.
            numbered: `writer` and `number`, as for `publish`, which all of them have together: those of one
                partition are published at once or not at all, and once, however often the call is repeated.
                A partition takes 100 000 messages or 16 MiB of one number. A repeat is not returned.

        Raises:
            OutcomeUnknownError: some are published, and others are not or may not be; with the same number
                the same call may be repeated.
            StorageUnavailableError: none is.
            InvalidOptionError, InvalidNameError, BodyTooLargeError: a value breaks a rule; a note of the
                error tells how many messages are published.
        """
        return self._publisher.publish_many(bodies, progress, timeout, partition, numbered)

    def reader(
        self,
        start: Start = "earliest",
        *,
        types: Collection[str] | None = None,
        partitions: Collection[int] | None = None,
        on_gone: Literal["error", "oldest"] = "error",
    ) -> TopicReader:
        """Return a reader that follows the topic; it stores nothing, and may begin anywhere.

        Args:
            start: "earliest"; "latest", for what is published from now on; a datetime; or an offset for some
                partitions, as `TopicReader.positions` says.
            types: shell patterns: only messages whose header `type` matches one.
            partitions: only these.
            on_gone: what to do where retention was faster: raise `OffsetGoneError`, or go on at the oldest.
        """
        made = TopicReader(
            self._context, self._bell, start=start, partitions=partitions, types=types, on_gone=on_gone
        )
        self._opened.add(made)
        return made

    def consumer(
        self,
        group: str,
        *,
        start: Start = "earliest",
        commit: CommitHow = "grouped",
        types: Collection[str] | None = None,
        on_gone: Literal["error", "oldest"] = "error",
    ) -> Consumer:
        """Return a member of a group: its members share the partitions, and each message has one of them.

        A group that is new begins at `start`; one that exists goes on where it was.

        Args:
            group: its name, in the letters of a topic's name.
            start: see `reader`.
            commit: "grouped": progress is written every 100 ms; "each": with each message, and its end waits
                for that; "manual": by `Consumer.commit` alone.
            types: see `reader`; progress moves past what does not match.
            on_gone: see `reader`.

        Raises: InvalidOptionError: a value breaks a rule, or the store names no coordination service.
        """
        found = Group(self._context, group)
        made = Consumer(
            self._context, self._bell, found, commit=commit, types=types, start=start, on_gone=on_gone
        )
        self._opened.add(made)
        return made

    def subscribe(
        self,
        queue: str,
        *,
        types: Collection[str] | None = None,
        start: Start = "earliest",
        on_gone: Literal["error", "oldest"] = "error",
    ) -> Relay:
        """Bring messages into a queue from now on; return what does so in this process, until it is closed.

        Each message is pushed into the queue once, however many relays run, and whatever becomes of them;
        those of one partition in their order. In the queue they have leases, retries and dead letters of
        their own, and the header `cassq-offset`, which is `PARTITION:OFFSET`. A subscription stands until it
        is ended: without a relay its messages wait in the topic.

        Args:
            queue: the name of a queue that exists.
            types: see `reader`.
            start: where a new subscription begins; see `reader`.
            on_gone: see `reader`.

        Raises:
            QueueNotFoundError: there is no queue of this name.
            InvalidOptionError: a value breaks a rule, the queue is subscribed with other types, or the store
                names no coordination service.
        """
        self._context.coordinator.may_take()  # where there is none it says so, before anything is written
        self.declare_subscription(queue, types=types, start=start, on_gone=on_gone)
        return self.relay(queue)

    def declare_subscription(
        self,
        queue: str,
        *,
        types: Collection[str] | None = None,
        start: Start = "earliest",
        on_gone: Literal["error", "oldest"] = "error",
    ) -> Subscription:
        """Declare a subscription, and run nothing; fine if it is there with the same types and `on_gone`.

        Its messages wait in the topic until a relay brings them into the queue.

        Args:
            queue, types, start, on_gone: see `subscribe`.

        Raises:
            QueueNotFoundError: there is no queue of this name.
            InvalidOptionError: a value breaks a rule, or the queue is subscribed with other types.
        """
        filter_of(types)
        # In one order: of a set each process has another one.
        patterns = None if types is None else tuple(sorted(set(types)))
        target = self._context.find_queue(queue)
        check_on_gone(on_gone)
        declared = Subscription(target.record.incarnation, patterns, on_gone)
        Group(self._context, queue).ensure(start, declared)
        return declared

    def relay(self, queue: str) -> Relay:
        """Run a subscription that was declared; return what does so in this process, until it is closed.

        Raises:
            GroupNotFoundError: the queue is not subscribed.
            QueueNotFoundError: there is no queue of this name.
            InvalidOptionError: the queue was deleted and made anew since it was subscribed, or the store
                names no coordination service.
        """
        group, subscription = Group(self._context, queue).find_subscription()
        target = self._context.find_queue(queue)
        if target.record.incarnation != subscription.incarnation:
            raise made_anew(self.name, queue)
        made = Relay(self._context, self._bell, target, subscription, group)
        self._opened.add(made)
        made.start()
        return made

    def subscriptions(self) -> dict[str, Subscription]:
        """Return which queues have its messages, by name."""
        return dict(self._context.known.look().subscriptions)

    def unsubscribe(self, queue: str) -> None:
        """End a subscription; what is in the queue stays there. Relays hear of it within a second or two.

        Raises:
            GroupNotFoundError: there is none of this name.
            InvalidOptionError: it is a group of consumers.
        """
        Group(self._context, queue).delete(is_subscription=True)

    def groups(self) -> list[str]:
        """Return the names of its groups, in order; a subscription is one."""
        return sorted(self._context.known.look().groups)

    def lag(self, group: str) -> list[PartitionLag]:
        """Return how far a group is in each partition.

        Raises: GroupNotFoundError: there is none of this name.
        """
        return Group(self._context, group).lags()

    def reset(self, group: str, to: Start) -> None:
        """Have a group go on somewhere else; what its members have in hand by then is not committed any more.

        Args:
            to: see `reader`; where it names partitions, the others stay as they are.

        Raises:
            GroupNotFoundError: there is none of this name.
            OutcomeUnknownError: some partitions may have been reset; resetting again is harmless.
        """
        Group(self._context, group).reset(to)

    def delete_group(self, group: str) -> None:
        """Delete a group and its progress.

        Raises: GroupNotFoundError: there is none of this name.
        """
        Group(self._context, group).delete()

    def read(
        self,
        partition: int,
        *,
        since: int | None = None,
        limit: int = 100,
        order: Literal["ascending", "descending"] = "ascending",
    ) -> Page:
        """Read a page of one partition, once.

        Args:
            since: the first offset of the page; None for the oldest, or the newest where it descends.
            order: "descending" reads from `since` back.

        Raises:
            OffsetGoneError: `since` was deleted.
            InvalidOptionError: a value breaks a rule.
        """
        return read_page(self._context, partition, since, limit, order)

    def offset_at(self, partition: int, when: datetime) -> int:
        """Return the first offset of a partition that was published at a time or later.

        By the database's clock, whose nodes differ by `clock_skew_max` at most.
        """
        check_partition(partition, self._context)
        return Segments(self._context, partition).offset_at(when)

    def stats(self) -> list[PartitionStats]:
        """Return figures of each partition."""
        return [self._stats_of(each) for each in range(self.partitions)]

    def _stats_of(self, partition: int) -> PartitionStats:
        found = Segments(self._context, partition).standing()
        size = sum(head.size for _, head in found)
        return PartitionStats(partition, found[0][0].first, found[-1][1].next, len(found), size)

    def clear(self) -> int:
        """Delete what was published until now; return how many segments went. Offsets go on."""
        return sum(Retention(self._context, each).clear() for each in range(self.partitions))

    def reap(self) -> int:
        """Close segments that are old, and delete those that are over; return how many went."""
        self._context.known.look()
        return sum(Retention(self._context, each).run_once() for each in range(self.partitions))

    def close(self) -> None:
        """Close its readers and consumers, publish what is in the buffers, and end."""
        self._closing.run(self._close)

    def _close(self) -> None:
        for each in list(self._opened):
            each.close()
        self._publisher.close()
        self._bell.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or is being closed."""
        return self._closing.has_begun

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}>"
