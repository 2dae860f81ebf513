"""Commits on their way to the database: once, and again while the lease runs.

Owns what a consumer is told of a commit, and when marks that were not acknowledged are written again. What
must not break: what may have happened once is not told as refused; a run that cannot be written holds up no
other one.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from cassq.errors import (
    CassqError,
    DeliveryExpiredError,
    OutcomeUnknownError,
    StorageUnavailableError,
    UsageError,
)
from cassq.model.pipe import Mark
from cassq.model.ranges import Ranges
from cassq.pipes.held_run import HeldRun
from cassq.popping.delivery import Delivery
from cassq.popping.delivery_groups import group_by_run
from cassq.popping.timing import PAUSE_MAX_S, PAUSE_S
from cassq.runtime.clock import rest


class Commit:
    """Messages of one run on their way to be committed.

    Attributes:
        run, parts: the run, and which of its messages.
        retry_at: the reading of the run's clock from which to try again.
    """

    __slots__ = ("_marks", "_may_have_happened", "_pause_s", "parts", "retry_at", "run")

    def __init__(self, run: HeldRun, parts: Ranges) -> None:
        self.run = run
        self.retry_at = float("-inf")
        self.parts = parts
        self._marks: list[Mark] = []
        self._may_have_happened = False
        self._pause_s = PAUSE_S

    @property
    def count(self) -> int:
        """How many messages it commits."""
        return sum(part.size for part in self.parts)

    def join(self, parts: Ranges) -> None:
        """Commit more messages of the run by the same marks."""
        for part in parts:
            self.parts.add(*part)
        self._marks = []

    def try_once(self) -> bool:
        """Write the marks once; True when they are durable and counted in time, False: try again.

        Raises:
            DeliveryExpiredError: the lease had ended, no mark was written; the messages come again.
            OutcomeUnknownError: the lease ended before the marks were acknowledged.
            AccessDeniedError: the role may not write; no mark was written.
            UsageError: the call interrupted another one of its thread; nothing was begun.
        """
        run = self.run
        self._marks = self._marks or run.marks(self.parts)
        if not run.still_runs():
            raise self._too_late()
        try:
            is_in_time = run.write(self._marks)
        except OutcomeUnknownError:
            self._may_have_happened = True
        except StorageUnavailableError:
            pass
        except CassqError:  # refused now: what was sent before may have happened all the same
            if self._may_have_happened:
                raise self._too_late() from None
            raise
        else:
            if is_in_time:
                return True
            self._may_have_happened = True
            raise self._too_late()
        self.retry_at = run.clock.now() + min(self._pause_s, max(0.0, run.left_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return False

    def _too_late(self) -> CassqError:
        if self._may_have_happened:
            return OutcomeUnknownError(
                "the lease ended before the commit was acknowledged: it may come again"
            )
        return DeliveryExpiredError(
            f"the lease of {self.run.lease_s:g} s ended before the commit: the message is delivered again; "
            "work faster, give the queue a longer lease, or call extend()"
        )


def try_each(commits: Iterable[Commit], on_failure: Callable[[Commit, CassqError], None]) -> list[Commit]:
    """Try each commit whose time has come; return those to try again, and report those that failed."""
    left: list[Commit] = []
    for commit in commits:
        try:
            if commit.retry_at > commit.run.clock.now() or not commit.try_once():
                left.append(commit)
        except CassqError as error:
            on_failure(commit, error)
    return left


def commit_all(commits: Iterable[Commit], on_failure: Callable[[Commit, CassqError], None]) -> None:
    """Return once each commit is written, or reported as failed: when its lease ends, at the latest."""
    left = try_each(commits, on_failure)
    while left:
        rest(left[0].run.clock, seconds_to_retry(left))
        left = try_each(left, on_failure)


def seconds_to_retry(commits: Sequence[Commit]) -> float:
    """Return in how many seconds the first of these commits is to be tried again; 0 where there is none."""
    return max(0.0, min((commit.retry_at - commit.run.clock.now() for commit in commits), default=0.0))


def commit_run(run: HeldRun, parts: Ranges) -> None:
    """Commit messages of one run; raise as `Commit.try_once` says."""
    failed: list[CassqError] = []
    commit_all((Commit(run, parts),), lambda _, error: failed.append(error))
    for error in failed:
        raise error


class DirectCommitter:
    """Writes every commit at once, one mark for each stretch of neighbours.

    Args:
        commit_soon: takes those that nobody waits for.
    """

    def __init__(self, commit_soon: "Callable[[Delivery], Future[None]]") -> None:
        self.commit_soon = commit_soon

    def commit(self, deliveries: Sequence[Delivery]) -> None:
        """See `Committer.commit`; all runs are tried, then the first error is raised."""
        failed: list[CassqError] = []

        def on_failure(commit: Commit, error: CassqError) -> None:
            failed.append(error)
            if isinstance(error, UsageError):  # nothing of this run was begun: it can be ended later
                for each in deliveries:
                    if each.run is commit.run:
                        each.unfinish()

        commit_all((Commit(*group) for group in group_by_run(deliveries).items()), on_failure)
        for error in failed:
            raise error
