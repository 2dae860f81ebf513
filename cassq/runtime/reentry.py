"""Which threads stand in the middle of cassq, where others wait for them.

A signal, a `__del__` or a log handler may interrupt a thread anywhere and call cassq again. Owns the error
that such a call gets where it could only wait for itself, and how one close waits for another. What must not
break: a mark goes with the block that set it, also when Ctrl-C tears the thread out of it.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from cassq.errors import UsageError

if TYPE_CHECKING:
    from cassq.runtime.clock import Clock  # it needs this module

#: The threads that hold a transaction, or wait for a push. One set for the process, as threads are.
threads: set[int] = set()


def _forget_others() -> None:
    threads.intersection_update({threading.get_ident()})


# A thread of the child may get the number of one that only the parent has.
os.register_at_fork(after_in_child=_forget_others)

_DOORS = ("cassq.aio.", "cassq.cli.", "cassq.spark.", "cassq.worker.")


def check_outside(lock: threading.RLock, what: str) -> None:
    """Raise `UsageError` where this thread holds the lock that it is about to take."""
    if lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - the only one who knows
        raise refusal(what)


def alone(lock: threading.RLock, what: str) -> AbstractContextManager[object]:
    """Return the lock for a `with`; raise `UsageError` where this thread would wait for itself.

    It would where it is inside of the lock already; and where it was interrupted while others may wait for
    it, and one of those has the lock.
    """
    check_outside(lock, what)
    return unawaited(lock, what)


def unawaited(lock: "threading.RLock | threading.Lock", what: str) -> AbstractContextManager[object]:
    """Return the lock for a `with`; where others may wait for this thread it has to be free."""
    if threading.get_ident() not in threads:
        return lock
    if not lock.acquire(blocking=False):
        raise refusal(what)
    return _Taken(lock)


class _Taken:
    """A lock that was taken before the block begins, so that nobody takes it in between."""

    def __init__(self, lock: "threading.RLock | threading.Lock") -> None:
        self._lock = lock

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def check_may_wait(what: str) -> None:
    """Raise `UsageError` where this thread would wait for others that wait for it."""
    if threading.get_ident() in threads:
        raise refusal(what)


def interrupts_another() -> bool:
    """Tell whether this call came in the middle of another one of its thread, by the frames below it.

    Too slow for a push. A call of the library's own is not meant, nor one of its doors.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the way to see them without a traceback
    has_left = False
    while frame:
        name = frame.f_globals.get("__name__", "")
        is_ours = name.startswith("cassq.") and not name.startswith(_DOORS)
        if is_ours and has_left:
            return True
        has_left = has_left or not is_ours
        frame = frame.f_back
    return False


@contextmanager
def noted() -> Iterator[None]:
    """Note that this thread holds what others wait for, or waits for others itself."""
    marks = {threading.get_ident()} - threads  # none for a block within another one
    try:
        threads.update(marks)
        yield
    finally:
        threads.difference_update(marks)


class Closing:
    """Closes something once: of the calls that come, the first does it, and the others wait for that.

    A call in the middle of another one of its thread returns at once, and a thread of its own closes as soon
    as that one has ended.

    Attributes:
        has_begun: whether it is closed, or is being closed.
    """

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._closer = 0
        self.has_begun = False
        self._is_through = False

    @property
    def has_closed(self) -> bool:
        """Whether nobody need wait for it any more."""
        return self._is_through

    def run(self, close: Callable[[], None]) -> None:
        """Call `close`, or wait until it is through; returns at once in the middle of another call."""
        if interrupts_another():
            with suppress(RuntimeError):  # as the interpreter ends, the call that was interrupted closes it
                threading.Thread(target=self.run, args=(close,), name="cassq-close").start()
            return
        me = threading.get_ident()
        with self._changed:
            is_first, self._closer = not self._closer, self._closer or me
            self.has_begun = True
        if is_first:
            try:
                close()
            finally:
                with self._changed:
                    self._is_through = True
                    self._changed.notify_all()
        elif self._closer != me:
            with self._changed:
                while not self._is_through:
                    self._clock.wait(self._changed, None)


def refusal(what: str) -> UsageError:
    """Return the error for who interrupted a call of its own thread."""
    return UsageError(
        f"{what} interrupted another call of the same thread, as a signal handler, a __del__ or a log "
        "handler does, and would wait for it for ever: set a flag there, or let another thread do it"
    )
