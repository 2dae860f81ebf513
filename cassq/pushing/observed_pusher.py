"""A pusher whose calls an observer is told of.

Owns what one call stored, and how long that took. Decides nothing: where there is no observer there is only
the pusher. What must not break: each call ends as the pusher's own.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial

from cassq.catalog.queue_events import QueueEvents
from cassq.model.ids import MessageId
from cassq.model.label import UNLABELLED, Label
from cassq.model.message import NO_HEADERS, Headers, MessageIds, size_of
from cassq.pushing.push_request import PushRequest
from cassq.pushing.push_result import PushFuture
from cassq.pushing.pusher import Pusher


class ObservedPusher:
    """Pushes as the pusher that it is given."""

    def __init__(self, pusher: Pusher, events: QueueEvents) -> None:
        self._pusher = pusher
        self._events = events
        self.close = pusher.close

    def push(
        self, body: bytes, headers: Headers | None, timeout: float | timedelta, label: Label = UNLABELLED
    ) -> MessageId:
        """See `Queue.push`."""
        begun = self._events.now()
        try:
            message_id = self._pusher.push(body, headers, timeout, label)
        except BaseException as error:
            self._events.note_pushed(begun, 0, 0, error)
            raise
        self._events.note_pushed(begun, 1, size_of(body, headers or NO_HEADERS))
        return message_id

    def push_soon(
        self,
        body: bytes,
        headers: Headers | None,
        timeout: float | timedelta,
        *,
        is_patient: bool = True,
        label: Label = UNLABELLED,
    ) -> "Future[MessageId]":
        """See `Queue.push_soon`."""
        begun = self._events.now()
        try:
            future = self._pusher.push_soon(body, headers, timeout, is_patient=is_patient, label=label)
        except BaseException as error:
            self._events.note_pushed(begun, 0, 0, error)
            raise
        size = size_of(body, headers or NO_HEADERS)
        future.add_done_callback(partial(self._note_end, begun, size))
        return future

    def _note_end(self, begun: float, size: int, future: "Future[MessageId]") -> None:
        error = future.exception()
        self._events.note_pushed(begun, int(error is None), 0 if error else size, error)

    def push_many(
        self,
        bodies: Iterable[bytes | tuple[bytes, Headers]],
        progress: Callable[[int], None] | None,
        timeout: float | timedelta,
        label: Label = UNLABELLED,
    ) -> MessageIds:
        """See `Queue.push_many`."""
        begun = self._events.now()
        parts: list[PushRequest] = []
        error: BaseException | None = None
        try:
            return self._pusher.push_many(bodies, progress, timeout, label, parts.append)
        except BaseException as raised:
            error = raised
            raise
        finally:
            size = sum(part.size for part in parts if part.ids)
            self._events.note_pushed(begun, sum(len(part.ids) for part in parts), size, error)

    def push_again(self, messages: Sequence[tuple[bytes, Headers, Label]]) -> Sequence[PushFuture]:
        """See `Pusher.push_again`."""
        begun = self._events.now()
        try:
            futures = self._pusher.push_again(messages)
        except BaseException as error:
            self._events.note_pushed(begun, 0, 0, error)
            raise
        errors = [future.exception() for future in futures]
        sizes = [size_of(*each[:2]) for each, error in zip(messages, errors, strict=True) if not error]
        self._events.note_pushed(begun, len(sizes), sum(sizes), next(filter(None, errors), None))
        return futures
