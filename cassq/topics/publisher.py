"""The callers' side of publishing: checks, which partition a message goes to, and what callers hear.

Owns one lane for each partition that this process publishes to. What must not break: a caller hears
"published" only after the database acknowledged, and always hears something.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, TypedDict

from cassq.errors import (
    BodyTooLargeError,
    CassqError,
    InvalidOptionError,
    OutcomeUnknownError,
    StorageUnavailableError,
    UsageError,
)
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, SEQ_MAX
from cassq.model.arguments import to_seconds
from cassq.model.ids import check_name, new_token, shorten
from cassq.model.message import Headers, check_body, check_headers
from cassq.model.topic import KEY_HEADER, TYPE_HEADER, Position, partition_of
from cassq.model.topic_settings import TopicSettings
from cassq.pushing.batch_cutter import BatchCutter
from cassq.runtime.reentry import alone, check_may_wait
from cassq.topics.bell import Bell
from cassq.topics.partition_lane import LINK_BATCHES_MAX, PartitionLane, closed_error
from cassq.topics.publish_request import Numbered, PublishRequest
from cassq.topics.topic_context import TopicContext

#: How long a publish may take by default.
PUBLISH_TIMEOUT = timedelta(seconds=30)

#: How many parts of one `publish_many` are on their way at once: as many as two links take.
PARTS_IN_FLIGHT = 2 * LINK_BATCHES_MAX


class PublishOptions(TypedDict, total=False):
    """What `Topic.publish` takes besides, for type checkers."""

    key: str | None
    type: str | None
    partition: int | None
    writer: str | None
    number: int | None


class Stretch(NamedTuple):
    """Messages of one `publish_many` that follow each other in a partition: offsets `first` to `last`."""

    partition: int
    first: int
    last: int


class Publisher:
    """Publishes into one topic; shared by all threads of a process."""

    def __init__(self, context: TopicContext, bell: Bell) -> None:
        self._context = context
        self._clock = context.clock
        self._bell = bell
        self._guard = threading.RLock()
        self._lanes: dict[int, PartitionLane] = {}
        self._is_closed = False
        self._own = new_token().int % context.settings.partitions
        self._cutter = BatchCutter(self._settings, lambda _: (BATCH_MESSAGES_MAX, BATCH_BYTES_MAX))

    def publish(
        self, body: bytes, headers: object, timeout: float | timedelta, options: PublishOptions
    ) -> Position:
        """Publish one message; see `Topic.publish`."""
        check_may_wait("publish()")
        seconds = to_seconds(timeout)
        ends_at = self._clock.now() + seconds
        future = self.publish_soon(body, headers, timeout, options)
        with suppress(TimeoutError):
            return future.result(max(0.0, ends_at - self._clock.now()))
        if future.cancel():
            raise StorageUnavailableError(
                f"topic {self._context.name!r}: not published within {seconds:g} s: others were first"
            )
        with suppress(TimeoutError):
            return future.result(0)
        raise OutcomeUnknownError(
            f"topic {self._context.name!r}: no answer within {seconds:g} s: it may be published"
        )

    def publish_soon(
        self, body: bytes, headers: object, timeout: float | timedelta, options: PublishOptions
    ) -> "Future[Position]":
        """Publish one message soon; see `Topic.publish_soon`."""
        _check_options(options)
        try:
            checked = check_body(body, self._context.settings.body_bytes_max)
        except BodyTooLargeError:  # it may have been altered
            checked = check_body(body, self._settings(is_fresh=True).body_bytes_max)
        named = {name: options.get(name) for name in (KEY_HEADER, TYPE_HEADER)}
        steering = {name: value for name, value in named.items() if value is not None}
        checked_headers = check_headers({**check_headers(headers), **steering} if steering else headers)
        numbered = _numbered(options.get("writer"), options.get("number"))
        partition = self._partition(options.get("partition"), checked_headers, numbered)
        deadline = self._clock.now() + to_seconds(timeout)
        lane = self._lane(partition)
        request = PublishRequest(lane.thread, (checked,), (checked_headers,), deadline, numbered)
        lane.put(request)
        return request.future

    def publish_many(
        self,
        bodies: Iterable[bytes | tuple[bytes, Headers]],
        progress: Callable[[int], None] | None,
        timeout: float | timedelta,
        partition: int | None,
    ) -> list[Stretch]:
        """Publish many messages; see `Topic.publish_many`."""
        check_may_wait("publish_many()")
        stretches: list[Stretch] = []
        flying: deque[PublishRequest] = deque()

        def land() -> None:
            request = flying[0]
            position = self._landed(request)
            flying.popleft()
            _add(stretches, position, request.count)
            if progress:
                progress(request.count)

        try:
            for part, headers in self._cutter.cut(bodies):
                for place, indexes in self._spread(headers, partition).items():
                    lane = self._lane(place)
                    deadline = self._clock.now() + to_seconds(timeout)
                    chosen = [part[each] for each in indexes], [headers[each] for each in indexes]
                    request = PublishRequest(lane.thread, *chosen, deadline)
                    lane.put(request)
                    flying.append(request)
                    if len(flying) > PARTS_IN_FLIGHT:
                        land()
            while flying:
                land()
        except BaseException as error:
            self._abandon(error, flying, stretches)
            raise
        return stretches

    def _abandon(
        self, error: BaseException, flying: Iterable[PublishRequest], stretches: list[Stretch]
    ) -> None:
        """Tell with an error how much was published; nothing of the call is published after it."""
        errors: list[CassqError] = []
        for request in flying:
            if request.future.cancel():
                continue
            try:
                _add(stretches, self._landed(request), request.count)
            except CassqError as found:
                errors.append(found)
        published = sum(each.last - each.first + 1 for each in stretches)
        told = f"{published} of the messages are published"
        is_unknown = any(isinstance(each, OutcomeUnknownError) for each in errors)
        if isinstance(error, CassqError) and not isinstance(error, UsageError) and (published or is_unknown):
            raise OutcomeUnknownError(f"at least {told}, others are not: {error}") from error
        error.add_note(told)

    def _landed(self, request: PublishRequest) -> Position:
        """Wait for a request until shortly after its deadline, and return the place of its first message."""
        with suppress(TimeoutError):
            return request.future.result(max(0.0, request.deadline - self._clock.now()) + 1.0)
        if request.future.cancel():
            raise StorageUnavailableError(
                f"topic {self._context.name!r}: not published in time: others were first"
            )
        with suppress(TimeoutError):
            return request.future.result(0)
        raise OutcomeUnknownError(f"topic {self._context.name!r}: no answer in time: it may be published")

    def close(self) -> None:
        """Publish what is in the buffers, and end."""
        with self._guard:
            self._is_closed = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.close()

    def _lane(self, partition: int) -> PartitionLane:
        self._context.guard.check(f"topic {self._context.name!r}")
        lane = self._lanes.get(partition)
        if lane is None:
            with alone(self._guard, "publish()"):
                if self._is_closed:
                    raise closed_error(self._context.name)
                made = PartitionLane(self._context, partition, self._bell)
                lane = self._lanes.setdefault(partition, made)
        return lane

    def _settings(self, is_fresh: bool) -> TopicSettings:  # noqa: FBT001 - of the cutter's making
        return self._context.known.look().settings if is_fresh else self._context.settings

    def _partition(self, given: int | None, headers: Headers, numbered: Numbered | None) -> int:
        if given is not None:
            return check_partition(given, self._context)
        key = headers.get(KEY_HEADER) or (numbered.writer if numbered else "")
        return partition_of(key, self._context.settings.partitions) if key else self._own

    def _spread(self, headers: Sequence[Headers], partition: int | None) -> dict[int, list[int]]:
        """Return which messages of a part go to which partition, by their places in it."""
        spread: dict[int, list[int]] = {}
        for place, each in enumerate(headers):
            spread.setdefault(self._partition(partition, each, None), []).append(place)
        return spread


def check_partition(given: object, context: TopicContext) -> int:
    """Return the number of a partition.

    Raises: InvalidOptionError: the topic has none of that number.
    """
    last = context.settings.partitions - 1
    if type(given) is not int or not 0 <= given <= last:
        raise InvalidOptionError(
            f"partition={shorten(given)} must be an int of 0 to {last}, the last partition of topic "
            f"{context.name!r}"
        )
    return given


def _check_options(options: PublishOptions) -> None:
    for name in options.keys() - PublishOptions.__annotations__.keys():
        known = ", ".join(sorted(PublishOptions.__annotations__))
        raise InvalidOptionError(f"{shorten(name)} is no option of publish(); the options are {known}")


def _numbered(writer: str | None, number: int | None) -> Numbered | None:
    if writer is None and number is None:
        return None
    if writer is None or number is None:
        raise InvalidOptionError(
            f"writer={shorten(writer)} and number={shorten(number)} belong together: give both, so that the "
            "number is published once, or neither"
        )
    check_name(writer, "writer's name")
    if type(number) is not int or not 0 <= number < SEQ_MAX:
        raise InvalidOptionError(f"number={shorten(number)} must be an int of 0 or more, below 2**63 - 1")
    return Numbered(writer, number)


def _add(stretches: list[Stretch], position: Position, count: int) -> None:
    last = position.offset + count - 1
    if stretches and stretches[-1][::2] == (position.partition, position.offset - 1):
        stretches[-1] = stretches[-1]._replace(last=last)
    else:
        stretches.append(Stretch(position.partition, position.offset, last))
