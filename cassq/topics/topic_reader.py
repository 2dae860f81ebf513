"""Follows a topic, or reads it again: all its partitions, or some, from any point on.

Owns where it is, in memory alone: nothing is stored. What must not break: each message of a partition comes,
in the order of the offsets, and none twice.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Literal

from cassq.errors import CassqError, ClosedError, InvalidOptionError, UnavailableError
from cassq.limits import SEQ_MAX
from cassq.model.arguments import check_count, seconds_of
from cassq.model.ids import new_token, shorten
from cassq.model.topic import TopicMessage
from cassq.runtime.clock import rest
from cassq.runtime.closing_block import ClosedByBlock
from cassq.runtime.deadline import Deadline
from cassq.runtime.fork_guard import process_name
from cassq.runtime.outage_log import log_trouble
from cassq.runtime.reentry import Closing
from cassq.topics.bell import POLL_MAX_S, POLL_S, Bell, Listener
from cassq.topics.log_reader import LogReader
from cassq.topics.publisher import check_partition
from cassq.topics.segments import Segments
from cassq.topics.topic_context import TopicContext

#: Where a reader begins.
Start = Literal["earliest", "latest"] | datetime | Mapping[int, int]

_log = logging.getLogger("cassq.consumer")

#: A read with little time still gets one honest look, which waits no longer than this.
LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a reader is; replaced as one, so that a signal in the middle of a look moves nothing.

    Attributes:
        found: what was read.
        handed: how many of it were handed out.
        next: what is read next, by partition.
    """

    found: Sequence[TopicMessage]
    handed: int
    next: Mapping[int, int]

    @property
    def is_empty(self) -> bool:
        return self.handed >= len(self.found)

    def ready(self) -> Sequence[TopicMessage]:
        return self.found[self.handed :]

    def positions(self) -> dict[int, int]:
        return {**self.next, **{each.partition: each.offset for each in reversed(self.ready())}}


class TopicReader(ClosedByBlock):
    """One reader; used by one thread at a time. Made by `Topic.reader`."""

    def __init__(  # noqa: PLR0913 - what a reader is asked for
        self,
        context: TopicContext,
        bell: Bell,
        *,
        start: Start,
        partitions: Collection[int] | None,
        types: Collection[str] | None,
        on_gone: str,
    ) -> None:
        skips_gone = check_on_gone(on_gone)
        chosen = range(context.settings.partitions) if partitions is None else check_partitions(partitions)
        self._context = context
        self._listener = Listener(bell, f"{process_name()}-{str(new_token())[:8]}", context.clock)
        self._closing = Closing(context.clock)
        self._wants = filter_of(types)
        self._logs = {
            each: LogReader(context, each, offset_of(context, each, start), skips_gone=skips_gone)
            for each in (check_partition(given, context) for given in chosen)
        }
        self._turns = deque(self._logs)
        self._place = _Place((), 0, {each: log.next for each, log in self._logs.items()})

    @property
    def skipped(self) -> int:
        """How many messages were gone, with `on_gone="oldest"`."""
        return sum(log.skipped for log in self._logs.values())

    @property
    def positions(self) -> dict[int, int]:
        """The offset that comes next, by partition: `Topic.reader` takes it as `start`."""
        return self._place.positions()

    def seek(self, positions: Mapping[int, int]) -> None:
        """Go on at other offsets; partitions that are not named go on where they are."""
        if not isinstance(positions, Mapping):
            raise InvalidOptionError(f"positions={shorten(positions)} must be {{partition: offset}}")
        for partition, offset in positions.items():
            if partition not in self._logs:
                read = ", ".join(map(str, self._logs))
                raise InvalidOptionError(f"partition {shorten(partition)} is not read here; it reads {read}")
            check_offset(offset)
        kept = [each for each in self._place.ready() if each.partition not in positions]
        self._place = _Place(kept, 0, {**self._place.next, **positions})

    def read_many(self, limit: int = 100, timeout: float | timedelta | None = 0.0) -> list[TopicMessage]:
        """Return up to `limit` messages, at once where some are there; waits for the first one.

        Args:
            timeout: how long it waits; 0 looks once, None waits for ever.

        Raises:
            OffsetGoneError: what comes next was deleted, and the reader is to be told.
            TopicNotFoundError, ClosedError: the topic was deleted; the reader was closed.
            StorageUnavailableError: nothing was read; call again.
        """
        check_count(limit)
        ends_at = self._context.clock.now() + seconds_of(timeout)
        poll_s = POLL_S
        while self._place.is_empty:
            self._check_open()
            with Deadline(max(ends_at, self._context.clock.now() + LOOK_S)):
                has_moved = self._fill()
            left_s = ends_at - self._context.clock.now()
            if not self._place.is_empty or left_s <= 0:
                break
            if not has_moved:
                self._listener.sleep(min(left_s, poll_s), self._fill)
                poll_s = min(2 * poll_s, POLL_MAX_S)
        place = self._place
        given = list(place.found[place.handed : place.handed + limit])
        try:
            self._place = replace(place, handed=place.handed + len(given))
            return given  # noqa: TRY300 - a signal may come here, too
        except BaseException:  # they come again
            self._place = place
            raise

    def __iter__(self) -> Iterator[TopicMessage]:
        """Yield each message as it comes; ends when the reader is closed.

        Where the database is out of reach it waits for it, and the log tells.
        """
        while not self._listener.is_closed:
            try:
                yield from self.read_many(1, POLL_MAX_S)  # `positions` counts what was yielded
            except UnavailableError as error:
                log_trouble(_log, error, "topic %s: %s", self._context.name, error)
                rest(self._context.clock, POLL_S)
            except ClosedError:
                if not self._listener.is_closed:
                    raise  # the store was
                return

    def close(self) -> None:
        """Read no more; a call that waits ends. Nothing in a forked child."""
        if self._context.guard.is_here:
            self._closing.run(self._listener.close)

    def _check_open(self) -> None:
        self._context.guard.check(f"a reader of topic {self._context.name!r}")
        if self._listener.is_closed or self._closing.has_begun:
            raise ClosedError(f"this reader of topic {self._context.name!r} is closed: make another one")

    def _fill(self) -> bool:
        """Read of each partition in turn until one has what is wanted; tell whether there was anything."""
        has_moved = False
        for _ in range(len(self._turns)):
            partition = self._turns[0]
            log, place = self._logs[partition], self._place
            self._turns.rotate(-1)
            if log.next != place.next[partition]:  # another offset was sought, or a signal ended a look
                log.seek(place.next[partition])
            try:
                found = log.read()
            except CassqError:  # what is gone was skipped, maybe
                self._place = replace(place, next={**place.next, partition: log.next})
                raise
            if found:
                has_moved = True
                self._listener.note_found(len(found))
            wanted = [*filter(self._wants, found)]
            self._place = _Place([*place.ready(), *wanted], 0, {**place.next, partition: log.next})
            if wanted:
                break
        return has_moved


