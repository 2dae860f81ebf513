"""What a popper remembers of pipes that it does not hold.

Owns for how long each is left alone and why, so that a look for messages costs nothing for pipes that had
none a moment ago. Everything here may be forgotten at any time; it only saves work, but for one question:
whether an older pipe may still hand out messages, which keeps the order of a popper of width 1.
"""

import threading
from collections.abc import Container
from uuid import UUID

from cassq.errors import CorruptError
from cassq.popping.timing import BETTER_S, BUSY_S, PATIENCE_S
from cassq.runtime.clock import Clock

#: So many pipes that are gone are remembered: a listing from before may still have them.
GONE_MAX = 4096


class GonePipes:
    """Pipes of a queue that poppers or the reaper of this process found gone; none comes back.

    Safe to use from many threads, and from what interrupts one of them: each change is a single step.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pipes: dict[UUID, None] = {}  # those that were found gone first come first

    def note(self, pipe: UUID) -> None:
        """Note that a pipe is gone."""
        with self._lock:
            self._pipes[pipe] = None
            if len(self._pipes) > GONE_MAX:
                self._pipes.pop(next(iter(self._pipes)), None)

    def __contains__(self, pipe: UUID) -> bool:
        return pipe in self._pipes


class PipeBackoff:
    """Resting, busy, drained and exhausted pipes of one queue.

    Of a drained one all was handed out, and is in somebody's hands: nothing of it is due before its rest
    ends.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken_at = float("-inf")
        self._resting_until: dict[UUID, float] = {}
        self._busy_until: dict[UUID, float] = {}
        self._busy_since: dict[UUID, float] = {}
        self._exhausted: set[UUID] = set()
        self._spoilt: dict[UUID, CorruptError] = {}
        # These are changed by consumers' threads, too, and by what interrupts them.
        self._lock = threading.RLock()
        self._drained: dict[UUID, tuple[float, float]] = {}
        self._not_due_until: dict[UUID, float] = {}
        self._returned_at: dict[UUID, float] = {}

    def is_left_alone(self, pipe: UUID) -> bool:
        """Tell whether to leave a pipe alone for now."""
        sent_at, until = self._drained.get(pipe, (0.0, 0.0))
        if sent_at < self._woken_at:
            until = 0.0  # the wake-up may be for this one
        return (
            max(
                *(until, self._resting_until.get(pipe, 0.0), self._busy_until.get(pipe, 0.0)),
                self._not_due_until.get(pipe, 0.0),
            )
            > self._clock.now()
        )

    def note_rest(self, pipe: UUID, seconds: float) -> None:
        """Note that a pipe has nothing to take for so long."""
        if seconds > 0:
            self._resting_until[pipe] = self._clock.now() + seconds

    def note_not_due(self, pipe: UUID, sent_at: float, seconds: float) -> None:
        """Note that nothing of a pipe is due for so long, whatever is pushed meanwhile.

        Args:
            sent_at: as of `note_drained`.
        """
        with self._lock:
            if sent_at >= self._returned_at.get(pipe, float("-inf")):
                self._not_due_until[pipe] = self._clock.now() + seconds

    def note_drained(self, pipe: UUID, sent_at: float, seconds: float) -> None:
        """Note that all of a pipe was handed out, and that nothing of it comes due for so long.

        Args:
            sent_at: when the read was sent that showed it. What came back since may be missing in it.
        """
        with self._lock:
            if sent_at >= self._returned_at.get(pipe, float("-inf")):
                self._drained[pipe] = (sent_at, self._clock.now() + seconds)

    def note_returned(self, pipe: UUID) -> None:
        """Note that something of a pipe came back, which no read before tells; callable from any thread."""
        with self._lock:
            self._drained.pop(pipe, None)
            self._not_due_until.pop(pipe, None)
            self._returned_at[pipe] = self._clock.now()

    def note_busy(self, pipe: UUID, *, is_urgent: bool = False) -> None:
        """Note that somebody else holds a pipe."""
        now = self._clock.now()
        self._busy_until[pipe] = now + (BETTER_S if is_urgent else BUSY_S)
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

    def note_exhausted(self, pipe: UUID) -> None:
        """Note that a pipe will never hand out a message for the first time again."""
        self._exhausted.add(pipe)

    def may_have_older(self, pipe: UUID) -> bool:
        """Tell whether a pipe may still hand out messages that come before those of its successors."""
        if pipe in self._exhausted:
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
        with self._lock:
            ends = [until for _, until in self._drained.copy().values()]
            ends += self._not_due_until.copy().values()
        ends += self._resting_until.values()
        return min([*(end - now for end in ends if end > now), default])

    def keep_only(self, listed: Container[UUID]) -> None:
        """Forget pipes that are not listed any more."""
        self._exhausted = {pipe for pipe in self._exhausted if pipe in listed}
        with self._lock:
            for remembered in (
                *(self._resting_until, self._busy_until, self._busy_since, self._spoilt),
                *(self._drained, self._returned_at, self._not_due_until),
            ):
                for pipe in [pipe for pipe in remembered.copy() if pipe not in listed]:
                    remembered.pop(pipe, None)
