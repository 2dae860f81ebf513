"""What users hold: one topic, to publish into, to read, and to consume by groups.

Owns the public interface; decides nothing about messages itself.
"""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from datetime import timedelta
from typing import Literal, Unpack
from weakref import WeakSet

from cassq.model.ids import new_token
from cassq.model.message import Headers
from cassq.model.topic import Position
from cassq.runtime.fork_guard import process_name
from cassq.runtime.reentry import Closing
from cassq.topics.bell import Bell
from cassq.topics.consumer import CommitHow, Consumer
from cassq.topics.group import Group, made_anew
from cassq.topics.group_lessor import GroupLessor
from cassq.topics.many_messages import Stretch
from cassq.topics.pages import Page, read_page
from cassq.topics.publisher import (
    PUBLISH_TIMEOUT,
    NumberedOptions,
    Publisher,
    PublishOptions,
)
from cassq.topics.relay import Relay
from cassq.topics.topic_care import TopicCare
from cassq.topics.topic_context import TopicContext
from cassq.topics.topic_reader import Start, TopicReader


class Topic(TopicCare):
    """One topic. Made by `Store.topic`; threads may share it.

    Attributes:
        name: its name.
    """

    def __init__(self, context: TopicContext) -> None:
        super().__init__(context)
        self._bell = Bell(
            context.coordinator, context.name, context.clock, f"{process_name()}-{str(new_token())[:8]}"
        )
        self._publisher = Publisher(context, self._bell)
        self._closing = Closing(context.clock)
        self._opened: WeakSet[TopicReader | Consumer | GroupLessor | Relay] = WeakSet()

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

    def lessor(self, group: str, *, on_gone: Literal["error", "oldest"] = "error") -> GroupLessor:
        """Return a member of a group that lends its messages to clients, for a service that has some.

        The group exists, by `declare_group` or by a consumer. Each client has the next messages of one
        partition until it commits them, at any process, or its time is over. See "Leases of a group" in
        docs/topics.md.

        Args:
            on_gone: see `reader`.

        Raises:
            GroupNotFoundError: there is none of this name.
            InvalidOptionError: it is a subscription, or the store names no coordination service.
        """
        made = GroupLessor(self._context, self._bell, Group(self._context, group), on_gone)
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

    def read(
        self,
        partition: int,
        *,
        since: int | None = None,
        limit: int = 100,
        order: Literal["ascending", "descending"] = "ascending",
    ) -> Page:
        """Read a page of one partition, once: 4 MiB at most, or one message; it says where to read on.

        Args:
            since: the first offset of the page; None for the oldest, or the newest where it descends.
            order: "descending" reads from `since` back.

        Raises:
            OffsetGoneError: `since` was deleted.
            InvalidOptionError: a value breaks a rule.
        """
        return read_page(self._context, partition, since, limit, order)

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
