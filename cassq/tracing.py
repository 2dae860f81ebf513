"""A tracer for OpenTelemetry: one trace from the push of a message to its end, across processes.

import cassq
from cassq.tracing import OpenTelemetryTracer

store = cassq.connect("sqlite:///orders.db", tracer=OpenTelemetryTracer())

Owns the names of spans and attributes, as the semantic conventions for messaging have them. They are still
"in development" there: `SCHEMA` says which version these are of. Needs `pip install 'cassq[tracing]'`. What
must not break: no error of a sampler or an exporter fails an operation, and nothing of a body is told.
"""

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context, attach, create_key, get_current, set_value
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cassq._version import VERSION
from cassq.errors import InvalidOptionError
from cassq.model.events import code_of
from cassq.model.ids import MessageId, shorten
from cassq.model.message import NO_HEADERS
from cassq.model.tracing import TRACEPARENT, PopSpan, PushSpan, Span, TracedMessage

_log = logging.getLogger("cassq.tracing")

#: The version of the conventions whose names these are.
SCHEMA = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
QUEUE = "messaging.destination.name"
CONSUMER = "messaging.client.id"
MESSAGE = "messaging.message.id"
SIZE = "messaging.message.body.size"
COUNT = "messaging.batch.message_count"
ERROR = "error.type"
ATTEMPT = "cassq.attempt"
ENDING = "cassq.ending"

#: The types of our operations, in the words of the conventions.
TYPES = {"push": "send", "pop": "receive", "process": "process", "commit": "settle"}

#: A pop or a commit of many links to the pushes of so many of them, and looks at so many for that.
LINKS_MAX = 32
LOOKS_MAX = 100

_FORMAT = TraceContextTextMapPropagator()

#: Of a context: the work on a message that it was made for.
_WORK = create_key("cassq-work")

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Nothing:
    """A span in place of one that could not be begun."""

    headers = NO_HEADERS

    def end(self, *_: object) -> None:
        """Tell nothing."""


