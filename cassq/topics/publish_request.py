"""What one call publishes into one partition, on its way to the log.

Owns the promise to the caller: a request ends exactly once, with the place of its messages or with an error
that says whether they are published.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from cassq.errors import CassqError
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from cassq.model.message import Headers, size_of
from cassq.model.topic import Position, SegmentKey
from cassq.runtime.background_thread import AnsweredFuture, BackgroundThread


class Numbered(NamedTuple):
    """A writer's name, and the number that it gave a message."""

    writer: str
    number: int


class PublishRequest:
    """Messages of one call that are linked together: small enough for one batch, unless they have a number.

    Args:
        thread: the one that publishes them.
        deadline: the clock's reading after which nobody waits any more.
        numbered: who numbers its messages, and the number that they have together.

    Attributes:
        future: ends with the position of the first message.
        segment: of what is offered: the one that it may be linked into, and no other; None for any.
    """

    __slots__ = (
        *("_has_begun", "bodies", "count", "deadline", "future", "headers", "number"),
        *("segment", "size", "writer"),
    )

    def __init__(
        self,
        thread: BackgroundThread,
        bodies: Sequence[bytes],
        headers: Sequence[Headers],
        deadline: float,
        numbered: Numbered | None = None,
    ) -> None:
        self.bodies = bodies
        self.headers = headers
        self.count = len(bodies)
        self.size = sum(map(size_of, bodies, headers))
        self.deadline = deadline
        self.writer, self.number = numbered or Numbered("", 0)
        self.future: AnsweredFuture[Position] = AnsweredFuture(thread, "publish_soon()")
        self.segment: SegmentKey | None = None
        self._has_begun = False

    @property
    def is_over(self) -> bool:
        """Whether its caller was told, or gave up before it was sent."""
        return self.future.done()

    def begin(self) -> bool:
        """Tell whether somebody still waits for it; from now on its caller cannot take it back."""
        self._has_begun = self._has_begun or self.future.set_running_or_notify_cancel()
        return self._has_begun

    def tell(self, partition: int, offset: int, *, is_repeat: bool = False) -> None:
        """End it with the place of its first message."""
        self.future.set_result(Position(partition, offset, is_repeat))

    def fail(self, error: CassqError) -> None:
        """End it with an error."""
        self.future.set_exception(error)


def in_batches(requests: Iterable[PublishRequest]) -> Iterator[list[PublishRequest]]:
    """Yield requests in parts that fit into one batch each, but for a larger request, which comes alone."""
    part: list[PublishRequest] = []
    messages = size = 0
    for each in requests:
        if part and (messages + each.count > BATCH_MESSAGES_MAX or size + each.size > BATCH_BYTES_MAX):
            yield part
            part, messages, size = [], 0, 0
        part.append(each)
        messages, size = messages + each.count, size + each.size
    if part:
        yield part


def is_large(part: Sequence[PublishRequest]) -> bool:
    """Tell whether a part is more than one batch; then it is one request."""
    return len(part) == 1 and (part[0].count > BATCH_MESSAGES_MAX or part[0].size > BATCH_BYTES_MAX)


def batches_of(part: Sequence[PublishRequest]) -> Iterator[tuple[tuple[bytes, ...], tuple[Headers, ...]]]:
    """Yield the bodies and headers of one part as batches: several where its only request is too large."""
    bodies = tuple(body for each in part for body in each.bodies)
    headers = tuple(header for each in part for header in each.headers)
    begin = 0
    if is_large(part):
        size = 0
        for place, weight in enumerate(map(size_of, bodies, headers)):
            if place > begin and (place - begin == BATCH_MESSAGES_MAX or size + weight > BATCH_BYTES_MAX):
                yield bodies[begin:place], headers[begin:place]
                begin, size = place, 0
            size += weight
    yield bodies[begin:], headers[begin:]
