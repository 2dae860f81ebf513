"""When who offered something looks, and when it stops waiting for a scribe.

Owns times alone: nothing that it says can lose a message, or publish it twice.
"""

from cassq.model.ids import new_token

#: Who offered something asks for the scribe's claim after so long, and up to twice as long, so that not all
#: come at once; and links it without the claim after so much longer.
LATE_S, PATIENCE_S = 0.1, 1.0

#: Nor is it waited for once the log moved so often without the offer: nobody reads what is offered.
MOVES_MAX = 3

#: How long between two looks.
LOOK_MIN_S, LOOK_MAX_S = 0.002, 1.0


class OfferWatch:
    """How long an offer has been waiting, and what happened meanwhile.

    Args:
        usual_s: how long offers took until now.
    """

    def __init__(self, now: float, usual_s: float) -> None:
        self.begun_at = self._moved_at = self._asked_at = now
        self._usual_s = usual_s
        self._next = 0
        self._moves = -1
        self._looks = 0
        self._late_s = max(LATE_S, 4 * usual_s) * (1 + new_token().int % 1000 / 1000)

    def pause_s(self) -> float:
        """Return how long to rest before the next look: it mostly shows the offer linked."""
        self._looks += 1
        return max(LOOK_MIN_S, min(LOOK_MAX_S, self._usual_s * (0.7 if self._looks == 1 else 0.3)))

    def note(self, after: int, now: float) -> None:
        """Note where the log ends."""
        if after != self._next:
            self._next, self._moves, self._moved_at = after, self._moves + 1, now

    def is_late(self, now: float) -> bool:
        """Tell whether nobody seems to link what is offered; once, and then after as long again."""
        since = self.begun_at if self._moves >= MOVES_MAX else self._moved_at
        is_late = now - max(since, self._asked_at) >= self._late_s
        self._asked_at = now if is_late else self._asked_at
        return is_late

    def is_over(self, now: float) -> bool:
        """Tell whether to wait no more, whoever has the claim."""
        return now - self.begun_at >= max(PATIENCE_S, 8 * self._usual_s) + self._late_s
