"""The callers' side of publishing: checks, which partition a message goes to, and what callers hear.

Owns one lane for each partition that this process publishes to. What must not break: a caller hears
"published" only after the database acknowledged, and always hears something.
"""

import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import TypedDict

from cassq.errors import (
    BodyTooLargeError,
    InvalidOptionError,
    OutcomeUnknownError,
    StorageUnavailableError,
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
from cassq.topics.many_messages import ManyMessages, Stretch
from cassq.topics.partition_lane import PartitionLane, closed_error
from cassq.topics.publish_request import Numbered, PublishRequest
from cassq.topics.spreading import Spreading
from cassq.topics.topic_context import TopicContext

#: How long a publish may take by default.
PUBLISH_TIMEOUT = timedelta(seconds=30)


class NumberedOptions(TypedDict, total=False):
    """What `Topic.publish_many` takes besides, for type checkers."""

    writer: str | None
    number: int | None


class PublishOptions(NumberedOptions, total=False):
    """What `Topic.publish` takes besides, for type checkers."""

    key: str | None
    type: str | None
    partition: int | None


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
        _check_options("publish()", options, PublishOptions.__annotations__)
        numbered = _numbered(options)
        try:
            checked = check_body(body, self._context.settings.body_bytes_max)
        except BodyTooLargeError:  # it may have been altered
            checked = check_body(body, self._settings(is_fresh=True).body_bytes_max)
        named = {name: options.get(name) for name in (KEY_HEADER, TYPE_HEADER)}
        steering = {name: value for name, value in named.items() if value is not None}
        checked_headers = check_headers({**check_headers(headers), **steering} if steering else headers)
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
        options: NumberedOptions,
    ) -> list[Stretch]:
        """Publish many messages; see `Topic.publish_many`."""
        check_may_wait("publish_many()")
        _check_options("publish_many()", options, NumberedOptions.__annotations__)
        numbered = _numbered(options)
        if partition is not None:
            check_partition(partition, self._context)
        if progress is not None and not callable(progress):
            raise InvalidOptionError(f"progress={shorten(progress)} must be a function that takes a count")
        spreading = Spreading(
            lambda headers: self._partition(partition, headers, numbered), is_whole=numbered is not None
        )
        call = ManyMessages(self._context, self._lane, to_seconds(timeout), progress, numbered)
        return call.publish(self._cutter.cut(bodies), spreading)

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


def _check_options(call: str, options: NumberedOptions, known: Collection[str]) -> None:
    for name in options.keys() - known:
        raise InvalidOptionError(
            f"{shorten(name)} is no option of {call}; the options are {', '.join(sorted(known))}"
        )


def _numbered(options: NumberedOptions) -> Numbered | None:
    writer, number = options.get("writer"), options.get("number")
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
