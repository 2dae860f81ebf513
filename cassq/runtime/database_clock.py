"""Between which two times the database's clock is by now, by what one answer told.

Owns the two bounds of a reading, and which of two readings is kept. Pure: the clock hands in its own times.
What must not break: the database's clock, as the node shows it that answered, is never outside the bounds.

    asked ---- told ---- answered ------------------------ now
    |          what was told at this moment, at the latest: since then at least that much has passed
    at this moment, at the earliest: since then no more than that has passed

Both hold at any time after the answer: two clocks drift apart by DRIFT of what passes at most; what passed
since the answer is taken by a clock that may have missed a pause, and what passed since the question by one
that counts each pause that a witness tells. So a message is never early: it is due at an upper bound and its
delay, and handed out once a lower bound has reached that.

Any reading would do, and the one that leaves least open is kept, be it older: the first answers of a process
take ten times as long as later ones, and what they leave open makes messages late. Both bounds are of one
answer: with those of two nodes, one's clock would be put against the other's. An answer that is at odds with
what is known is of another node, or of a clock that was set, or came after a pause that nobody told: then it
counts, and what was known does not. A step that goes unseen is smaller than what the last answer left open.
"""

from dataclasses import dataclass
from typing import Final

#: Two clocks drift apart by so much of the time that passes, at most.
DRIFT: Final = 0.0005


@dataclass(frozen=True, slots=True)
class Reading:
    """What one answer told.

    Attributes:
        told_ms: the database's clock, in milliseconds since 1970, rounded or cut off.
        asked_at: the process's `latest` from before the question.
        answered_at: its `now` from after the answer.
    """

    told_ms: int
    asked_at: float
    answered_at: float

    def at_least_ms(self, now: float) -> float:
        """Return what the database's clock shows by now, at the least."""
        return self.told_ms + 1000 * (now - self.answered_at) / (1 + DRIFT)

    def at_most_ms(self, latest: float) -> float:
        """Return what the database's clock shows by now, at the most."""
        return self.told_ms + 1 + 1000 * (latest - self.asked_at) * (1 + DRIFT)

    def until_shown(self, database_ms: int) -> float:
        """Return the reading of `now` from which on the database's clock shows that, for certain."""
        return self.answered_at + (database_ms - self.told_ms) / 1000 * (1 + DRIFT)


def sharper(known: Reading | None, heard: Reading, now: float, latest: float) -> Reading:
    """Return which of two readings to keep: the one that leaves less open, if both can be true."""
    if known is None:
        return heard
    least, most = known.at_least_ms(now), known.at_most_ms(latest)
    heard_least, heard_most = heard.at_least_ms(now), heard.at_most_ms(latest)
    is_at_odds = heard_most < least or most < heard_least
    return heard if is_at_odds or heard_most - heard_least <= most - least else known
