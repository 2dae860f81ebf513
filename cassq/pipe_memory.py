"""What a popper remembers of pipes it does not hold.

Owns for how long each is left alone and why, so that a look for messages costs nothing for pipes that had
none a moment ago. Everything here may be forgotten at any time; it only saves work, but for one question:
whether an older pipe may still hand out messages, which keeps the order of a popper of width 1.
"""

from collections.abc import Container
from uuid import UUID

from cassq.clock import Clock
from cassq.errors import CorruptError

#: A pipe that somebody else holds is tried again after so long, unless this popper is woken.
BUSY_S = 0.25

#: A pipe that somebody else has held for longer is another popper's: then there is no one order to keep.
PATIENCE_S = 1.0


class PipeMemory:
    """Resting, busy and exhausted pipes of one queue."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resting_until: dict[UUID, float] = {}
        self._busy_until: dict[UUID, float] = {}
        self._busy_since: dict[UUID, float] = {}
        self._exhausted: set[UUID] = set()
        self._spoilt: dict[UUID, CorruptError] = {}

    def is_left_alone(self, pipe: UUID) -> bool:
        """Tell whether to leave a pipe alone for now."""
        until = max(self._resting_until.get(pipe, 0.0), self._busy_until.get(pipe, 0.0))
        return until > self._clock.now()

    def note_rest(self, pipe: UUID, seconds: float) -> None:
        """Note that a pipe has nothing to take for so long."""
        if seconds > 0:
            self._resting_until[pipe] = self._clock.now() + seconds

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

    def next_end(self, default: float) -> float:
        """Return in how many seconds the first rest ends, `default` at most."""
        now = self._clock.now()
        return min([until - now for until in self._resting_until.values() if until > now] + [default])

    def keep_only(self, listed: Container[UUID]) -> None:
        """Forget pipes that are not listed any more."""
        self._exhausted = {pipe for pipe in self._exhausted if pipe in listed}
        for remembered in (self._resting_until, self._busy_until, self._busy_since, self._spoilt):
            for pipe in [pipe for pipe in remembered if pipe not in listed]:
                del remembered[pipe]
