"""The requests that wait for a lane.

Owns how many messages wait, who waits for room, and what travels together. Refuses to know how messages are
stored. What must not break: a request leaves it once, to a lane or because its time is up.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from cassq.errors import ClosedError, OverloadedError, StorageUnavailableError
from cassq.limits import BUFFER_BYTES_MAX, BUFFER_MESSAGES_MAX
from cassq.model.label import Label
from cassq.model.message import Headers, size_of
from cassq.pushing.push_request import PushRequest, Singles
from cassq.pushing.push_result import PushFuture, PushLatch
from cassq.pushing.request_lines import RequestLines
from cassq.runtime.background_thread import call_beside
from cassq.runtime.clock import Clock
from cassq.runtime.reentry import check_may_wait, refusal

#: Single messages travel in one request when their callers' patience ends within this of each other.
SAME_PATIENCE_S = 0.01


class PushBuffer:
    """The requests that wait for a lane; the most urgent and the oldest go in turn.

    Callers wait here when the lanes cannot keep up, so that a fast caller cannot fill the memory.

    Args:
        messages_max, bytes_max: what one batch carries at most.
        lanes: how many take from it, numbered from 0 on.
    """

    def __init__(self, clock: Clock, messages_max: int, bytes_max: int, lanes: int = 1) -> None:
        self._clock = clock
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        # By label the newest request of each priority and type, as long as single messages may join it.
        self._singles: dict[Label, Singles] = {}
        # The lock itself is several times faster to enter than the condition around it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Tells a call that interrupted another one of its own thread: the lock alone would let it in.
        self.is_inside: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        self._requests = RequestLines(lanes)
        # What such calls brought; who holds the lock next takes it in.
        self._aside: deque[tuple[bytes, Headers, float, PushFuture]] = deque()
        self._messages = 0
        self._bytes = 0
        # Of the messages, those whose callers wait in `push`; and how many of them a lane waits for, if any.
        self._callers = 0
        self._wanted = 0
        # How many lanes wait for something to do.
        self._idle = 0
        self._is_closed = False

    def put(self, request: PushRequest) -> None:
        """Append a request, waiting until there is room for it.

        Raises:
            ClosedError: the pusher is closed.
            StorageUnavailableError: no room came free before the request's deadline; nothing was sent.
        """
        if self.is_inside():
            raise refusal("push_many()")
        with self._lock:
            self._wait_for_room(request.deadline)
            self._end_joining(request.label)
            self._messages += request.count
            self._bytes += request.size
            self._append(request)
            if self._wanted:
                self._changed.notify_all()

    def put_one(self, body: bytes, headers: Headers, deadline: float, end: PushFuture | PushLatch) -> bool:
        """Append one message, to a request of such messages if one waits; raises as `put`.

        Args:
            end: who hears of this one message.

        Returns: False when the call interrupted another one of its thread, which has the lock: then the
            message stands aside, and another thread has to call `take_in`.

        Raises:
            UsageError: such a call would wait for the end of its message.
            OverloadedError: there is no room, and its caller does not wait for it.
        """
        if self.is_inside():
            self._put_aside(body, headers, deadline, end)
            return False
        size = size_of(body, headers)
        with self._lock:
            self._wait_for_room(deadline, is_patient=end.is_patient)
            self._messages += 1
            self._bytes += size
            label = end.label.of_batch
            singles = self._singles.get(label)
            if singles is not None and self._may_join(singles, size, deadline):
                singles.add(body, headers, size, end)
            else:
                singles = Singles(deadline, label)
                singles.add(body, headers, size, end)
                self._append(singles)
                self._end_joining(label)
                self._singles[label] = singles
            if end.__class__ is PushLatch:
                self._callers += 1
            if self._wanted and self._is_gathered():
                self._changed.notify_all()
        return True

    def _put_aside(self, body: bytes, headers: Headers, deadline: float, end: PushFuture | PushLatch) -> None:
        if not isinstance(end, PushFuture):
            raise refusal("push()")
        if self._is_closed:
            raise _closed()
        self._aside.append((body, headers, deadline, end))

    def take_in(self) -> None:
        """Take in what stands aside; a lane that rests hears of it."""
        with self._lock:
            while self._aside:
                body, headers, deadline, end = self._aside.popleft()
                size = size_of(body, headers)
                singles = Singles(deadline, end.label.of_batch)
                singles.add(body, headers, size, end)
                self._messages += 1
                self._bytes += size
                self._end_joining(singles.label)
                self._append(singles)

    def _wait_for_room(self, deadline: float, *, is_patient: bool = True) -> None:
        while not self._is_closed and self._is_full():
            if not is_patient:
                raise OverloadedError(
                    f"{self._messages} messages of {self._bytes} bytes are on their way: not pushed; wait "
                    "for some of their futures first"
                )
            check_may_wait("a push that waits for room")
            left = deadline - self._clock.now()
            if left <= 0:
                raise StorageUnavailableError(
                    f"{self._messages} messages wait to be stored and the database takes none: not pushed"
                )
            self._clock.wait(self._changed, left)
        if self._is_closed:
            raise _closed()

    def _may_join(self, request: PushRequest, size: int, deadline: float) -> bool:
        return (
            request.count < self._messages_max
            and request.size + size <= self._bytes_max
            and abs(deadline - request.deadline) <= SAME_PATIENCE_S
        )

    def _end_joining(self, label: Label) -> None:
        """Let no more messages join a request of this priority and type."""
        kind = label.of_pipe
        for each in [each for each in self._singles if each.of_pipe == kind]:
            del self._singles[each]

    def _append(self, request: PushRequest) -> None:
        self._requests.append(request)
        if self._idle:
            self._changed.notify_all()

    def gather(self, callers: int, wait_s: float) -> int | None:
        """Wait until so many more callers of `push` have come, at most `wait_s`.

        Returns: how many came; None when something else came, that is not to wait for them.
        """
        with self._lock:
            before = self._callers
            self._wanted = before + callers
            deadline = self._clock.now() + wait_s
            while not self._is_gathered() and (left := deadline - self._clock.now()) > 0:
                self._clock.wait(self._changed, left)
            self._wanted = 0
            return self._callers - before if self._callers == self._messages else None

    def _is_gathered(self) -> bool:
        return (
            self._callers >= self._wanted
            or self._callers < self._messages
            or self._messages >= self._messages_max
            or self._is_closed
        )

    def wait(self, wait_s: float, lane: int = 0) -> None:
        """Wait until a request is here for a lane, or nothing more can come, at most about `wait_s`."""
        with self._lock:
            is_over = self._is_closed and not self._requests
            if not (is_over or self._aside or self._requests.has_for(lane)):
                self._idle += 1
                try:
                    self._clock.wait(self._changed, wait_s)
                finally:
                    self._idle -= 1

    def bound(self, messages_max: int, bytes_max: int) -> None:
        """Give batches other bounds from now on."""
        self._messages_max, self._bytes_max = messages_max, bytes_max

    def get(self, lane: int = 0) -> list[PushRequest]:
        """Take requests for one batch of a lane: at least one if any is here, and more alike that fit."""
        with suppress(IndexError):  # many small batches may take longer than their callers have
            if self._requests.has_late(self._clock.now()):
                self.expire()
        with self._lock:
            if self._aside:
                self.take_in()
            taken: list[PushRequest] = []
            messages = size = callers = 0
            line = self._requests.take_turn(lane)
            while line:
                request = line[0]
                if taken and (
                    messages + request.count > self._messages_max
                    or size + request.size > self._bytes_max
                    or request.label != taken[0].label
                ):
                    break
                taken.append(line.popleft())
                messages += request.count
                size += request.size
                callers += request.callers
            if taken:
                self._messages -= messages
                self._bytes -= size
                self._callers -= callers
                if not line:
                    self._end_joining(taken[0].label)
                if not self._requests:
                    # A caller who was torn away may have counted, and put nothing in.
                    self._messages = self._bytes = self._callers = 0
                self._changed.notify_all()
            for request in taken:
                request.seal()
            return taken

    def expire(self) -> None:
        """Fail the requests whose callers have waited long enough; they were never sent."""
        with self._lock:
            if self._aside:
                self.take_in()
            now = self._clock.now()
            late = self._requests.cut(lambda request: request.deadline <= now)
            if not late:
                return
            self._singles.clear()
            self._messages -= sum(request.count for request in late)
            self._bytes -= sum(request.size for request in late)
            self._callers -= sum(request.callers for request in late)
            self._changed.notify_all()
        for request in late:
            request.seal()
            request.fail(StorageUnavailableError("the database did not answer in time: not pushed"))

    def expire_at(self, deadline: float) -> None:
        """Fail what nobody got to in time, though the lanes are stuck in a call."""
        if self._clock.now() >= deadline:
            self.expire_beside()

    def expire_beside(self) -> None:
        """As `expire`, on a thread of its own: Ctrl-C would tear this one away before all callers know."""
        call_beside("cassq-expire", self.expire)

    def close(self) -> None:
        """Take no more requests; those inside can still be got."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more."""
        return self._is_closed

    @property
    def messages(self) -> int:
        """How many messages wait in it."""
        return self._messages

    @property
    def is_finished(self) -> bool:
        """Whether it is closed and empty."""
        with self._lock:
            return self._is_closed and not self._requests and not self._aside

    def _is_full(self) -> bool:
        is_full = self._messages >= BUFFER_MESSAGES_MAX or self._bytes >= BUFFER_BYTES_MAX
        return is_full and bool(self._requests)


def _closed() -> ClosedError:
    return ClosedError("the queue is closed: nothing was pushed; open the store again to push")
