"""One thread for what need not hold up another, and futures that it ends.

The standard library's executors stop taking work as soon as the interpreter begins to exit, which is when a
store that nobody closed still stores what waits in its buffer. This one works until it is shut down.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, TypeVar

from cassq.errors import UsageError
from cassq.runtime.reentry import check_may_wait

_T = TypeVar("_T")


class BackgroundThread(Executor):
    """An executor of one daemon thread, started when it is first needed."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._name = name
        self._thread: threading.Thread | None = None

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

        self._work.put(run)
        # Whoever is starting it starts it for this, too; that may be this thread, interrupted.
        if self._thread is None and self._starting.acquire(blocking=False):
            try:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    try:
                        thread.start()
                        self._thread = thread
                    except RuntimeError:  # the interpreter ends, and begins no thread any more
                        while not self._work.empty():
                            if work := self._work.get():
                                work()
            finally:
                self._starting.release()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """End the thread after the work that was submitted."""
        self._work.put(None)
        if wait and self._thread:
            self._thread.join()

    def _run(self) -> None:
        while work := self._work.get():
            work()


class AnsweredFuture(Future[_T]):
    """A future that a thread ends, which calls its callbacks: who would wait there for ever is told so.

    Args:
        thread: the one that ends it.
        what: what it is a future of, for the error.
    """

    def __init__(self, thread: BackgroundThread, what: str) -> None:
        super().__init__()
        self._thread = thread
        self._what = what

    def result(self, timeout: float | None = None) -> _T:
        """Return what it ended with, or raise the error; wait for it at most `timeout` seconds."""
        self._check_may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None; wait for it at most `timeout` seconds."""
        self._check_may_wait()
        return super().exception(timeout)

    def _check_may_wait(self) -> None:
        if self.done():
            return
        check_may_wait(f"waiting for {self._what}")
        if self._thread.is_current:
            raise UsageError(
                f"waiting for {self._what} in a callback waits for ever: callbacks are called one after the "
                "other, by the thread that ends it; add a callback to it, or let another thread wait"
            )
