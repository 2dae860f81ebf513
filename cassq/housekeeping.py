"""What a process with poppers does for its queue in the background.

Owns when the reaper makes a pass and when a sample for the rates is taken. Neither is needed for any
promise: a process that never does them leaves them to the others.
"""

from dataclasses import replace
from uuid import UUID

from cassq.clock import Clock
from cassq.errors import QueueNotFoundError
from cassq.live_record import LiveRecord
from cassq.loop import Loop
from cassq.model.queue_record import Sample
from cassq.reaper import Reaper
from cassq.statistics import SAMPLES_MAX, Statistics

#: How often a process with poppers reaps, and how many pipes it examines then.
REAP_S = 2.0
REAP_PIPES_MAX = 32

#: Pipes that got empty are looked at this soon.
REAP_SOON_S = 0.5

#: How often it looks whether a sample for the rates is due, and how seldom while nothing moves.
SAMPLE_S = 5.0
SAMPLE_MAX_S = 40.0


class Housekeeping:
    """Reaps and samples one queue until it is closed."""

    def __init__(
        self, queue: str, reaper: Reaper, statistics: Statistics, record: LiveRecord, clock: Clock
    ) -> None:
        self._reaper = reaper
        self._statistics = statistics
        self._record = record
        self._clock = clock
        self._sample_pause_s = SAMPLE_S
        self._sample_at = 0.0
        self._is_deleted = False
        self._passed_at = 0.0
        self._whole_at = 0.0
        self._taken: tuple[Sample, ...] = ()
        self._loop = Loop(f"cassq-reap-{queue}", self.run_once, REAP_S, clock)

    def run_once(self) -> None:
        """Make one short pass; none any more once the queue was deleted."""
        if self._is_deleted:
            return
        try:
            self._reap_and_sample()
        except QueueNotFoundError:
            self._is_deleted = True

    def _reap_and_sample(self) -> None:
        self._record.check_open()
        now = self._passed_at = self._clock.now()
        is_whole = now - self._whole_at >= REAP_S
        if is_whole:
            self._whole_at = now
        self._reaper.run_once(REAP_PIPES_MAX if is_whole else 0)
        if now >= self._sample_at:
            self._sample_pause_s = SAMPLE_S if self._sample() else min(2 * self._sample_pause_s, SAMPLE_MAX_S)
            self._sample_at = now + self._sample_pause_s

    def hint(self, pipe: UUID) -> None:
        """Hear that a pipe may be over, and look at it soon: a drain stays even when pipes go one by one."""
        self._reaper.hint(pipe)
        if self._clock.now() - self._passed_at >= REAP_SOON_S:
            self._loop.poke()

    def close(self) -> None:
        """End after the pass under way."""
        self._loop.close()

    def _sample(self) -> bool:
        """Remember how far the queue is; False when nothing has moved.

        Of many processes one is enough: whoever sees that a sample was taken since it last looked leaves it
        at that, without reading a pipe.
        """
        taken = self._record.read().samples[-1:]
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
