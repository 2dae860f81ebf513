"""Commits that go out together.

Owns the few milliseconds between `commit()` and the mark, for poppers that choose `commit="grouped"`, and
between `commit_soon()` and its future's end. The price of the first is told there: a crash, or a mark that
comes too late, delivers those messages again. What must not break: a run that cannot be written holds up no
other one, and no future ends well before its mark is durable.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from cassq.errors import CassqError, DeliveryExpiredError, OutcomeUnknownError, UsageError
from cassq.pipes.held_run import HeldRun
from cassq.popping.commits import Commit
from cassq.popping.delivery import Delivery
from cassq.popping.delivery_groups import group_by_run
from cassq.popping.timing import GROUP_S
from cassq.runtime.background_thread import AnsweredFuture, BackgroundThread
from cassq.runtime.clock import Clock
from cassq.runtime.fork_guard import ForkGuard
from cassq.runtime.reentry import alone

_log = logging.getLogger("cassq.popper")


class CommitFuture(AnsweredFuture[None]):
    """The future of one commit; it cannot be cancelled."""

    def __init__(self, thread: BackgroundThread, delivery: Delivery) -> None:
        super().__init__(thread, "a commit")
        self.delivery = delivery
        self.set_running_or_notify_cancel()

    def end(self, error: Exception | None) -> None:
        """End it; what was refused before anything was written can be ended later."""
        try:
            if error is None:
                self.set_result(None)
                return
            if isinstance(error, UsageError):
                self.delivery.unfinish()
            self.set_exception(error)
        except BaseException:  # of a callback, as sys.exit() is one: the futures behind it are ended, too
            _log.exception("a callback of the commit of %r", self.delivery)

    def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
        """Call `fn` with it once it has ended."""
        self._is_seen = True
        super().add_done_callback(fn)

    def __del__(self) -> None:
        # As asyncio does: an error that nobody can be told any more is in the log.
        if not self._is_seen and self._exception:
            _log.warning("the commit of %r failed: %s", self.delivery, self._exception)


class GroupedCommitter:
    """Collects commits and writes them every few milliseconds, neighbours joined into one mark.

    Args:
        answers: the thread that ends futures.
        on_lost: called with how many commits failed that nobody waits for, and why.
    """

    def __init__(
        self,
        clock: Clock,
        answers: BackgroundThread,
        on_lost: Callable[[int, Exception], None] | None = None,
    ) -> None:
        self._clock = clock
        self._on_lost = on_lost
        self._answers = answers
        self._birthplace = ForkGuard()
        self._changed = threading.Condition()
        self._writing = threading.RLock()
        self._waiting: list[Delivery] = []
        # The futures of some of these, and of what is open.
        self._asked: list[CommitFuture] = []
        self._told: dict[HeldRun, list[CommitFuture]] = {}
        # Commits are counted by groups: which one is being collected, which one is about to be tried, and of
        # which one each run has the first commit that is still open.
        self._group = 1
        self._begun: int | None = None
        self._collects_since = 0.0
        self._open: dict[HeldRun, tuple[int, Commit]] = {}
        self._is_hurried = False
        self._is_closed = False
        # Starts with the first commit; none where the interpreter ends and begins no thread any more.
        self._thread: threading.Thread | None = None

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """Take deliveries over; they are committed within a moment.

        Raises:
            DeliveryExpiredError: the lease of one has ended already; it is delivered again.
        """
        self._birthplace.check("the popper")
        ended: set[HeldRun] = set()
        run: HeldRun | None = None
        for each in deliveries:  # of one run mostly: a set of them all would cost more than the rest
            if each.run is not run:
                run = each.run
                if not run.still_runs():
                    ended.add(run)
        live = [each for each in deliveries if each.run not in ended] if ended else deliveries
        with self._changed:
            if not self._waiting:
                self._begin_group()
            self._waiting.extend(live)
        if self._is_alone:
            self.flush()
        if ended:
            expired = next(each for each in deliveries if each.run in ended)
            raise DeliveryExpiredError(f"the lease of {expired!r} has ended: it is delivered again")

    def commit_soon(self, delivery: Delivery) -> CommitFuture:
        """Take a delivery over; the future ends when it is committed, or cannot be."""
        self._birthplace.check("the popper")
        future = CommitFuture(self._answers, delivery)
        self._collect(delivery, future)
        return future

    def _collect(self, delivery: Delivery, future: CommitFuture) -> None:
        with self._changed:
            if not self._waiting:
                self._begin_group()
            self._waiting.append(delivery)
            self._asked.append(future)
            # Somebody waits: what comes during one write is the next group.
            if not self._is_hurried:
                self._is_hurried = True
                self._changed.notify_all()
        if self._is_alone:  # nobody waits here for the database
            flushing = BackgroundThread("cassq-commit")
            flushing.submit(self.flush)
            flushing.shutdown(wait=False)

    def _begin_group(self) -> None:
        self._collects_since = self._clock.now()
        self._changed.notify_all()
        if not self._thread and not self._is_closed:
            self._thread = threading.Thread(target=self._run, name="cassq-commit", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None

    @property
    def _is_alone(self) -> bool:
        """Whether who commits has to write it."""
        return self._is_closed or not self._thread

    def flush(self) -> None:
        """Return once all that was taken over before is written, or failed and was logged."""
        with self._changed:
            last = self._group if self._waiting else self._group - 1
            self._is_hurried = True
            self._changed.notify_all()
            while self._is_open(last) and not self._is_alone:
                self._clock.wait(self._changed, None)
        while self._is_open(last):  # nobody else writes any more
            self._write()
            with self._changed:
                if self._is_open(last):
                    self._rest()

    def close(self) -> None:
        """Write what waits and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread:
            self._thread.join()
        self.flush()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and self._rest():
                    pass
                if self._is_closed:
                    return
            self._write()

    def _rest(self) -> bool:
        """Wait until there is something to write, or to be told; False when there is."""
        left = self._seconds_to_write()
        if left > 0:
            self._clock.wait(self._changed, left if left < float("inf") else None)
        return left > 0

    def _seconds_to_write(self) -> float:
        """Return in how many seconds a group is complete, or a commit is to be tried again."""
        now = self._clock.now()
        complete_at = self._collects_since + (0.0 if self._is_hurried else GROUP_S)
        at = [complete_at] if self._waiting else []
        at += [commit.retry_at for _, commit in self._open.values()]
        return max(0.0, min(at, default=float("inf")) - now)

    def _is_open(self, last: int) -> bool:
        """Tell whether something of group `last`, or of an earlier one, is not through."""
        with self._changed:
            groups = [group for group, _ in self._open.values()]
            groups += [self._group] if self._waiting else []
            groups += [self._begun] if self._begun is not None else []
            return min(groups, default=last + 1) <= last

    def _write(self) -> None:
        """Try each run of the group that waits, and then what was not acknowledged before."""
        # One writes at a time, so whoever finds nothing left has waited for what is on its way.
        with alone(self._writing, "a close or a flush"):
            with self._changed:
                collected, self._waiting = self._waiting, []
                asked, self._asked = self._asked, []
                group = self._begun = self._group
                self._group += 1
                self._is_hurried = False
            try:
                fresh = self._add(group, collected, asked)
            except BaseException:
                with self._changed:  # those messages come again; who flushes waits for them no more
                    self._begun = None
                    self._changed.notify_all()
                self._tell(asked, OutcomeUnknownError("the commit was interrupted: it may come again"))
                raise
            for commit in fresh:
                self._try(commit)
            for _, commit in list(self._open.values()):
                # A new group comes first; but each pass tries one, or none would ever have its turn.
                if commit not in fresh and commit.retry_at <= self._clock.now():
                    self._try(commit)
                    if self._waiting:
                        break

    def _add(self, group: int, collected: Sequence[Delivery], asked: Sequence[CommitFuture]) -> list[Commit]:
        """Add the commits of a group; return those of runs of which none is open."""
        fresh: list[Commit] = []
        by_run = group_by_run(collected)
        with self._changed:
            for run, parts in by_run.items():
                if run in self._open:
                    self._open[run][1].join(parts)
                else:
                    commit = Commit(run, parts)
                    self._open[run] = group, commit
                    fresh.append(commit)
            for future in asked:
                self._told.setdefault(future.delivery.run, []).append(future)
            self._begun = None
        return fresh

    def _try(self, commit: Commit) -> None:
        error: Exception | None = None
        try:
            is_through = commit.try_once()
        except Exception as failed:
            error, is_through = failed, True
        # Before it counts as through: a flush promises that it was logged.
        if is_through:
            self._report(commit, error)
        # Who is tried again comes after the others.
        with self._changed:
            entry = self._open.pop(commit.run)
            if not is_through:
                self._open[commit.run] = entry
            self._changed.notify_all()

    def _report(self, commit: Commit, error: Exception | None) -> None:
        with self._changed:
            told = self._told.pop(commit.run, [])
        self._tell(told, error)
        if error and commit.count > len(told):
            self._log_failure(commit.count - len(told), error)

    def _tell(self, futures: Sequence[CommitFuture], error: Exception | None) -> None:
        def end() -> None:
            for future in futures:
                future.end(error)

        if futures:
            self._answers.submit(end)

    def _log_failure(self, count: int, error: Exception) -> None:
        if self._on_lost:
            self._on_lost(count, error)
        if isinstance(error, CassqError):
            _log.warning("%d commits failed; those messages are delivered again: %s", count, error)
        else:
            words = "an error that nobody expected: %d messages come again"
            _log.error(words, count, exc_info=error)
