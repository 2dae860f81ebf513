"""What a process with poppers does for its queue in the background.

Owns when the reaper makes a pass and when a sample for the rates is taken. Neither is needed for any
promise: a process that never does them leaves them to the others.
"""

from dataclasses import replace
from uuid import UUID

from cassq.bulk.staging import Staging
from cassq.catalog.queue_context import QueueContext
from cassq.errors import QueueNotFoundError
from cassq.model.queue_record import Sample
from cassq.observing.statistics import SAMPLES_MAX, Statistics
from cassq.reaping.reaper import Reaper
from cassq.runtime.periodic_thread import PeriodicThread
from cassq.runtime.poll_spread import PASSES_PER_S

#: How often a process with poppers reaps, how seldom while it finds nothing to do, and how many pipes it
#: examines then: others reap too, and poppers that wait look after what they would take.
REAP_S = 2.0
REAP_MAX_S = 16.0
REAP_PIPES_MAX = 32

#: Pipes that got empty are looked at this soon.
REAP_SOON_S = 0.5

#: How often it looks whether a bulk write was left half done.
TIDY_S = 60.0

#: How often it looks whether a sample for the rates is due, and how seldom while nothing moves.
SAMPLE_S = 5.0
SAMPLE_MAX_S = 40.0


class Housekeeping:
    """Reaps and samples one queue until it is closed.

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
        self._tidy_at = self._clock.now() + TIDY_S
        self._sample_pause_s = SAMPLE_S
        self._sample_at = 0.0
        self._is_deleted = False
        self._passed_at = 0.0
        self._whole_at = 0.0
        self._whole_pause_s = REAP_S
        self._taken: tuple[Sample, ...] = ()
        self._loop = thread.repeat(f"queue {context.queue}: reaping", self.run_once, REAP_S)
        self._polls.enter()

    def run_once(self) -> None:
        """Make a short pass when one is due; none any more once the queue was deleted."""
        is_due = self._reaper.has_hints or self._clock.now() >= min(self._whole_at, self._sample_at)
        if self._is_deleted or not is_due:
            return
        try:
            self._reap_and_sample()
        except QueueNotFoundError:
            self._is_deleted = True
        finally:
            left = min(self._whole_at, self._sample_at) - self._clock.now()
            self._loop.seconds = max(REAP_S, left)

    def _reap_and_sample(self) -> None:
        self._record.check_open()
        now = self._passed_at = self._clock.now()
        if now >= self._whole_at:
            report = self._reaper.run_once(REAP_PIPES_MAX)
            is_idle = not (report.sealed or report.returned or report.retired or report.failed)
            self._whole_pause_s = min(2 * self._whole_pause_s, REAP_MAX_S) if is_idle else REAP_S
            is_rested = self._whole_pause_s == REAP_MAX_S
            self._whole_at = now + (self._spread(REAP_MAX_S) if is_rested else self._whole_pause_s)
        elif self._reaper.has_hints:
            self._reaper.run_once(0)
        if now >= self._tidy_at:
            self._tidy_at = now + self._spread(TIDY_S)
            self._staging.tidy()
        if now >= self._sample_at:
            self._sample_pause_s = SAMPLE_S if self._sample() else min(2 * self._sample_pause_s, SAMPLE_MAX_S)
            is_rested = self._sample_pause_s == SAMPLE_MAX_S
            self._sample_at = now + (self._spread(SAMPLE_MAX_S) if is_rested else self._sample_pause_s)

    def _spread(self, seconds: float) -> float:
        return self._polls.spread(seconds, PASSES_PER_S, self._queue)

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
