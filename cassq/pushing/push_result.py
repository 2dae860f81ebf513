"""What callers of `push_soon` and `push` hold until their message has ended.

Owns how one caller hears of one message. Refuses to know what is pushed. What must not break: each waiter
hears of the end once, whenever it began to wait.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from cassq.errors import CassqError, OutcomeUnknownError
from cassq.model.ids import MessageId
from cassq.model.label import UNLABELLED, Label
from cassq.model.message import MessageIds
from cassq.runtime.reentry import check_may_wait, noted, refusal

_log = logging.getLogger("cassq.pusher")

#: A waiter looks so often whether its push ended, if nobody tells it.
LOOK_S = 0.1


class PushFuture(Future[MessageId]):
    """The future of one message's id; the message is on its way, so it cannot be cancelled.

    The base class makes a lock and a condition for each future, a third of what a push costs. Most futures
    are done before anybody waits for them, so here the condition is made by the first who needs it:

        waiter                                pusher
        | makes the condition                 | sets the result
        | locks it, looks: is it done?        | looks: was a condition made?
        | not done: waits                     | yes: locks it, notifies

    Whichever of the two looks first, the other one's step before is seen. So it is with the first callback,
    which needs no condition either: each of the two may find it, and one of them takes it.

    Args:
        is_inside: whether the thread that asks is in the middle of a push: then it cannot wait for one.
    """

    # One for all futures: it is held for the making of a condition. A signal handler may come in between.
    _making = threading.RLock()
    # Never looked up in `__dict__`: under CPython 3.11 two threads that do so at once may crash it.
    _made: threading.Condition | None = None
    _first: list[Callable[[Future[MessageId]], object]] | None = None

    #: Whether its caller waits for room.
    is_patient = True

    #: What steers its message.
    label = UNLABELLED

    def __init__(  # does what the base class does, without the condition
        self, is_inside: Callable[[], bool] = lambda: False
    ) -> None:
        self._is_inside = is_inside
        self._state = "PENDING"
        self._result: MessageId | None = None
        self._exception: BaseException | None = None

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        if self._made is None:
            with self._making:
                if self._made is None:
                    # The base class touches these only under the condition.
                    self._done_callbacks: list[Any] = []
                    self._those_who_wait: list[Any] = []
                    self._made = threading.Condition()
        return self._made

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]  # of concurrent.futures.wait
        self._check_may_wait()
        return self._those_who_wait

    def _check_may_wait(self) -> None:
        if self._state == "PENDING":
            check_may_wait("waiting for a push")
            if self._is_inside():
                raise refusal("waiting for a push")

    def add_done_callback(self, fn: Callable[[Future[MessageId]], object]) -> None:
        """Have a function called with this future once it has ended; see `Future.add_done_callback`."""
        with self._making:
            is_first = self._first is None and self._made is None
            if is_first:
                self._first = [fn]
        if not is_first:
            super().add_done_callback(fn)
        elif self._state == "FINISHED":
            self._call_first()

    def _call_first(self) -> None:
        try:
            call = (self._first or []).pop()
        except IndexError:  # it was taken
            return
        try:
            call(self)
        except Exception:
            _log.exception("a callback of a push raised")

    def cancel(self) -> bool:
        """Return False."""
        return False

    def running(self) -> bool:
        """Tell whether it has not ended yet."""
        return self._state == "PENDING"

    def done(self) -> bool:
        """Tell whether it has ended."""
        return self._state == "FINISHED"

    def result(self, timeout: float | None = None) -> MessageId:
        """Return the message's id, or raise the error; wait for it at most `timeout` seconds."""
        if self._state == "FINISHED" and self._result is not None:
            return self._result
        self._check_may_wait()
        with noted():
            return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None where the message is stored; wait for it at most `timeout` seconds."""
        if self._state == "FINISHED":
            return self._exception
        self._check_may_wait()
        with noted():
            return super().exception(timeout)

    def set_result(self, result: MessageId) -> None:
        """End it with the message's id; called once."""
        self._result = result
        self._end()

    def set_exception(self, exception: BaseException | None) -> None:
        """End it with an error; called once."""
        self._exception = exception
        self._end()

    def _end(self) -> None:
        self._state = "FINISHED"
        is_waited_for = self._made is not None
        if is_waited_for:
            with self._condition:
                for waiter in self._waiters:
                    if self._exception:
                        waiter.add_exception(self)
                    else:
                        waiter.add_result(self)
                self._condition.notify_all()
        if self._first is not None:
            self._call_first()
        if is_waited_for:
            self._invoke_callbacks()  # type: ignore[attr-defined]  # the base class's own


def _renew_in_child() -> None:
    PushFuture._making = threading.RLock()  # noqa: SLF001 - another thread of the parent may have held it


os.register_at_fork(after_in_child=_renew_in_child)


class PushLatch:
    """What a caller of `push` waits behind: a tenth of a future's work, for who waits at once.

    Callers who are answered together wake one after the other, each by the one before. Woken all at once
    they would fight for the interpreter, and half of the processor's time would go into that.
    """

    __slots__ = ("_error", "_following", "_lock", "_message_id", "label")

    is_patient = True

    def __init__(self, label: Label = UNLABELLED) -> None:
        self.label = label
        self._lock = threading.Lock()
        self._lock.acquire()
        self._message_id: MessageId | None = None
        self._error: CassqError | None = None
        self._following: PushLatch | None = None

    def note_result(self, message_id: MessageId, following: "PushLatch | None") -> None:
        """Note the message's id, and which caller this one wakes in turn; then somebody wakes it."""
        self._following = following
        self._message_id = message_id

    def set_exception(self, error: CassqError) -> None:
        """Let the caller go with an error."""
        self._error = error
        self.wake()

    def wake(self) -> None:
        """Let the caller go; called once."""
        self._lock.release()

    def result(self, look: Callable[[], None]) -> MessageId:
        """Wait for the end; return the id, or raise the error. Call it once.

        Args:
            look: called now and then while it waits.
        """
        try:
            # Whoever was to wake this one may have been torn away by Ctrl-C.
            while not self._lock.acquire(timeout=LOOK_S) and self._is_waiting():
                look()
        finally:
            if self._following is not None:
                self._following.wake()
        if self._message_id is None:
            raise self._error or AssertionError("a push ended without an id and without an error")
        return self._message_id

    def _is_waiting(self) -> bool:
        return self._message_id is None and self._error is None


def resolve(future: "Future[MessageIds]", ids: MessageIds, error: CassqError | None) -> None:
    """End the future of many messages: with the ids of all, or an error that tells what became of them."""
    if error is None:
        future.set_result(ids)
    elif ids and not isinstance(error, OutcomeUnknownError):
        future.set_exception(
            OutcomeUnknownError(f"{len(ids)} messages are stored, those after them are not: {error}")
        )
    else:
        future.set_exception(error)


def answer(latches: Sequence[tuple[PushLatch, MessageId]]) -> None:
    """Let callers of `push` go, the first one first, each with the id of its message."""
    following = None
    for latch, message_id in reversed(latches):
        latch.note_result(message_id, following)
        following = latch
    if following:
        following.wake()
