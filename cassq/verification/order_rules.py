"""Which deliveries overtook an earlier message of their pipe.

Owns the meaning of "reordered", which is P6 of docs/protocol.md as one consumer sees it, and what excuses it;
`cassq.verification.checker.judge` tells both. Pure. What must not break: no history that the protocol allows
is called broken.

What a popper gives back out of its buffer was never handed out, counts no attempt, and may come to somebody
who is already past it:

    popper A                      the pipe                     popper B
    | take 1..10 ---------------> |                            |
    | hands out 1..4              | <------------- take 11..20 |
    | closes: 5..10 go back ----> |                            | hands out 11..20
    |                             | <-------------- take 5..10 | attempt 1, and late

No ledger tells what was in a buffer, so whatever was pushed before such a moment is excused after it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate

from cassq.verification.ledger import Line

#: A holder that notes no delivery for so long may have given its buffer back. Half of the time after which
#: poppers do (`cassq.popping.timing.IDLE_S`): one line in the middle of that time may have been
#: noted late.
REST_S = 2.5

_FOREVER = float("inf")


class OrderRules:
    """First deliveries of each holder and pipe, and the times in which buffers may have gone back."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], int] = {}
        self._overtaken: list[tuple[Line, int]] = []
        self._delivered_at: dict[str, float] = {}
        self._closing_at: dict[str, float] = {}
        self._gone_at: dict[str, float] = {}
        self._rests: list[tuple[float, float]] = []

    def note_delivered(self, line: Line) -> None:
        """Note a delivery with its place."""
        who, at = line.who, line.at
        since = self._resting_since(who)
        if since < at:
            self._rests.append((since, at))
            self._closing_at.pop(who, None)
        self._delivered_at[who] = at
        if line.attempt != 1:
            return
        place = (who, line.pipe)
        highest = self._highest.get(place, 0)
        if line.seq >= highest:  # the same number twice is no matter of order
            self._highest[place] = line.seq
        else:
            self._overtaken.append((line, highest))

    def note_closing(self, line: Line) -> None:
        """Note that a holder's buffer goes back from now on, until its next delivery."""
        self._closing_at.setdefault(line.who, line.at)

    def note_gone(self, line: Line) -> None:
        """Note that a holder has ended or died: nothing goes back any more."""
        self._gone_at[line.who] = max(line.at, self._gone_at.get(line.who, 0.0))

    def overtaken(self, begun_at: Mapping[str, float]) -> Iterator[str]:
        """Yield in words the deliveries that come too late, and that nothing excuses.

        Args:
            begun_at: when the push of each message began.
        """
        if not self._overtaken:
            return
        rests = sorted([*self._rests, *self._last_rests()])
        starts = [start for start, _ in rests]
        ends = list(accumulate((end for _, end in rests), max))
        for line, highest in self._overtaken:
            begun = bisect_right(starts, line.at)
            if not begun or ends[begun - 1] < begun_at.get(line.message, 0.0):
                yield (
                    f"{line.message}: {line.who} got {line.pipe}:{line.seq} at {line.at:.3f}, "
                    f"after {line.pipe}:{highest}"
                )

    def _last_rests(self) -> Iterator[tuple[float, float]]:
        for who in self._delivered_at | self._closing_at:
            start, gone_at = self._resting_since(who), self._gone_at.get(who, _FOREVER)
            # A name that is heard of after its end was given to another process since.
            heard_at = max(self._delivered_at.get(who, 0.0), self._closing_at.get(who, 0.0))
            end = _FOREVER if gone_at < heard_at else gone_at
            if start <= end:
                yield start, end

    def _resting_since(self, who: str) -> float:
        resting_at = self._delivered_at.get(who, _FOREVER) + REST_S
        return min(resting_at, self._closing_at.get(who, _FOREVER)) if self._closing_at else resting_at
