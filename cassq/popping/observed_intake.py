"""What poppers pop from, and commit by, where an observer is told of it.

Owns what a pop and a commit came to, and how long each took. Decides nothing: where there is no observer
there are only the buffer and the committer. What must not break: each call ends as theirs.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from cassq.catalog.queue_events import QueueEvents
from cassq.errors import CassqError, ClosedError
from cassq.popping.committer import Committer
from cassq.popping.consumer_line import Asker
from cassq.popping.delivery import Delivery
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.pop_future import PopFuture


class ObservedBuffer:
    """Hands out what the buffer does."""

    def __init__(self, buffer: DeliveryBuffer, events: QueueEvents) -> None:
        self._buffer = buffer
        self._events = events

    def get(self, count: int, deadline: float | None, asker: Asker | None = None) -> list[Delivery]:
        """See `DeliveryBuffer.get`."""
        begun = self._events.now()
        try:
            popped = self._buffer.get(count, deadline, asker)
        except CassqError as error:
            self._note_failure(begun, error)
            raise
        if popped:
            self._events.note_popped(begun, len(popped), oldest_ms(popped))
        return popped

    def get_soon(self, count: int, asker: Asker | None = None) -> PopFuture:
        """See `DeliveryBuffer.get_soon`."""
        begun = self._events.now()
        try:
            future = self._buffer.get_soon(count, asker)
        except CassqError as error:
            self._note_failure(begun, error)
            raise
        Future.add_done_callback(future, partial(self._note_end, begun))
        return future

    def _note_end(self, begun: float, future: "Future[list[Delivery]]") -> None:
        if future.cancelled():
            return
        # By the base class, which does not count as somebody who saw the error.
        if error := Future.exception(future):
            self._note_failure(begun, error)
        elif popped := Future.result(future):
            self._events.note_popped(begun, len(popped), oldest_ms(popped))

    def _note_failure(self, begun: float, error: BaseException) -> None:
        if not isinstance(error, ClosedError):
            self._events.note_popped(begun, 0, None, error)


class ObservedCommitter:
    """Commits as the committer that it is given."""

    def __init__(self, committer: Committer, events: QueueEvents) -> None:
        self._committer = committer
        self._events = events

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """See `Committer.commit`."""
        begun = self._events.now()
        try:
            self._committer.commit(deliveries)
        except BaseException as error:
            self._events.note_committed(begun, len(deliveries), error)
            raise
        self._events.note_committed(begun, len(deliveries))

    def commit_soon(self, delivery: Delivery) -> "Future[None]":
        """See `Committer.commit_soon`."""
        begun = self._events.now()
        future = self._committer.commit_soon(delivery)
        # By the base class: an error that only an observer saw is in the log, too.
        Future.add_done_callback(future, partial(self._note_end, begun))
        return future

    def _note_end(self, begun: float, future: "Future[None]") -> None:
        self._events.note_committed(begun, 1, Future.exception(future))


def oldest_ms(deliveries: Sequence[Delivery]) -> int | None:
    """Return when the oldest message was pushed, by the database's clock.

    Of a batch a pop has all that was left, except of the last one: so it is looked at once.
    """
    place, oldest = 0, None
    while place < len(deliveries):
        first = deliveries[place]
        batch_slice = first._batch_slice  # noqa: SLF001 - our own class, and a loop over thousands
        pushed_at_ms = batch_slice.batch.pushed_at_ms
        if pushed_at_ms and (oldest is None or pushed_at_ms < oldest):
            oldest = pushed_at_ms
        place += batch_slice.last - first.seq + 1
    return oldest
