"""Commits of leases that nobody waits for: those that come during one write go out with the next.

Owns the futures, the thread that writes and the one that ends them. Refuses to know how a lease is committed.
What must not break: each future ends, whatever a callback or another lease's error does.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from cassq.model.lease import Lease, Settled
from cassq.runtime.background_thread import AnsweredFuture, BackgroundThread

_log = logging.getLogger("cassq.popper")


class _CommitFuture(AnsweredFuture[Settled]):
    """The future of what the commit of a lease comes to; it cannot be cancelled."""

    def __init__(self, thread: BackgroundThread, lease: Lease) -> None:
        super().__init__(thread, "a commit of a lease")
        self.lease = lease
        self.set_running_or_notify_cancel()

    def end(self, how: Settled | BaseException) -> None:
        """End it."""
        try:
            if isinstance(how, Settled):
                self.set_result(how)
            else:
                self.set_exception(how)
        except BaseException:  # of a callback, as sys.exit() is one: the futures behind it are ended, too
            _log.exception("a callback of the commit of %s", self.lease)


class LeaseFutures:
    """The commits of one queue's leases that nobody waits for.

    Args:
        commit: commits leases, and notes what each came to; what it had noted stands when it raises.
    """

    def __init__(self, commit: Callable[[Sequence[Lease], dict[Lease, Settled]], None]) -> None:
        self._commit = commit
        self._lock = threading.RLock()
        self._waiting: list[_CommitFuture] = []
        self._thread = BackgroundThread("cassq-commit")
        self._answers = BackgroundThread("cassq-answers")

    def commit_soon(self, lease: Lease) -> "Future[Settled]":
        """Commit a lease together with others; return the future of what it comes to."""
        future = _CommitFuture(self._answers, lease)
        with self._lock:
            self._waiting.append(future)
        self._thread.submit(self._commit_waiting)  # for each: who was interrupted before it left some behind
        return future

    def _commit_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if not waiting:
            return  # they went with others
        told = dict[Lease, Settled]()
        failed: BaseException | None = None
        try:
            self._commit([each.lease for each in waiting], told)
        except BaseException as error:  # each of them is told
            failed = error
        ends = [told.get(each.lease, failed) for each in waiting]

        def end() -> None:
            for future, how in zip(waiting, ends, strict=True):
                future.end(how or Settled.UNKNOWN)

        self._answers.submit(end)

    def close(self) -> None:
        """Write what waits, and end its future; not called in the middle of another call of its thread."""
        self._thread.shutdown()
        self._answers.shutdown()
