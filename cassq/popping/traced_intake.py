"""What poppers pop from, and commit by, where a tracer follows it.

Owns which pops and commits are told. Decides nothing: where there is no tracer there are only the buffer and
the committer. What must not break: each call ends as theirs.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from cassq.errors import CassqError, ClosedError
from cassq.model.tracing import PopSpan, Span, Tracer
from cassq.popping.committer import Committer
from cassq.popping.consumer_line import Asker
from cassq.popping.delivery import Delivery
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.observed_intake import ObservedBuffer
from cassq.popping.pop_future import PopFuture


class TracedBuffer:
    """Hands out what the buffer does.

    Args:
        consumer: the name of the popper.
    """

    def __init__(
        self, buffer: DeliveryBuffer | ObservedBuffer, tracer: Tracer, queue: str, consumer: str
    ) -> None:
        self._buffer = buffer
        self._begin = partial(tracer.pop, queue, consumer)

    def get(self, count: int, deadline: float | None, asker: Asker | None = None) -> list[Delivery]:
        """See `DeliveryBuffer.get`."""
        span = self._begin()
        try:
            popped = self._buffer.get(count, deadline, asker)
        except CassqError as error:
            _end_failed(span, error)
            raise
        if popped:
            span.end(popped)
        return popped

    def get_soon(self, count: int, asker: Asker | None = None) -> PopFuture:
        """See `DeliveryBuffer.get_soon`."""
        span = self._begin()
        future = self._buffer.get_soon(count, asker)
        Future.add_done_callback(future, partial(_end_pop, span))
        return future


def _end_pop(span: PopSpan, future: "Future[list[Delivery]]") -> None:
    if future.cancelled():
        return
    # By the base class, which does not count as somebody who saw the error.
    if error := Future.exception(future):
        _end_failed(span, error)
    elif popped := Future.result(future):
        span.end(popped)


def _end_failed(span: PopSpan, error: BaseException) -> None:
    if not isinstance(error, ClosedError):  # the end of a popper is none of a pop
        span.end((), error)


class TracedCommitter:
    """Commits as the committer that it is given.

    Args:
        consumer: the name of the popper.
    """

    def __init__(self, committer: Committer, tracer: Tracer, queue: str, consumer: str) -> None:
        self._committer = committer
        self._begin = partial(tracer.commit, queue, consumer)

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """See `Committer.commit`."""
        span = self._begin(deliveries)
        try:
            self._committer.commit(deliveries)
        except BaseException as error:
            span.end(error)
            raise
        span.end()

    def commit_soon(self, delivery: Delivery) -> "Future[None]":
        """See `Committer.commit_soon`."""
        span = self._begin((delivery,))
        future = self._committer.commit_soon(delivery)
        # By the base class: an error that only a tracer saw is in the log, too.
        Future.add_done_callback(future, partial(_end_commit, span))
        return future


def _end_commit(span: Span, future: "Future[None]") -> None:
    span.end(Future.exception(future))
