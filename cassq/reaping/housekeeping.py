"""What a process with poppers does for its queue in the background.

Owns its duties: passes of the reaper, looks after bulk writes, samples for the rates. None is needed for any
promise: a process that never does them leaves them to the others.
"""

from dataclasses import replace
from uuid import UUID

from cassq.bulk.staging import Staging
from cassq.catalog.queue_context import QueueContext
from cassq.errors import QueueNotFoundError
from cassq.model.queue_record import Sample
from cassq.model.uses import uses_due
from cassq.observing.statistics import SAMPLES_MAX, Statistics
from cassq.reaping.duty import Duty
from cassq.reaping.reap_report import ReapReport
from cassq.reaping.reaper import Reaper
from cassq.runtime.periodic_thread import PeriodicThread

#: How often a process with poppers reaps, how seldom while it finds nothing to do, and how many pipes it
#: examines then: others reap too, and poppers that wait look after what they would take.
REAP_S = 2.0
REAP_MAX_S = 16.0
REAP_PIPES_MAX = 32

#: How often it looks for what is due soon, and how seldom while nothing is.
KEEP_S = 2.0
KEEP_MAX_S = 4.0

#: Pipes that got empty are looked at this soon.
REAP_SOON_S = 0.5

#: How often it looks whether a bulk write was left half done.
TIDY_S = 60.0

#: How often it looks whether a sample for the rates is due, and how seldom while nothing moves.
SAMPLE_S = 5.0
SAMPLE_MAX_S = 40.0


class Housekeeping:
    """Does the duties of one queue until it is closed.

    Args:
        thread: does so for all queues of the store.
    """

    def __init__(
        self,
        context: QueueContext,
        reaper: Reaper,
        statistics: Statistics,
        staging: Staging,
        thread: PeriodicThread,
    ) -> None:
        self._queue = context.queue
        self._polls = context.polls
        self._reaper = reaper
        self._statistics = statistics
        self._record = context.record
        self._staging = staging
        self._clock = context.clock
        self._context = context
        self._keeping = Duty(self._keep, KEEP_S, KEEP_MAX_S)
        self._standing_duties = (
            Duty(self._reap, REAP_S, REAP_MAX_S),
            Duty(self._tidy, TIDY_S, TIDY_S, due_at=self._clock.now() + TIDY_S),
            Duty(self._sample, SAMPLE_S, SAMPLE_MAX_S),
        )
        self._is_deleted = False
        self._passed_at = 0.0
        self._taken: tuple[Sample, ...] = ()
        self._loop = thread.repeat(f"queue {context.queue}: reaping", self.run_once, REAP_S)
        self._polls.enter()

    def run_once(self) -> None:
        """Do what is due; nothing any more once the queue was deleted."""
        if self._is_deleted or not (self._reaper.has_hints or self._clock.now() >= self._due_at()):
            return
        try:
            self._do_duties()
        except QueueNotFoundError:
            self._is_deleted = True
        finally:
            self._loop.seconds = max(REAP_S, self._due_at() - self._clock.now())

    @property
    def _duties(self) -> tuple[Duty, ...]:
        duties = self._standing_duties
        return (self._keeping, *duties) if uses_due(self._context.settings) else duties

    def _due_at(self) -> float:
        return min(duty.due_at for duty in self._duties)

    def _do_duties(self) -> None:
        self._record.check_open()
        now = self._passed_at = self._clock.now()
        if self._reaper.has_hints and now < self._standing_duties[0].due_at:
            self._reaper.run_once(0)
        for duty in self._duties:
            if now >= duty.due_at:
                duty.run_once(now, self._polls, self._queue)
        # However seldom a process with many queues looks: a schedule does not wait.
        self._keeping.due_at = min(self._keeping.due_at, self._reaper.keeper.next_at)

    def _reap(self) -> bool:
        report = self._reaper.run_once(REAP_PIPES_MAX)
        return bool(report.sealed or report.returned or report.retired or report.failed)

    def _keep(self) -> bool:
        return self._reaper.keeper.run_once(ReapReport())

    def _tidy(self) -> bool:
        self._staging.tidy()
        return True

    def hint(self, pipe: UUID) -> None:
        """Hear that a pipe may be over, and look at it soon: a drain stays even when pipes go one by one."""
        self._reaper.hint(pipe)
        is_soon = self._clock.now() - self._passed_at >= REAP_SOON_S
        self._loop.poke(0.0 if is_soon else REAP_S)

    def close(self) -> None:
        """End after the pass under way."""
        self._loop.close()
        self._polls.leave()

    def _sample(self) -> bool:
        """Remember how far the queue is; False when nothing has moved.

        Of many processes one is enough: whoever sees that a sample was taken since it last looked leaves it
        at that, without reading a pipe.
        """
        taken = self._record.samples[-1:]
        if taken != self._taken:
            self._taken = taken
            return True
        sample = self._statistics.sample(self._record.read)
        if not sample:
            return False
        latest = self._record.read().samples
        if not latest or latest[-1].at_ms < sample.at_ms:
            changed = self._record.change(
                lambda record: replace(record, samples=(*record.samples, sample)[-SAMPLES_MAX:])
            )
            self._taken = changed.samples[-1:]
        return True
