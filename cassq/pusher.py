"""Pushes messages into a queue: takes what callers bring, and hands it to the lanes in batches.

Owns the callers' side of a push (checks, futures, deadlines, chunks) and the threads that run the lanes.
What must not break: a caller hears "stored" only after the database acknowledged, and always hears
something.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from datetime import timedelta
from functools import partial

from cassq.beside import BesideThread
from cassq.clock import Clock
from cassq.coordination.port import Coordinator
from cassq.errors import CassqError, InvalidOptionError, OutcomeUnknownError, UsageError
from cassq.gathering import Gathering
from cassq.lane import Lane
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from cassq.model.arguments import to_seconds
from cassq.model.ids import MessageId, new_pipe_id, shorten
from cassq.model.message import NO_HEADERS, Headers, MessageIds, check_body, check_headers, size_of
from cassq.model.settings import QueueSettings
from cassq.parcel import Parcel, ParcelBuffer
from cassq.push_future import PushFuture, PushLatch
from cassq.storage.port import Storage

#: How long a push may take by default.
PUSH_TIMEOUT = timedelta(seconds=30)

#: After so long without a push nobody relies on what was heard of hungry poppers before; shorter than the
#: time for which a coordinator goes on listening for a pusher.
QUIET_S = 10.0

#: How many parcels of one `push_many` are on their way at once.
PARCELS_IN_FLIGHT = 4


class Pusher:
    """Pushes into one queue; shared by all threads of a process.

    Args:
        check_open: raises `QueueNotFoundError` when the queue was deleted; called before each write.
    """

    def __init__(  # noqa: PLR0913 - collaborators are passed in
        self,
        storage: Storage,
        coordinator: Coordinator,
        queue: str,
        settings: QueueSettings,
        *,
        clock: Clock,
        check_open: Callable[[], None] = lambda: None,
    ) -> None:
        self._coordinator = coordinator
        self._queue = queue
        self._settings = settings
        self._clock = clock
        self.check_open = check_open
        self._messages_max = min(BATCH_MESSAGES_MAX, settings.pipe_messages_max)
        self._bytes_max = min(BATCH_BYTES_MAX, settings.pipe_bytes_max)
        self._buffer = ParcelBuffer(clock, self._messages_max, self._bytes_max)
        name = str(new_pipe_id())
        # What need not hold up a batch: opening the next pipe, waking poppers.
        self._beside = BesideThread(f"cassq-beside-{queue}")
        self._waking = threading.Lock()
        self._to_wake = 0
        self._pushed_at = float("-inf")
        self._lanes = [
            Lane(
                storage,
                queue,
                settings,
                host=self,
                pusher=name,
                number=number,
                executor=self._beside,
                clock=clock,
            )
            for number in range(settings.push_width)
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=f"cassq-push-{queue}", daemon=True)
            for lane in self._lanes
        ]
        for thread in self._threads:
            thread.start()

    def push(self, body: bytes, headers: object, timeout: float | timedelta) -> MessageId:
        """Store one message; see `Queue.push`."""
        self._check_not_a_callback()
        latch = PushLatch()
        self._put_one(body, headers, timeout, latch)
        return latch.result()

    def push_soon(self, body: bytes, headers: object, timeout: float | timedelta) -> "Future[MessageId]":
        """Store one message soon; see `Queue.push_soon`."""
        future = PushFuture()
        self._put_one(body, headers, timeout, future)
        return future

    def push_many(
        self,
        bodies: Iterable[bytes | tuple[bytes, Headers]],
        progress: Callable[[int], None] | None,
        timeout: float | timedelta,
    ) -> MessageIds:
        """Store many messages; see `Queue.push_many`."""
        self._check_not_a_callback()
        ids = MessageIds()
        flying: deque[Future[MessageIds]] = deque()

        def land() -> None:
            ids.extend(flying.popleft().result())
            if progress:
                progress(len(ids))

        try:
            for chunk, headers in self._chunks(bodies):
                future: Future[MessageIds] = Future()
                deadline = self._clock.now() + to_seconds(timeout)
                self._buffer.put(Parcel(chunk, headers, deadline, partial(_resolve, future)))
                flying.append(future)
                if len(flying) >= PARCELS_IN_FLIGHT:
                    land()
            while flying:
                land()
        except BaseException as error:
            # What is on its way ends first: nothing of this call is stored after it raised.
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

    def close(self, timeout: timedelta = PUSH_TIMEOUT) -> None:
        """Store what is in the buffer, seal the pipes and end; waits at most `timeout`."""
        self._buffer.close()
        deadline = self._clock.now() + timeout.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock.now()))
        for lane in self._lanes:
            lane.stop_waiting()
        for thread in self._threads:
            thread.join(timeout.total_seconds())
        self._beside.shutdown()

    def note_pushed(self, count: int) -> None:
        """Wake as many hungry poppers as there are new messages; the next batch does not wait for it."""
        now = self._clock.now()
        was_quiet, self._pushed_at = now - self._pushed_at > QUIET_S, now
        # After a quiet time, and at the first push, what is known of hungry poppers may be old.
        if not was_quiet and not self._coordinator.hungry(self._queue):
            return
        with self._waking:
            self._to_wake += count
            is_first = self._to_wake == count
        if is_first:
            self._beside.submit(self._wake)

    def _wake(self) -> None:
        with self._waking:
            count, self._to_wake = self._to_wake, 0
        self._coordinator.wake(self._queue, min(count, max(1, self._coordinator.hungry(self._queue))))

    def expire(self) -> None:
        """Fail what waits too long behind a troubled lane."""
        self._buffer.expire()

    def _run(self, lane: Lane) -> None:
        gathering = Gathering()
        idle_s = 0.0
        while not self._buffer.is_finished:
            self._buffer.wait(idle_s)
            parcels = self._buffer.get()
            if parcels:
                started = self._clock.now()
                lane.write(parcels)
                gathering.note_answered(sum(p.callers for p in parcels), self._clock.now() - started)
                gathering.wait(self._buffer)
                idle_s = 0.0
            else:
                idle_s = lane.tend()
        lane.close()

    def _put_one(
        self, body: bytes, headers: object, timeout: float | timedelta, end: PushFuture | PushLatch
    ) -> None:
        checked = check_body(body, self._settings.body_bytes_max)
        deadline = self._clock.now() + to_seconds(timeout)
        self._buffer.put_one(checked, check_headers(headers), deadline, end)

    def _check_not_a_callback(self) -> None:
        if threading.current_thread() in self._threads:
            raise InvalidOptionError(
                "push() and push_many() inside a callback of push_soon() would wait for themselves: "
                "call push_soon() there"
            )

    def _chunks(
        self, messages: Iterable[bytes | tuple[bytes, Headers]]
    ) -> Iterator[tuple[tuple[bytes, ...], tuple[Headers, ...]]]:
        """Cut the messages into parcels, each small enough for one write and for one pipe."""
        body_max = self._settings.body_bytes_max
        bodies: list[bytes] = []
        headers: list[Headers] = []
        size = 0
        for message in _each_of(messages):
            body, header = _parts_of(message)
            body = check_body(body, body_max)
            weight = size_of(body, header)
            if bodies and (len(bodies) >= self._messages_max or size + weight > self._bytes_max):
                yield tuple(bodies), tuple(headers)
                bodies, headers, size = [], [], 0
            bodies.append(body)
            headers.append(header)
            size += weight
        if bodies:
            yield tuple(bodies), tuple(headers)


def _each_of(messages: object) -> Iterator[object]:
    try:
        return iter(messages)  # type: ignore[call-overload, no-any-return]  # which refuses what is no row
    except TypeError as error:
        raise InvalidOptionError(
            f"push_many takes bodies, or pairs of a body and its headers, one after the other, "
            f"not {shorten(messages)}; push() takes a single body"
        ) from error


def _parts_of(message: object) -> tuple[object, Headers]:
    if not isinstance(message, tuple):
        return message, NO_HEADERS
    if len(message) != 2:
        raise InvalidOptionError(
            f"{shorten(message)} has {len(message)} parts: a message is a body, or a body and its headers"
        )
    body, headers = message
    return body, check_headers(headers)


def _resolve(future: "Future[MessageIds]", ids: MessageIds, error: CassqError | None) -> None:
    if error is None:
        future.set_result(ids)
    elif ids and not isinstance(error, OutcomeUnknownError):
        future.set_exception(
            OutcomeUnknownError(f"{len(ids)} messages are stored, those after them are not: {error}")
        )
    else:
        future.set_exception(error)
