"""What is published into one partition by one process: a buffer, and a thread that links what is in it.

Owns who is linked together: whatever came in while the link before was on its way. What must not break: a
caller hears "published" only after the link is known to be applied, and always hears something.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, islice

from cassq.errors import (
    CassqError,
    ClosedError,
    OutcomeUnknownError,
    StorageUnavailableError,
    UnavailableError,
    UsageError,
)
from cassq.limits import BUFFER_BYTES_MAX, BUFFER_MESSAGES_MAX
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.clock import rest
from cassq.runtime.deadline import Deadline
from cassq.runtime.reentry import noted
from cassq.topics.bell import Bell
from cassq.topics.publish_request import PublishRequest, in_batches, is_large
from cassq.topics.shared_end import SharedEnd
from cassq.topics.topic_context import TopicContext

_log = logging.getLogger("cassq.publisher")

#: So many batches are linked at once: on Cassandra they are written side by side.
LINK_BATCHES_MAX = 8

#: So long a scribe settles what became of its link.
TEND_S = 5.0

#: So long rests who could not reach the database.
RETRY_S = 0.1


class PartitionLane:
    """Publishes into one partition; shared by all threads of a process.

    Attributes:
        thread: the one that links.
    """

    def __init__(self, context: TopicContext, partition: int, bell: Bell) -> None:
        self._context = context
        self._clock = context.clock
        self._bell = bell
        self.thread = BackgroundThread(f"cassq-publish-{context.name}")
        self._end = SharedEnd(context, partition, self.thread)
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[PublishRequest] = deque()
        self._messages = 0
        self._bytes = 0
        self._is_publishing = self._is_closed = False

    def put(self, request: PublishRequest) -> None:
        """Take a request in; waits while the buffer is full, until the request's deadline.

        Raises:
            ClosedError: the topic was closed.
            StorageUnavailableError: the buffer stayed full.
        """
        with noted(), self._changed:
            while self._is_full and not self.thread.is_current and not self._is_closed:
                left_s = request.deadline - self._clock.now()
                if left_s <= 0:
                    raise StorageUnavailableError(
                        f"topic {self._context.name!r}: not published: the buffer stayed full, as the "
                        "database takes in less than is published, or is out of reach"
                    )
                self._clock.wait(self._changed, left_s)
            if self._is_closed:
                raise closed_error(self._context.name)
            self._messages += request.count
            self._bytes += request.size
            self._waiting.append(request)
            is_called = self._is_publishing
        if not is_called:  # Ctrl-C before this call leaves it to the next request, or to the closing
            self.thread.submit(self._publish_all)

    @property
    def _is_full(self) -> bool:
        return self._messages >= BUFFER_MESSAGES_MAX or self._bytes >= BUFFER_BYTES_MAX

    def close(self) -> None:
        """Publish what is in the buffer, and end; who puts something later hears that it is closed."""
        with noted(), self._changed:
            self._is_closed = True
            self._changed.notify_all()
            is_left = bool(self._waiting)
        if is_left:
            self.thread.submit(self._publish_all)
        self.thread.shutdown()
        self._end.close()

    def _publish_all(self) -> None:
        while True:
            if requests := self._take():
                self._publish([each for each in requests if each.begin()])
            elif self._is_publishing:
                self._tend()
            else:
                return

    def _tend(self) -> None:
        """Link what others offer, while this process has nothing to publish."""
        until = self._clock.now() + TEND_S
        try:
            with Deadline(until):
                if self._end.tend((), until):
                    self._bell.ring()
        except (UnavailableError, OutcomeUnknownError, UsageError) as error:
            _log.info("topic %s: others link what is offered: %s", self._context.name, error)
        except Exception:
            _log.exception("linking what others offer ended in an error that nobody expected")

    def _take(self) -> list[PublishRequest]:
        """Return what is linked together next."""
        with noted(), self._changed:
            parts = list(islice(in_batches(self._waiting), LINK_BATCHES_MAX))
            # What is larger than a batch takes longer, and is refused more often: it goes alone.
            alone = next((place for place, part in enumerate(parts) if is_large(part)), len(parts))
            requests = list(chain.from_iterable(parts[: max(1, alone)]))
            self._is_publishing = bool(requests) or (self._end.is_scribe and not self._is_closed)
            for each in requests:
                self._waiting.popleft()
                self._messages -= each.count
                self._bytes -= each.size
            self._changed.notify_all()
            return requests

    def _publish(self, requests: list[PublishRequest]) -> None:
        until = max((each.deadline for each in requests), default=0.0)
        while left := [each for each in requests if not each.is_over]:
            try:
                with Deadline(until):
                    self._context.known.refresh()
                    self._end.publish(left, until, partial(self._tell_late, left))
                self._bell.ring()
            except StorageUnavailableError as error:
                self._fail(self._late(left), error)
                self._tell_late(())
                rest(self._clock, RETRY_S)
            except OutcomeUnknownError as error:
                told = f"topic {self._context.name!r}: it may be published, and may not be: {error}"
                self._fail(left, OutcomeUnknownError(told))
            except CassqError as error:
                self._fail(left, error)
            except Exception as error:
                _log.exception("a publish ended in an error that nobody expected")
                self._fail(left, OutcomeUnknownError(f"it may be published, and may not be: {error!r}"))

    def _tell_late(self, sent: Sequence[PublishRequest], is_unknown: bool = False) -> None:  # noqa: FBT001, FBT002
        """Tell those that nobody waits for any more, while what was sent is settled: it, and what waits."""
        name = f"topic {self._context.name!r}"
        unknown = OutcomeUnknownError(f"{name}: no answer in time: it may be published")
        refused = StorageUnavailableError(f"{name}: not published in time: others were first")
        self._fail(self._late(sent), unknown if is_unknown else refused)
        with noted(), self._changed:
            late = [each for each in self._late(self._waiting) if each.begin()]
        self._fail(late, refused)

    def _late(self, requests: Iterable[PublishRequest]) -> list[PublishRequest]:
        now = self._clock.now()
        return [each for each in requests if each.deadline <= now and not each.is_over]

    @staticmethod
    def _fail(requests: list[PublishRequest], error: CassqError) -> None:
        for each in requests:
            if not each.is_over:
                each.fail(error)


def closed_error(topic: str) -> ClosedError:
    """Return the error for a publish into a topic that was closed."""
    return ClosedError(f"topic {topic!r} is closed: open it anew with store.topic()")
