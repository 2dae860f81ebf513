"""Who reads a topic, or brings it into a queue, for a program that awaits.

Owns what a cancelled call leaves behind: what a reader or a consumer found for it comes with the next call.
What must not break: each call takes the arguments of its synchronous twin.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Generic, Self, TypeVar

from cassq.aio.twins import ClosingTwin, TwinOf, call_in_thread, in_thread
from cassq.errors import ClosedError
from cassq.model.arguments import check_count, seconds_of
from cassq.model.message import Headers
from cassq.model.topic import TopicMessage
from cassq.topics.bell import POLL_MAX_S
from cassq.topics.consumer import Consumer as SyncConsumer
from cassq.topics.group_message import GroupMessage as SyncGroupMessage
from cassq.topics.relay import Relay as SyncRelay
from cassq.topics.topic_reader import TopicReader as SyncTopicReader

_M = TypeVar("_M")

#: A look lasts no longer; a call that waits for longer makes several.
LOOK_S = 1.0

#: How often a task that waits for the end of a relay looks: no thread waits for it.
END_S = 0.1


class _Arrivals(Generic[_M]):
    """What calls of a reader, or of a consumer, find: those of a cancelled one come with the next.

    A call that is cancelled goes on in its thread, for no longer than a second.

    Attributes:
        left: what was found, and not returned yet.
    """

    def __init__(self, look: Callable[[int, float], list[_M]]) -> None:
        self._look = look
        self._looking: asyncio.Future[list[_M]] | None = None
        self.left: list[_M] = []

    async def next(self, limit: int, timeout: float | timedelta | None) -> list[_M]:
        """Return up to so many."""
        check_count(limit)
        clock = asyncio.get_running_loop().time
        ends_at = clock() + seconds_of(timeout)
        while not self.left:
            left_s = max(0.0, ends_at - clock())
            await self.settle(limit, min(left_s, LOOK_S))
            if not left_s:
                break
        found, self.left = self.left[:limit], self.left[limit:]
        return found

    async def settle(self, limit: int = 0, timeout: float = 0.0) -> None:
        """Wait for the look that is under way, or make one for up to `limit`, and keep what it found."""
        if self._looking is None and not limit:
            return
        if self._looking is None:
            self._looking = asyncio.ensure_future(call_in_thread(self._look, limit, timeout))
            # Where nobody comes back for a cancelled look, how it failed is nobody's concern.
            self._looking.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        looking = self._looking
        try:
            self.left += await asyncio.shield(looking)
        finally:
            if looking.done():
                self._looking = None


class TopicReader(ClosingTwin[SyncTopicReader]):
    """A reader; used by one task at a time. See `cassq.TopicReader`.

    Attributes:
        sync: the reader that this one calls.
    """

    def __init__(self, sync: SyncTopicReader) -> None:
        super().__init__(sync)
        self._arrivals = _Arrivals(sync.read_many)

    @property
    def skipped(self) -> int:
        """See `cassq.TopicReader.skipped`."""
        return self.sync.skipped

    @property
    def positions(self) -> dict[int, int]:
        """See `cassq.TopicReader.positions`; after a cancelled read call `read_many` once more before."""
        return self.sync.positions | {each.partition: each.offset for each in reversed(self._arrivals.left)}

    async def read_many(
        self, limit: int = 100, timeout: float | timedelta | None = 0.0
    ) -> list[TopicMessage]:
        """Return up to `limit` messages; see `cassq.TopicReader.read_many`.

        Where it is cancelled, what it was about to return comes with the next call.
        """
        return await self._arrivals.next(limit, timeout)

    async def __aiter__(self) -> AsyncIterator[TopicMessage]:
        """Yield each message as it comes; ends when the reader is closed."""
        while True:
            try:
                found = await self.read_many(1, POLL_MAX_S)
            except ClosedError:
                return
            for message in found:
                yield message

    async def seek(self, positions: Mapping[int, int]) -> None:
        """Go on at other offsets; see `cassq.TopicReader.seek`."""
        await self._arrivals.settle()
        await call_in_thread(self.sync.seek, positions)
        self._arrivals.left = [each for each in self._arrivals.left if each.partition not in positions]


class GroupMessage(TwinOf[SyncGroupMessage]):
    """A message that a member of a group was handed out; see `cassq.GroupMessage`.

    Use it with `async with`: where the block ends the message is done; where it raises, or is cancelled, it
    and what follows it in its partition come again.

    Attributes:
        sync: the message that this one calls.
    """

    @property
    def is_out(self) -> bool:
        """See `cassq.GroupMessage.is_out`."""
        return self.sync.is_out

    @property
    def partition(self) -> int:
        """The partition."""
        return self.sync.partition

    @property
    def offset(self) -> int:
        """The number in the partition."""
        return self.sync.offset

    @property
    def body(self) -> bytes:
        """The bytes that were published."""
        return self.sync.body

    @property
    def headers(self) -> Headers:
        """The message's headers."""
        return self.sync.headers

    @property
    def type(self) -> str | None:
        """Its header `type`."""
        return self.sync.type

    @property
    def key(self) -> str | None:
        """Its header `key`."""
        return self.sync.key

    @property
    def published_at(self) -> datetime:
        """When it was published, by the database's clock."""
        return self.sync.published_at

    @property
    def epoch(self) -> int:
        """See `cassq.GroupMessage.epoch`."""
        return self.sync.epoch

    done = in_thread(SyncGroupMessage.done)
    again = in_thread(SyncGroupMessage.again)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        await (self.again() if error else self.done())


class Consumer(ClosingTwin[SyncConsumer]):
    """One member of a group; used by one task at a time. See `cassq.Consumer`.

    Attributes:
        sync: the consumer that this one calls.
    """

    def __init__(self, sync: SyncConsumer) -> None:
        super().__init__(sync)
        self._arrivals = _Arrivals(sync.poll)

    @property
    def partitions(self) -> list[int]:
        """See `cassq.Consumer.partitions`."""
        return self.sync.partitions

    async def poll(self, limit: int = 100, timeout: float | timedelta | None = 0.0) -> list[GroupMessage]:
        """Return up to `limit` messages; see `cassq.Consumer.poll`.

        Where it is cancelled, what it was about to return comes with the next call.
        """
        return list(map(GroupMessage, await self._arrivals.next(limit, timeout)))

    async def __aiter__(self) -> AsyncIterator[GroupMessage]:
        """Yield each message as it comes; ends when the consumer is closed."""
        while True:
            try:
                found = await self.poll(1, POLL_MAX_S)
            except ClosedError:
                return
            for message in found:
                yield message

    async def commit(self, messages: Sequence[GroupMessage] = ()) -> None:
        """Say that messages were worked on, and write all progress; see `cassq.Consumer.commit`."""
        await call_in_thread(self.sync.commit, [each.sync for each in messages])


class Relay(ClosingTwin[SyncRelay]):
    """What brings messages into a queue; see `cassq.Relay`.

    Attributes:
        sync: the relay that this one calls.
    """

    @property
    def queue(self) -> str:
        """See `cassq.Relay.queue`."""
        return self.sync.queue

    @property
    def partitions(self) -> list[int]:
        """See `cassq.Relay.partitions`."""
        return self.sync.partitions

    async def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until it has ended; tell whether it has. See `cassq.Relay.wait`."""
        clock = asyncio.get_running_loop().time
        ends_at = clock() + seconds_of(timeout)
        while not (has_ended := self.sync.wait(0.0)):
            left_s = ends_at - clock()
            if left_s <= 0:
                break
            await asyncio.sleep(min(left_s, END_S))
        return has_ended
