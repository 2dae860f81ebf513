"""One call of `publish_many`: what is on its way, where it is, and what is told where it fails.

Owns how much is on its way at once. What must not break: nothing of the call is published after it raised.
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from cassq.errors import CassqError, OutcomeUnknownError, StorageUnavailableError, UsageError
from cassq.limits import BATCH_MESSAGES_MAX
from cassq.model.topic import Position
from cassq.pushing.batch_cutter import Part
from cassq.topics.partition_lane import LINK_BATCHES_MAX, PartitionLane
from cassq.topics.publish_request import Numbered, PublishRequest
from cassq.topics.spreading import Lot, Spreading
from cassq.topics.topic_context import TopicContext

#: How many messages of one `publish_many` are on their way at once: as many as two links take.
IN_FLIGHT_MAX = 2 * LINK_BATCHES_MAX * BATCH_MESSAGES_MAX

#: Who publishes tells an outcome shortly after the deadline at the latest.
_GRACE_S = 1.0


class Stretch(NamedTuple):
    """Messages of one `publish_many` that follow each other in a partition: offsets `first` to `last`."""

    partition: int
    first: int
    last: int


class ManyMessages:
    """One call.

    Args:
        lane_of: returns the lane of a partition.
        seconds: how long each batch may take.
        progress: is told how many more are published.
        numbered: the number that the messages have together: those of a partition are one request.
    """

    def __init__(
        self,
        context: TopicContext,
        lane_of: Callable[[int], PartitionLane],
        seconds: float,
        progress: Callable[[int], None] | None,
        numbered: Numbered | None = None,
    ) -> None:
        self._numbered = numbered
        self._name = context.name
        self._clock = context.clock
        self._lane_of = lane_of
        self._seconds = seconds
        self._progress = progress
        self._flying: deque[PublishRequest] = deque()
        self._in_flight = 0
        self._stretches: list[Stretch] = []
        self._repeated = 0

    def publish(self, parts: Iterable[Part], spreading: Spreading) -> list[Stretch]:
        """Publish all; return where they are."""
        try:
            for part in parts:
                for lot in spreading.add(*part):
                    self._send(lot)
            for lot in spreading.rest():
                self._send(lot)
            while self._flying:
                self._land()
        except BaseException as error:
            self._abandon(error)
            raise
        return self._stretches

    def _send(self, lot: Lot) -> None:
        lane = self._lane_of(lot.partition)
        deadline = self._clock.now() + self._seconds
        request = PublishRequest(lane.thread, lot.bodies, lot.headers, deadline, self._numbered)
        lane.put(request)
        self._flying.append(request)
        self._in_flight += request.count
        while self._in_flight > IN_FLIGHT_MAX:
            self._land()

    def _land(self) -> None:
        request = self._flying[0]
        position = self._landed(request)
        self._flying.popleft()
        self._in_flight -= request.count
        if self._add(position, request.count) and self._progress:
            self._progress(request.count)

    def _landed(self, request: PublishRequest) -> Position:
        """Wait for a request until shortly after its deadline, and return the place of its first message."""
        with suppress(TimeoutError):
            return request.future.result(max(0.0, request.deadline - self._clock.now()) + _GRACE_S)
        if request.future.cancel():
            raise StorageUnavailableError(f"topic {self._name!r}: not published in time: others were first")
        with suppress(TimeoutError):
            return request.future.result(0)
        raise OutcomeUnknownError(f"topic {self._name!r}: no answer in time: it may be published")

    def _abandon(self, error: BaseException) -> None:
        """Tell with an error how much was published."""
        is_unknown = False
        for request in self._flying:
            if request.future.cancel():
                continue
            try:
                self._add(self._landed(request), request.count)
            except CassqError as found:
                is_unknown = is_unknown or isinstance(found, OutcomeUnknownError)
        published = self._repeated + sum(each.last - each.first + 1 for each in self._stretches)
        told = f"{published} of the messages are published"
        if isinstance(error, CassqError) and not isinstance(error, UsageError) and (published or is_unknown):
            others = "others may be" if is_unknown else "others are not"
            raise OutcomeUnknownError(f"at least {told}, {others}: {error}") from error
        error.add_note(told)

    def _add(self, position: Position, count: int) -> bool:
        """Note where messages are; False: an earlier call published them."""
        if position.is_repeat:
            self._repeated += count
            return False
        last = position.offset + count - 1
        stretches = self._stretches
        if stretches and stretches[-1][::2] == (position.partition, position.offset - 1):
            stretches[-1] = stretches[-1]._replace(last=last)
        else:
            stretches.append(Stretch(position.partition, position.offset, last))
        return True
