"""What callers of `push_soon` and `push` hold until their message has ended.

Owns how one caller hears of one message. Refuses to know what is pushed. What must not break: whoever waits,
whenever he began to, hears of the end once.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from cassq.errors import CassqError
from cassq.model.ids import MessageId

#: Who waits for a push looks so often whether it ended, if nobody tells him.
LOOK_S = 0.1


class PushFuture(Future[MessageId]):
    """The future of one message's id; the message is on its way, so it cannot be cancelled.

    The base class makes a lock and a condition for each future, a third of what a push costs. Most futures
    are done before anybody waits for them, so here the condition is made by the first who needs it:

        waiter                                pusher
        | makes the condition                 | sets the result
        | locks it, looks: is it done?        | looks: was a condition made?
        | not done: waits                     | yes: locks it, notifies

    Whichever of the two looks first, the other one's step before is seen.
    """

    def __init__(self) -> None:  # does what the base class does, without the condition
        self._state = "PENDING"
        self._result: MessageId | None = None
        self._exception: BaseException | None = None

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        made: threading.Condition | None = self.__dict__.get("_made")
        if made is None:
            # The base class touches these only under the condition.
            self.__dict__.setdefault("_waiters", [])
            self.__dict__.setdefault("_done_callbacks", [])
            made = self.__dict__.setdefault("_made", threading.Condition())
        return made

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
        return super().result(timeout)

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
        if "_made" not in self.__dict__:
            return
        with self._condition:
            for waiter in self._waiters:
                if self._exception:
                    waiter.add_exception(self)
                else:
                    waiter.add_result(self)
            self._condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]  # the base class's own


class PushLatch:
    """What a caller of `push` waits behind: a tenth of a future's work, for who waits at once.

    Callers who are answered together wake one after the other, each by the one before. Woken all at once
    they would fight for the interpreter, and half of the processor's time would go into that.
    """

    __slots__ = ("_error", "_following", "_lock", "_message_id")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._message_id: MessageId | None = None
        self._error: CassqError | None = None
        self._following: PushLatch | None = None

    def note_result(self, message_id: MessageId, following: "PushLatch | None") -> None:
        """Note the message's id, and whom the caller wakes in his turn; somebody wakes him then."""
        self._following = following
        self._message_id = message_id

    def set_exception(self, error: CassqError) -> None:
        """Let the caller go with an error."""
        self._error = error
        self.wake()

    def wake(self) -> None:
        """Let the caller go; called once."""
        self._lock.release()

    def result(self) -> MessageId:
        """Wait for the end; return the id, or raise the error. Call it once."""
        try:
            # Whoever was to wake this one may have been torn away by Ctrl-C.
            while not self._lock.acquire(timeout=LOOK_S) and self._is_waiting():
                pass
        finally:
            if self._following is not None:
                self._following.wake()
        if self._message_id is None:
            raise self._error or AssertionError("a push ended without an id and without an error")
        return self._message_id

    def _is_waiting(self) -> bool:
        return self._message_id is None and self._error is None


def answer(latches: Sequence[tuple[PushLatch, MessageId]]) -> None:
    """Let callers of `push` go, the first one first, each with the id of his message."""
    following = None
    for latch, message_id in reversed(latches):
        latch.note_result(message_id, following)
        following = latch
    if following:
        following.wake()
