"""How long a lane waits, before its next batch, for the callers whom it just answered.

Owns that decision for one lane; refuses to know what is pushed. Threads that push in a loop come back well
within the time that a write takes. A lane that sends at once what is there finds only those who came during
the write before:

    at once                               gathered
    | writes 1..32   33..64 come          | writes 1..64
    | answers 1..32, writes 33..64        | answers them; they come back
    |                1..32 come back      | writes 1..64

Both keep all of them busy; the right side does it with half of the statements. What must not break: nobody
waits here longer than the write before took, nor for callers who do not come back.
"""

from cassq.pushing.push_buffer import PushBuffer

#: Nobody waits longer than that for others.
GATHER_MAX_S = 0.002

#: Fewer callers than that are not waited for.
CALLERS_MIN = 4

#: After a wait that brought less than half, so many batches at most go without one.
SKIPPED_MAX = 64


class Linger:
    """Remembers whether the callers of one lane come back."""

    def __init__(self) -> None:
        self._callers = 0
        self._seconds = 0.0
        self._to_skip = 0
        self._skipped_last = 0

    def note_answered(self, callers: int, seconds: float) -> None:
        """Hear that so many callers of `push` were answered, by a write that took so long."""
        self._callers = callers
        self._seconds = min(seconds, GATHER_MAX_S)

    def wait(self, buffer: PushBuffer) -> None:
        """Wait for them, if they used to come back; one in eight may take its time."""
        callers, self._callers = self._callers, 0
        if callers < CALLERS_MIN:
            return
        if self._to_skip:
            self._to_skip -= 1
            return
        came = buffer.gather(callers - callers // 8, self._seconds)
        if came is None or 2 * came >= callers:
            self._skipped_last = 0
        else:
            self._skipped_last = min(SKIPPED_MAX, 2 * self._skipped_last or 1)
        self._to_skip = self._skipped_last