def check_on_gone(on_gone: object) -> bool:
    """Tell whether to go on at the oldest offset where one is gone.

    Raises: InvalidOptionError: it is neither word.
    """
    if on_gone not in {"error", "oldest"}:
        raise InvalidOptionError(f"on_gone={shorten(on_gone)} must be 'error' or 'oldest'")
    return on_gone == "oldest"


def check_partitions(partitions: object) -> Collection[int]:
    """Return the partitions that are to be read.

    Raises: InvalidOptionError: they are no collection, or none.
    """
    if not isinstance(partitions, Collection) or not partitions:
        raise InvalidOptionError(
            f"partitions={shorten(partitions)} must be numbers of partitions, as [0]; None reads all"
        )
    return partitions


def filter_of(types: Collection[str] | None) -> Callable[[TopicMessage], bool]:
    """Return what tells whether a message is of some types: shell patterns; None for all.

    Raises: InvalidOptionError: they are no collection of str.
    """
    if types is None:
        return lambda _: True
    is_some = isinstance(types, Collection) and not isinstance(types, str) and bool(types)
    if not is_some or not all(isinstance(each, str) for each in types):
        raise InvalidOptionError(
            f"types={shorten(types)} must be patterns of types, as ['order.*']; None is all"
        )
    patterns = tuple(types)
    return lambda message: any(fnmatchcase(message.type or "", each) for each in patterns)


def check_offset(offset: object) -> int:
    """Return an offset.

    Raises: InvalidOptionError: it is no int of 1 or more.
    """
    if type(offset) is not int or not 1 <= offset < SEQ_MAX:
        raise InvalidOptionError(f"offset={shorten(offset)} must be an int of 1 or more")
    return offset


def offset_of(context: TopicContext, partition: int, start: object) -> int:
    """Return the offset that a start means in a partition.

    Raises: InvalidOptionError: it is none.
    """
    if isinstance(start, Mapping):
        for each in start:
            check_partition(each, context)
    segments = Segments(context, partition)
    if start == "earliest":
        return segments.earliest()
    if start == "latest":
        return segments.latest()
    if isinstance(start, datetime):
        return segments.offset_at(start)
    if isinstance(start, Mapping) and partition not in start:
        return segments.earliest()
    if isinstance(start, Mapping):
        offset, latest = check_offset(start[partition]), segments.latest()
        if offset > latest:
            raise InvalidOptionError(
                f"offset={offset} is beyond the end of partition {partition}, whose next message gets "
                f"{latest}: give that, or less"
            )
        return offset
    raise InvalidOptionError(
        f"start={shorten(start)} must be 'earliest', 'latest', a datetime with a timezone, or "
        "{partition: offset}"
    )
