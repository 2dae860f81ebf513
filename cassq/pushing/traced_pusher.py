"""A pusher whose calls a tracer follows.

Owns what messages take along of the call that pushed them. Decides nothing: where there is no tracer there is
only the pusher. What must not break: each call ends as the pusher's own, and takes the same messages.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any

from cassq.errors import UsageError
from cassq.model.ids import MessageId
from cassq.model.label import UNLABELLED, Label
from cassq.model.message import Headers, MessageIds, check_headers
from cassq.model.tracing import TRACE_HEADERS, TRACEPARENT, PushSpan, Tracer
from cassq.pushing.observed_pusher import ObservedPusher
from cassq.pushing.pusher import Pusher

#: Of a header that names a push, the version and the trace: "00-", and 32 digits.
_TRACE_ID_ENDS = 35


class TracedPusher:
    """Pushes as the pusher that it is given."""

    def __init__(self, pusher: Pusher | ObservedPusher, queue: str, tracer: Tracer) -> None:
        self._pusher = pusher
        self._queue = queue
        self._tracer = tracer
        self.close = pusher.close
        # What was stored before has the headers of the push that stored it.
        self.push_again = pusher.push_again

    def push(
        self, body: bytes, headers: Headers | None, timeout: float | timedelta, label: Label = UNLABELLED
    ) -> MessageId:
        """See `Queue.push`."""
        span = self._begin(body)
        try:
            message_id = self._pusher.push(body, joined(headers, span.headers), timeout, label)
        except BaseException as error:
            span.end((), error)
            raise
        span.end((message_id,))
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
        span = self._begin(body)
        own = joined(headers, span.headers)
        try:
            future = self._pusher.push_soon(body, own, timeout, is_patient=is_patient, label=label)
        except BaseException as error:
            span.end((), error)
            raise
        future.add_done_callback(partial(_end, span))
        return future

    def push_many(
        self,
        bodies: Iterable[bytes | tuple[bytes, Headers]],
        progress: Callable[[int], None] | None,
        timeout: float | timedelta,
        label: Label = UNLABELLED,
    ) -> MessageIds:
        """See `Queue.push_many`."""
        span = self._tracer.push(self._queue, None)
        try:
            ids = self._pusher.push_many(_with_headers(bodies, span.headers), progress, timeout, label)
        except BaseException as error:
            span.end((), error)
            raise
        span.end(ids)
        return ids

    def _begin(self, body: object) -> PushSpan:
        return self._tracer.push(self._queue, len(body) if isinstance(body, bytes | bytearray) else None)


def _end(span: PushSpan, future: "Future[MessageId]") -> None:
    error = future.exception()
    span.end(() if error else (future.result(),), error)


def _with_headers(
    messages: Iterable[bytes | tuple[bytes, Headers]], more: Headers
) -> Iterable[bytes | tuple[bytes, Headers]]:
    """Return messages with more headers; what is no message is left to be refused in its own words."""
    if not more:
        return messages
    try:
        each_of = iter(messages)
    except Exception:  # to be raised again, and told, by who pushes
        return messages
    return map(partial(_with_more, more), each_of)


def _with_more(more: Headers, message: bytes | tuple[bytes, Headers]) -> bytes | tuple[bytes, Headers]:
    if not isinstance(message, tuple):
        return message, more
    return (message[0], joined(message[1], more)) if len(message) == 2 else message


def joined(headers: Any, more: Headers) -> Any:  # noqa: ANN401 - what is none is handed on
    """Return headers with the names of a trace, unless the message is of another one, or has no room."""
    if not more:
        return headers
    if headers is None or headers == {}:
        return more
    if not isinstance(headers, Mapping):
        return headers
    parent = more.get(TRACEPARENT, "")
    # What is handed on from a message of the same trace names the push before; this one is below it.
    is_same = str(headers.get(TRACEPARENT, ""))[:_TRACE_ID_ENDS] == parent[:_TRACE_ID_ENDS]
    if not (is_same or headers.keys().isdisjoint(TRACE_HEADERS)):
        return headers
    others = {name: text for name, text in headers.items() if name not in TRACE_HEADERS}
    for some in (more, {TRACEPARENT: parent}):  # the shorter one may find room
        try:
            return check_headers({**others, **some})
        except UsageError:  # or they break a rule themselves: the pusher says which
            pass
    return headers
