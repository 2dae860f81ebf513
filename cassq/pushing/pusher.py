"""Pushes messages into a queue: takes what callers bring, and hands it to the lanes in batches.

Owns the callers' side of a push (checks, futures, deadlines, chunks) and the threads that run the lanes.
What must not break: a caller hears "stored" only after the database acknowledged, and always hears
something.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from datetime import timedelta
from functools import partial

from cassq.catalog.queue_context import QueueContext
from cassq.errors import BodyTooLargeError, CassqError, InvalidOptionError, OutcomeUnknownError, UsageError
from cassq.model.arguments import to_seconds
from cassq.model.ids import MessageId, Source, new_token
from cassq.model.label import UNLABELLED, Label
from cassq.model.message import Headers, MessageIds, check_body, check_headers
from cassq.model.schedule import class_left
from cassq.model.settings import QueueSettings
from cassq.pushing.batch_cutter import BatchCutter, bounds_of
from cassq.pushing.callers import CALL_S
from cassq.pushing.due_clock import DueClock
from cassq.pushing.lane import Lane
from cassq.pushing.lane_set import LaneSet
from cassq.pushing.linger import Linger
from cassq.pushing.popper_waker import PopperWaker
from cassq.pushing.push_buffer import PushBuffer
from cassq.pushing.push_request import PushRequest
from cassq.pushing.push_result import PushFuture, PushLatch, resolve
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.deadline import Deadline
from cassq.runtime.fork_guard import process_name
from cassq.runtime.reentry import check_may_wait, noted, refusal

_log = logging.getLogger("cassq.pusher")

#: How long a push may take by default.
PUSH_TIMEOUT = timedelta(seconds=30)

#: So long at most `push_many` waits for a request before it looks again whether its time is up.
LANDING_S = 3600.0

#: How many requests of one `push_many` are on their way at once.
PARCELS_IN_FLIGHT = 4


class Pusher:
    """Pushes into one queue; shared by all threads of a process.

    Args:
        due_clock: the clock of the queue's database.
        check_open: raises `QueueNotFoundError` when the queue was deleted; called before each write.
    """

    def __init__(
        self,
        context: QueueContext,
        due_clock: DueClock,
        check_open: Callable[[], None] = lambda: None,
    ) -> None:
        self._due_clock = due_clock
        self._record = context.record
        self._queue = context.queue
        self._clock = context.clock
        self.check_open = check_open
        self._cutter = BatchCutter(self._settings, bounds_of)
        width = context.settings.push_width  # once: it may be altered
        self._buffer = PushBuffer(self._clock, *bounds_of(context.settings), width)
        self._context = context
        self._name = f"{process_name()}-{str(new_token())[:8]}"  # no process ever has it again
        # What need not hold up a batch: opening the next pipe, waking poppers.
        self._beside = BackgroundThread(f"cassq-beside-{self._queue}")
        self._waker = PopperWaker(context, self._beside)
        self._lock = threading.RLock()  # of what stands below it
        self._left_behind = 0
        self._written: dict[int, list[PushRequest]] = {}
        self._lanes = [LaneSet(partial(self._make_lane, number), self._clock) for number in range(width)]
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"cassq-push-{self._queue}", daemon=True)
            for number in range(len(self._lanes))
        ]
        for thread in self._threads:
            thread.start()

    def push(self, body: bytes, headers: object, timeout: float | timedelta, label: Label) -> MessageId:
        """Store one message; see `Queue.push`."""
        self._check_may_wait("push()")
        latch = PushLatch(label)
        deadline = self._put_one(body, headers, timeout, latch)
        return latch.result(partial(self._buffer.expire_at, deadline))

    def push_again(self, messages: Sequence[tuple[bytes, Headers, Label]]) -> list[PushFuture]:
        """Store what was stored before, though it may break a younger rule; return ended futures."""
        self._check_may_wait("put_back()")
        deadline = self._clock.now() + to_seconds(PUSH_TIMEOUT)
        futures: list[PushFuture] = []
        for body, headers, label in messages:
            futures.append(PushFuture(self._buffer.is_inside))
            futures[-1].label = label
            try:
                self._buffer.put_one(body, headers, deadline, futures[-1])
            except CassqError as error:  # those before it are on their way
                futures[-1].set_exception(error)
        for future in futures:
            with suppress(TimeoutError):
                future.exception(min(max(0.0, deadline - self._clock.now()), LANDING_S))
            self._buffer.expire_at(deadline)
            future.exception()
        return futures

    def push_soon(
        self,
        body: bytes,
        headers: object,
        timeout: float | timedelta,
        *,
        is_patient: bool = True,
        label: Label = UNLABELLED,
    ) -> "Future[MessageId]":
        """Store one message soon; see `Queue.push_soon`."""
        future = PushFuture(self._buffer.is_inside)
        if label is not UNLABELLED:
            future.label = label
        if not is_patient:
            future.is_patient = False
        self._put_one(body, headers, timeout, future)
        return future

    def push_many(
        self,
        bodies: Iterable[bytes | tuple[bytes, Headers]],
        progress: Callable[[int], None] | None,
        timeout: float | timedelta,
        label: Label = UNLABELLED,
        on_part: Callable[[PushRequest], None] | None = None,
    ) -> MessageIds:
        """Store many messages; see `Queue.push_many`. What is sent together is told to `on_part`."""
        self._check_may_wait("push_many()")
        ids = MessageIds()
        flying: deque[Future[MessageIds]] = deque()
        deadlines: deque[float] = deque()

        def land() -> None:
            with noted():
                with suppress(TimeoutError):
                    flying[0].exception(min(max(0.0, deadlines[0] - self._clock.now()), LANDING_S))
                self._buffer.expire_at(deadlines.popleft())
                ids.extend(flying.popleft().result())
            if progress:
                progress(len(ids))

        try:
            for chunk, headers in self._cutter.cut(bodies):
                future: Future[MessageIds] = Future()
                deadline = self._clock.now() + to_seconds(timeout)
                request = PushRequest(chunk, headers, deadline, partial(resolve, future))
                request.label = label.of_batch
                request.dues = (label.due_ms,) * request.count if label.due_class else ()
                request.keys = (label.key,) * request.count if label.key else ()
                self._buffer.put(request)
                if on_part:
                    on_part(request)
                flying.append(future)
                deadlines.append(deadline)
                if len(flying) >= PARCELS_IN_FLIGHT:
                    land()
            while flying:
                land()
        except BaseException as error:
            # What is on its way ends first: nothing of this call is stored after it raised.
            with noted():
                wait_for(flying, max(0.0, min(max(deadlines, default=0.0) - self._clock.now(), LANDING_S)))
                self._buffer.expire_beside()
                wait_for(flying)
            stored = len(ids) + sum(len(future.result()) for future in flying if not future.exception())
            told = f"{stored} of the messages are stored"
            is_unknown = any(isinstance(future.exception(), OutcomeUnknownError) for future in flying)
            is_outage = isinstance(error, CassqError) and not isinstance(error, UsageError)
            if is_outage and (stored or is_unknown):
                raise OutcomeUnknownError(f"at least {told}, others are not: {error}") from error
            error.add_note(told)
            raise
        return ids

    def close(self, timeout: timedelta = PUSH_TIMEOUT) -> int:
        """Store what is in the buffer, seal the pipes and end; waits at most `timeout`.

        Returns: how many messages were not stored until then, or are not known to be.
        """
        self._buffer.close()
        deadline = self._clock.now() + timeout.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock.now()))
        for lanes in self._lanes:
            lanes.stop_waiting()
        for thread in self._threads:
            thread.join(timeout.total_seconds())
        self._beside.shutdown()
        with self._lock:  # with what a lane waits for, in a call that does not end
            left = self._left_behind + self._buffer.messages
            left += sum(map(_count_left, self._written.values()))
        if left:
            _log.warning(
                "queue %s: closed with %d messages that are not known to be stored", self._queue, left
            )
        return left

    def latest_ms(self) -> int:
        """Return what the database's clock shows at the most; 0 where nothing was pushed with a due time."""
        return self._due_clock.latest_ms()

    def note_pushed(self, count: int, kind: str) -> None:
        """Hear that so many messages of a type became durable."""
        self._waker.note_pushed(count, kind)

    def expire(self) -> None:
        """Fail what waits too long behind a troubled lane."""
        self._buffer.expire()

    def _run(self, number: int) -> None:
        lanes = self._lanes[number]
        linger = Linger()
        idle_s = 0.0
        while not self._buffer.is_finished:
            self._buffer.wait(idle_s, number)
            self._buffer.bound(*bounds_of(self._record.settings))
            requests = self._buffer.get(number)
            if requests:
                started = self._clock.now()
                self._written[number] = requests
                lanes.of(self._kind_of(requests)).write(requests)
                with self._lock:
                    del self._written[number]
                    if self._buffer.is_closed:
                        self._left_behind += _count_left(requests)
                linger.note_answered(sum(p.callers for p in requests), self._clock.now() - started)
                linger.wait(self._buffer)
                idle_s = 0.0
                lanes.tend_idle(started)
            else:
                idle_s = lanes.tend()
        lanes.close()

    def _kind_of(self, requests: list[PushRequest]) -> Label:
        """Return the kind of pipes for them; while they waited their due times have come nearer."""
        kind = requests[0].label.of_pipe
        if not kind.due_class:
            return kind
        lead_s = (min(min(request.dues) for request in requests) - self._due_clock.latest_ms()) / 1000
        return kind._replace(due_class=class_left(kind.due_class, lead_s))

    def _make_lane(self, number: int, label: Label) -> Lane:
        source = Source(self._name, label.priority, number, label.type, label.due_class, label.slot)
        return Lane(self._context, source, host=self, executor=self._beside)

    def _put_one(
        self, body: bytes, headers: object, timeout: float | timedelta, end: PushFuture | PushLatch
    ) -> float:
        try:
            checked = check_body(body, self._record.settings.body_bytes_max)
        except BodyTooLargeError:
            checked = check_body(body, self._settings(is_fresh=True).body_bytes_max)
        deadline = self._clock.now() + to_seconds(timeout)
        if not self._buffer.put_one(checked, check_headers(headers), deadline, end):
            self._beside.submit(self._buffer.take_in)
        return deadline

    def _settings(self, is_fresh: bool) -> QueueSettings:  # noqa: FBT001 - of the cutter's making
        if is_fresh:  # who only pushes what is too large hears of an alteration nowhere else
            with Deadline(self._clock.now() + CALL_S):
                self._record.may_take()
        return self._record.settings

    @property
    def is_inside(self) -> bool:
        """Whether this thread is in the middle of a push: nothing here can end before it goes on."""
        return self._buffer.is_inside()

    def _check_may_wait(self, call: str) -> None:
        if self.is_inside:
            raise refusal(call)
        check_may_wait("push()")
        if threading.current_thread() in self._threads or self._beside.is_current:
            raise InvalidOptionError(
                "push() and push_many() inside a callback of push_soon() would wait for themselves: "
                "call push_soon() there"
            )


def _count_left(requests: list[PushRequest]) -> int:
    return sum(request.count for request in requests)
