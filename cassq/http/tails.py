"""The newest messages of topics that clients follow, read once in a process for all of them.

Owns one thread for each topic that somebody follows. What must not break: a follower gets each message from
its place on, in order, once; whatever is not here it reads from the log itself.
"""

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import cassq
from cassq.limits import MIB
from cassq.model.message import size_of
from cassq.runtime.clock import SystemClock, rest

_log = logging.getLogger("cassq.http")

#: So many of the newest messages of a partition are kept.
KEPT = 1000

#: And so many bytes of a topic, or one message.
KEPT_BYTES = 4 * MIB

#: What a message takes besides, roughly.
OVERHEAD = 256

#: How long a look of the thread waits: so long after the last follower left it ends.
LOOK_S = 1.0

#: After a failure it rests so long.
REST_S = 0.5


class Tail:
    """The newest messages of one topic.

    Attributes:
        followers: how many there are.
        failure: why no more will come.
    """

    def __init__(self, topic: cassq.Topic, loop: asyncio.AbstractEventLoop) -> None:
        self.followers = 0
        self.failure: cassq.CassqError | None = None
        self._topic = topic
        self._loop = loop
        self._ends: dict[int, int] = {}  # the offset behind the newest message that was read
        self._kept: dict[int, deque[cassq.TopicMessage]] = {}
        self._sizes: OrderedDict[tuple[int, int], int] = (
            OrderedDict()
        )  # by partition and offset, oldest first
        self._size = 0
        self._news = asyncio.Event()
        self._is_over = False
        threading.Thread(target=self._run, name=f"cassq-follow-{topic.name}", daemon=True).start()

    def end(self) -> None:
        """Have the thread end."""
        self._is_over = True

    def find(self, partition: int, since: int, limit: int) -> Sequence[cassq.TopicMessage] | None:
        """Return messages from an offset on, or None where the log has to be asked."""
        if since == self._ends.get(partition):
            return []
        kept = self._kept.get(partition)
        if not kept or not kept[0].offset <= since <= kept[-1].offset:
            return None
        skipped = since - kept[0].offset  # offsets have no gaps
        return [kept[place] for place in range(skipped, min(len(kept), skipped + limit))]

    @property
    def news(self) -> asyncio.Event:
        """What is set with the next message: take it before a look, and wait for it after."""
        return self._news

    def _run(self) -> None:
        clock = SystemClock()
        while not self._is_over:
            try:
                with self._topic.reader("latest", on_gone="oldest") as reader:
                    # Followers look once more: what came before this reader was made is in the log alone.
                    self._tell([], ends=reader.positions)
                    while not self._is_over:
                        if found := reader.read_many(KEPT, LOOK_S):
                            self._tell(found)
            except (cassq.UnavailableError, cassq.OutcomeUnknownError):
                rest(clock, REST_S)
            except cassq.CassqError as error:
                self._tell([], failure=error)
                return
            except Exception as error:
                _log.exception("topic %s: a fault ended what its followers read", self._topic.name)
                self._tell([], failure=cassq.CassqError(str(error)))
                return

    def _tell(
        self,
        found: Sequence[cassq.TopicMessage],
        *,
        ends: Mapping[int, int] | None = None,
        failure: cassq.CassqError | None = None,
    ) -> None:
        try:
            self._loop.call_soon_threadsafe(self._note, found, ends, failure)
        except RuntimeError:  # the loop has ended
            self._is_over = True

    def _note(
        self,
        found: Sequence[cassq.TopicMessage],
        ends: Mapping[int, int] | None,
        failure: cassq.CassqError | None,
    ) -> None:
        self.failure = failure
        if ends is not None:
            self._ends = dict(ends)
            self._kept.clear()  # a new reader may have left something out
            self._sizes.clear()
            self._size = 0
        for message in found:
            self._ends[message.partition] = message.offset + 1
            kept = self._kept.setdefault(message.partition, deque())
            while kept and (kept[-1].offset + 1 != message.offset or len(kept) >= KEPT):
                self._drop(message.partition)
            kept.append(message)
            size = OVERHEAD + size_of(message.body, message.headers)
            self._sizes[message.partition, message.offset] = size
            self._size += size
            while self._size > KEPT_BYTES and len(self._sizes) > 1:
                self._drop(next(iter(self._sizes))[0])
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _drop(self, partition: int) -> None:
        """Drop the oldest message of a partition."""
        gone = self._kept[partition].popleft()
        self._size -= self._sizes.pop((partition, gone.offset))


class Tails:
    """The tails of a process, by topic."""

    def __init__(self) -> None:
        self._tails: dict[str, Tail] = {}

    @contextmanager
    def follow(self, topic: cassq.Topic) -> Iterator[Tail]:
        """Yield the tail of a topic; it ends with its last follower."""
        tail = self._tails.get(topic.name)
        if tail is None or tail.failure:
            tail = self._tails[topic.name] = Tail(topic, asyncio.get_running_loop())
        tail.followers += 1
        try:
            yield tail
        finally:
            tail.followers -= 1
            if not tail.followers:
                tail.end()
                if self._tails.get(topic.name) is tail:
                    del self._tails[topic.name]
