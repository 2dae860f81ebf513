"""What follows a message from its push to its end, through all processes that have to do with it.

Owns which operations are followed, and what is handed over of each. Nothing of a body is, and of the headers
only what the tracer itself put there.
"""

from collections.abc import Sequence
from typing import Protocol

from cassq.model.ids import MessageId
from cassq.model.message import Headers

#: What a message takes along, in the form of the W3C's Trace Context.
TRACEPARENT = "traceparent"
TRACE_HEADERS = frozenset({TRACEPARENT, "tracestate"})


class TracedMessage(Protocol):
    """A message in a consumer's hands, as far as a tracer looks at it: `cassq.Delivery`."""

    @property
    def body(self) -> bytes:
        """Of which its length is told."""
        ...

    @property
    def headers(self) -> Headers:
        """Which name the push that it came from."""
        ...

    @property
    def message_id(self) -> MessageId:
        """Its public id."""
        ...

    @property
    def attempt(self) -> int:
        """Which delivery of it this is, from 1."""
        ...

    @property
    def ending(self) -> str | None:
        """How it has ended: "committed", "rolled back", "rejected" or "given back"; None: not yet."""
        ...


class Span(Protocol):
    """An operation that has begun."""

    def end(self, error: BaseException | None = None) -> None:
        """Tell that it has ended, and how. May be called again: what has ended is no more what goes on."""
        ...


class PushSpan(Protocol):
    """A push that has begun.

    Attributes:
        headers: what its messages take along, so that whoever processes them can name it.
    """

    headers: Headers

    def end(self, ids: Sequence[MessageId], error: BaseException | None = None) -> None:
        """Tell that it has ended, with the ids of what it stored."""
        ...


class PopSpan(Protocol):
    """A pop that has begun; one that finds nothing is never told."""

    def end(self, messages: Sequence[TracedMessage], error: BaseException | None = None) -> None:
        """Tell that it has ended, and with which messages."""
        ...


class Tracer(Protocol):
    """What `cassq.connect(url, tracer=…)` takes: `cassq.tracing.OpenTelemetryTracer`.

    Its methods are called in the threads and tasks of the program, before the operation begins. They must
    not raise, and neither must those of the spans: the operation would fail.
    """

    def push(self, queue: str, size: int | None) -> PushSpan:
        """Begin a push.

        Args:
            size: the bytes of the body; None of `push_many`.
        """
        ...

    def pop(self, queue: str, consumer: str) -> PopSpan:
        """Begin a pop, as the consumer of this name."""
        ...

    def process(self, queue: str, message: TracedMessage) -> Span:
        """Begin the work on a message; until its end it is what its thread or task is at."""
        ...

    def commit(self, queue: str, consumer: str, messages: Sequence[TracedMessage]) -> Span:
        """Begin to commit messages."""
        ...
