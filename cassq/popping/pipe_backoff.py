"""What a popper remembers of pipes it does not hold, and what the poppers of one process tell each other.

Owns for how long each is left alone and why, so that a look for messages costs nothing for pipes that had
none a moment ago. Everything here may be forgotten at any time; it only saves work, but for one question:
whether an older pipe may still hand out messages, which keeps the order of a popper of width 1.
"""

import threading
from collections.abc import Container
from uuid import UUID

from cassq.errors import CorruptError
from cassq.runtime.clock import Clock

#: A pipe that somebody else holds is tried again after so long, unless this popper is woken.
BUSY_S = 0.25

#: A pipe that somebody else has held for longer is another popper's: then there is no one order to keep.
PATIENCE_S = 1.0

#: What one popper found drained so lately, the others of its process believe, also when they are woken: a
#: wake-up does not tell which pipe it is for, and each would look into all of them.
BELIEVED_S = 0.25

#: So many pipes that are gone are remembered: others may have listed them before.
GONE_MAX = 4096


class Hearsay:
    """What the poppers of one process found: pipes that are drained or gone.

    All of a drained one was handed out, and is in somebody's hands. One that is gone never comes back.
    Safe to use from many threads, and from what interrupts one of them: each change is a single step.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._drained: dict[UUID, tuple[float, float, object]] = {}
        self._returned_at: dict[UUID, float] = {}
        self._gone: dict[UUID, None] = {}  # those that were found gone first come first

    def note_gone(self, pipe: UUID) -> None:
        """Note that a pipe is gone."""
        with self._lock:
            self._gone[pipe] = None
            if len(self._gone) > GONE_MAX:
                self._gone.pop(next(iter(self._gone)), None)

    def is_gone(self, pipe: UUID) -> bool:
        """Tell whether a pipe is gone."""
        return pipe in self._gone

    def note_drained(self, pipe: UUID, read_at: float, seconds: float, who: object) -> None:
        """Note that nothing of a pipe comes due for so long, as `who` read at `read_at`."""
        with self._lock:
            if read_at >= self._returned_at.get(pipe, float("-inf")):
                self._drained[pipe] = (read_at, self._clock.now() + seconds, who)

    def note_returned(self, pipe: UUID) -> None:
        """Note that something of a pipe came back, which a read before this does not know."""
        with self._lock:
            self._drained.pop(pipe, None)
            self._returned_at[pipe] = self._clock.now()

    def knows_drained(self, pipe: UUID) -> bool:
        """Tell whether somebody found a pipe drained: whatever comes back, nothing of it is new any more."""
        return pipe in self._drained

    def is_drained(self, pipe: UUID, since: float, who: object) -> bool:
        """Tell whether a pipe still rests.

        What was read before `since`, when `who` was woken, counts only if another read it, and lately.
        """
        read_at, until, finder = self._drained.get(pipe, (0.0, 0.0, who))
        now = self._clock.now()
        return now < until and (read_at >= since or (finder is not who and now - read_at < BELIEVED_S))

    def next_end(self, default: float) -> float:
        """Return in how many seconds the first rest ends, `default` at most."""
        now = self._clock.now()
        with self._lock:
            ends = [until - now for _, until, _ in self._drained.copy().values() if until > now]
        return min([*ends, default])

    def keep_only(self, listed: Container[UUID]) -> None:
        """Forget pipes that are not listed any more."""
        with self._lock:
            for remembered in (self._drained, self._returned_at):
                for pipe in [pipe for pipe in remembered.copy() if pipe not in listed]:
                    remembered.pop(pipe, None)


class PipeBackoff:
    """Resting, busy and exhausted pipes of one queue.

    Args:
        hearsay: shared with the other poppers of the process.
    """

    def __init__(self, clock: Clock, hearsay: Hearsay) -> None:
        self._clock = clock
        self._hearsay = hearsay
        self._woken_at = float("-inf")
        self._resting_until: dict[UUID, float] = {}
        self._busy_until: dict[UUID, float] = {}
        self._busy_since: dict[UUID, float] = {}
        self._exhausted: set[UUID] = set()
        self._spoilt: dict[UUID, CorruptError] = {}

    def is_left_alone(self, pipe: UUID) -> bool:
        """Tell whether to leave a pipe alone for now."""
        until = max(self._resting_until.get(pipe, 0.0), self._busy_until.get(pipe, 0.0))
        return until > self._clock.now() or self._hearsay.is_drained(pipe, self._woken_at, self)

    def note_rest(self, pipe: UUID, seconds: float) -> None:
        """Note that a pipe has nothing to take for so long."""
        if seconds > 0:
            self._resting_until[pipe] = self._clock.now() + seconds

    def note_drained(self, pipe: UUID, read_at: float, seconds: float) -> None:
        """Note that by a read all of a pipe was handed out, and that nothing of it comes due for so long."""
        self._hearsay.note_drained(pipe, read_at, seconds, self)

    def note_returned(self, pipe: UUID) -> None:
        """Note that something of a pipe came back; callable from any thread."""
        self._hearsay.note_returned(pipe)

    def note_busy(self, pipe: UUID) -> None:
        """Note that somebody else holds a pipe."""
        now = self._clock.now()
        self._busy_until[pipe] = now + BUSY_S
        self._busy_since.setdefault(pipe, now)
        self._spoilt.pop(pipe, None)

    def note_claimed(self, pipe: UUID) -> None:
        """Note that nobody else holds a pipe any more."""
        self._busy_since.pop(pipe, None)
        self._spoilt.pop(pipe, None)

    def note_spoilt(self, pipe: UUID, error: CorruptError, seconds: float) -> None:
        """Note why a pipe cannot be read, and leave it alone for so long: the others are not held up."""
        self._spoilt[pipe] = error
        self.note_rest(pipe, seconds)

    @property
    def trouble(self) -> CorruptError | None:
        """Why a pipe could not be read when this popper last had it; None when all could."""
        return next(iter(self._spoilt.values()), None)

    def note_gone(self, pipe: UUID) -> None:
        """Note that a pipe is gone: nobody of this process need look again."""
        self._hearsay.note_gone(pipe)

    def is_gone(self, pipe: UUID) -> bool:
        """Tell whether somebody of this process found a pipe gone."""
        return self._hearsay.is_gone(pipe)

    def note_exhausted(self, pipe: UUID) -> None:
        """Note that a pipe will never hand out a message for the first time again."""
        self._exhausted.add(pipe)

    def may_have_older(self, pipe: UUID) -> bool:
        """Tell whether a pipe may still hand out messages that come before those of its successors."""
        if pipe in self._exhausted or self._hearsay.knows_drained(pipe):
            return False
        busy_since = self._busy_since.get(pipe)
        return busy_since is None or self._clock.now() - busy_since < PATIENCE_S

    def retry(self, *, is_woken: bool) -> None:
        """Try busy pipes anew; with `is_woken` also those that had nothing to take."""
        self._busy_until.clear()
        if is_woken:
            self._resting_until.clear()
            self._woken_at = self._clock.now()

    def next_end(self, default: float) -> float:
        """Return in how many seconds the first rest ends, `default` at most."""
        now = self._clock.now()
        own = [until - now for until in self._resting_until.values() if until > now]
        return self._hearsay.next_end(min([*own, default]))

    def keep_only(self, listed: Container[UUID]) -> None:
        """Forget pipes that are not listed any more."""
        self._exhausted = {pipe for pipe in self._exhausted if pipe in listed}
        self._hearsay.keep_only(listed)
        for remembered in (self._resting_until, self._busy_until, self._busy_since, self._spoilt):
            for pipe in [pipe for pipe in remembered if pipe not in listed]:
                del remembered[pipe]
