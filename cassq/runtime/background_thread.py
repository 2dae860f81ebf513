"""One thread for what need not hold up another, and futures that it ends.

The standard library's executors stop taking work as soon as the interpreter begins to exit, which is when a
store that nobody closed still stores what waits in its buffer. This one works until it is shut down.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from cassq.errors import UsageError
from cassq.runtime.fork_guard import ForkGuard
from cassq.runtime.reentry import check_may_wait

_T = TypeVar("_T")

_log = logging.getLogger("cassq.background")


def call_beside(name: str, call: Callable[[], object]) -> None:
    """Call on a thread of its own, and wait for its end: what interrupts this one does not interrupt it."""
    thread = threading.Thread(target=call, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter ends, and begins no thread any more
        call()
    else:
        thread.join()


class BackgroundThread(Executor):
    """An executor of one daemon thread, started when it is first needed.

    What is submitted after the shutdown is done all the same, by a thread that ends after it.

    Attributes:
        birthplace: the process that it was made in.
    """

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._name = name
        self._thread: threading.Thread | None = None
        self._is_over = False
        self.birthplace = ForkGuard()

    @property
    def is_current(self) -> bool:
        """Whether it is the thread that asks."""
        return self._thread is not None and threading.current_thread() is self._thread

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":  # noqa: ANN401
        """Run `fn` on the thread; return the future of what it returns."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # whoever asks the future hears of it
                future.set_exception(error)
            except BaseException as error:  # as a callback's sys.exit(): others need this thread
                _log.exception("%s: an error that would have ended the thread", self._name)
                future.set_exception(error)

        self._work.put(run)
        try:
            self.start()
        except RuntimeError:  # the interpreter ends, and begins no thread any more
            self._do_what_waits()
        return future

    def start(self) -> None:
        """Start the thread, if it does not run and somebody may need it.

        Raises: RuntimeError: no thread can be started.
        """
        # Whoever is starting it starts it for this, too; that may be this thread, interrupted.
        while self._thread is None and self._is_needed() and self._starting.acquire(blocking=False):
            try:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
            except RuntimeError:
                self._thread = None
                raise
            finally:
                self._starting.release()

    def _is_needed(self) -> bool:
        return not self._is_over or not self._work.empty()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """End the thread after the work that was submitted."""
        thread, self._is_over = self._thread, True
        self._work.put(None)  # wakes it
        if wait and thread:
            thread.join()

    def _run(self) -> None:
        while not self._is_over:
            if work := self._work.get():
                work()
            del work  # it may hold messages
        self._do_what_waits()
        self._thread = None
        self.start()  # for what came in between

    def _do_what_waits(self) -> None:
        while True:
            try:
                work = self._work.get_nowait()
            except Empty:
                return
            if work:
                work()


class AnsweredFuture(Future[_T]):
    """A future that a thread ends, which calls its callbacks: a call that would wait there is refused.

    Args:
        thread: the one that ends it.
        what: what it is a future of, for the error.
    """

    def __init__(self, thread: BackgroundThread, what: str) -> None:
        super().__init__()
        self._thread = thread
        self._what = what
        self._is_seen = False

    def result(self, timeout: float | None = None) -> _T:
        """Return what it ended with, or raise the error; wait for it at most `timeout` seconds."""
        self._check_may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None; wait for it at most `timeout` seconds."""
        self._check_may_wait()
        return super().exception(timeout)

    def _check_may_wait(self) -> None:
        self._is_seen = True
        if self.done():
            return
        self._thread.birthplace.check(self._what)
        check_may_wait(f"waiting for {self._what}")
        if self._thread.is_current:
            raise UsageError(
                f"waiting for {self._what} in a callback waits for ever: callbacks are called one after the "
                "other, by the thread that ends it; add a callback to it, or wait in another thread"
            )