def _harmless(default: Any) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:  # noqa: ANN401 - of any type
    """Return a decorator: an error is logged, and `default` returned in its place."""

    def decorate(call: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(call)
        def harmless(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return call(*args, **kwargs)
            except Exception:
                _log.exception("an operation is not traced")
                return default  # type: ignore[no-any-return]

        return harmless

    return decorate


class OpenTelemetryTracer:
    """Follows messages with spans: `push QUEUE`, `pop QUEUE`, `process QUEUE` and `commit QUEUE`.

    A message takes the context of its push along, in the headers `traceparent` and `tracestate`, unless it
    has such a header. `with delivery:`, a `cassq.Worker` and their twins for asyncio process it as a part of
    that trace: what the program traces meanwhile, and what it pushes, is below.

    Args:
        provider: makes the spans; None for the one that the program has set.
        has_exceptions: whether the span of the work on a message has the exception that it failed by, with
            its text and its traceback, which may show what the message has in it.

    Raises:
        InvalidOptionError: the provider is none.
    """

    def __init__(self, provider: TracerProvider | None = None, *, has_exceptions: bool = True) -> None:
        if provider is not None and not callable(getattr(provider, "get_tracer", None)):
            raise InvalidOptionError(
                f"provider={shorten(provider)} has no method get_tracer(): give a TracerProvider of "
                "OpenTelemetry, or None for the one that the program has set"
            )
        self._tracer = trace.get_tracer("cassq", VERSION, provider, SCHEMA)
        self._has_exceptions = has_exceptions

    @_harmless(_Nothing())
    def push(self, queue: str, size: int | None) -> PushSpan:
        """See `cassq.model.tracing.Tracer`."""
        span = self._begin("push", queue, SpanKind.PRODUCER)
        headers: dict[str, str] = {}
        _FORMAT.inject(headers, trace.set_span_in_context(span))
        if size is not None:
            span.set_attribute(SIZE, size)
        return _Push(span, headers, is_single=size is not None)

    @_harmless(_Nothing())
    def pop(self, queue: str, consumer: str) -> PopSpan:
        """See `cassq.model.tracing.Tracer`."""
        begin = functools.partial(
            self._begin, "pop", queue, SpanKind.CLIENT, _current(), start_time=time.time_ns()
        )
        return _Pop(begin, consumer)

    @_harmless(_Nothing())
    def process(self, queue: str, message: TracedMessage) -> Span:
        """See `cassq.model.tracing.Tracer`."""
        outside = _current()
        context, links = outside, []
        if pushed_by := _pushed_by(message):
            around = trace.get_current_span(outside).get_span_context()
            links = [Link(around)] if around.is_valid else []
            context = trace.set_span_in_context(trace.NonRecordingSpan(pushed_by), outside)
        span = self._begin("process", queue, SpanKind.CONSUMER, context, links=links)
        if span.is_recording():
            span.set_attribute(MESSAGE, str(message.message_id))
            span.set_attribute(SIZE, len(message.body))
            span.set_attribute(ATTEMPT, message.attempt)
        return _Work(span, message, outside, has_exceptions=self._has_exceptions)

    @_harmless(_Nothing())
    def commit(self, queue: str, consumer: str, messages: Sequence[TracedMessage]) -> Span:
        """See `cassq.model.tracing.Tracer`."""
        span = self._begin("commit", queue, SpanKind.CLIENT)
        _tell_messages(span, consumer, messages)
        return _Commit(span)

    def _begin(
        self,
        operation: str,
        queue: str,
        kind: SpanKind,
        context: Context | None = None,
        **how: Any,  # noqa: ANN401
    ) -> trace.Span:
        about = {SYSTEM: "cassq", OPERATION: operation, OPERATION_TYPE: TYPES[operation], QUEUE: queue}
        return self._tracer.start_span(f"{operation} {queue}", context or _current(), kind, about, **how)


class _Push:
    def __init__(self, span: trace.Span, headers: Mapping[str, str], *, is_single: bool) -> None:
        self._span = span
        self._is_single = is_single
        self.headers = headers

    @_harmless(None)
    def end(self, ids: Sequence[MessageId], error: BaseException | None = None) -> None:
        if not self._is_single:
            self._span.set_attribute(COUNT, len(ids))
        elif ids:
            self._span.set_attribute(MESSAGE, str(ids[0]))
        _end(self._span, error)


class _Pop:
    def __init__(self, begin: Callable[[], trace.Span], consumer: str) -> None:
        self._begin = begin
        self._consumer = consumer

    @_harmless(None)
    def end(self, messages: Sequence[TracedMessage], error: BaseException | None = None) -> None:
        span = self._begin()
        _tell_messages(span, self._consumer, messages)
        _end(span, error)


class _Commit:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @_harmless(None)
    def end(self, error: BaseException | None = None) -> None:
        _end(self._span, error)


class _Work:
    """The work on a message. Its context is that of the thread or task that began it, until it ends.

    Blocks may be left in another order, thread or task than they were entered in. So what is left is told by
    looking, and a context whose work has ended gives way to the one around it.
    """

    def __init__(
        self, span: trace.Span, message: TracedMessage, outside: Context, *, has_exceptions: bool
    ) -> None:
        self.span = span
        self._message = message
        self._has_exceptions = has_exceptions
        self.outside = outside
        self.has_ended = False
        attach(set_value(_WORK, self, trace.set_span_in_context(span, outside)))

    @_harmless(None)
    def end(self, error: BaseException | None = None) -> None:
        has_ended, self.has_ended = self.has_ended, True
        _current()
        if has_ended:
            return
        try:
            self.span.set_attribute(ENDING, self._message.ending or "none")
            if error and self._has_exceptions:
                self.span.record_exception(error)
        finally:  # an exception that cannot be shown is one all the same
            _end(self.span, error)


def _current() -> Context:
    """Return the context of this thread or task, once those whose work has ended were left."""
    context = get_current()
    work = context.get(_WORK)
    if not (isinstance(work, _Work) and work.has_ended):
        return context
    if trace.get_current_span(context) is not work.span:
        return context  # the program's own span within: that is left by who entered it
    while isinstance(work, _Work) and work.has_ended:
        context = work.outside
        work = context.get(_WORK)
    attach(context)
    return context


def _end(span: trace.Span, error: BaseException | None) -> None:
    if code := code_of(error):
        # Without its text, which may show what the message has in it.
        span.set_attribute(ERROR, code)
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def _tell_messages(span: trace.Span, consumer: str, messages: Sequence[TracedMessage]) -> None:
    if not span.is_recording():
        return
    span.set_attribute(CONSUMER, consumer)
    if len(messages) == 1:
        span.set_attribute(MESSAGE, str(messages[0].message_id))
    else:
        span.set_attribute(COUNT, len(messages))
    for pushed_by in _pushes_of(messages):
        span.add_link(pushed_by)


def _pushes_of(messages: Sequence[TracedMessage]) -> Iterator[SpanContext]:
    """Yield the first few pushes that messages come from."""
    # Those of one `push_many` have one text.
    different = {each.headers.get(TRACEPARENT, ""): each for each in messages[:LOOKS_MAX]}
    for message in list(different.values())[:LINKS_MAX]:
        if pushed_by := _pushed_by(message):
            yield pushed_by


def _pushed_by(message: TracedMessage) -> SpanContext | None:
    """Return the push that a message comes from, where its headers name one."""
    headers = message.headers
    if TRACEPARENT not in headers:
        return None
    found = trace.get_current_span(_FORMAT.extract(headers, Context())).get_span_context()
    return found if found.is_valid else None
