"""What purges may have ended, and so which messages may be missing.

Owns the account of purges; `cassq.verification.checker.judge` tells what it excuses. Pure. What must not
break: a purge excuses as many messages as it told of, and of those only what it can have ended: pushed before
it was over, and by then in nobody's hands.

A purge that was begun and never returned tells nothing: it may have ended any number of messages, and what it
sent last may arrive at any time.
"""

from collections import Counter
from collections.abc import Iterable

from cassq.verification.ledger import Line


class PurgeRules:
    """PurgeRules by their ends."""

    def __init__(self) -> None:
        self._begun: dict[str, int] = {}
        self._ended: list[tuple[float, int]] = []

    def note_purging(self, line: Line) -> None:
        """Note that a purge is about to begin."""
        self._begun[line.who] = self._begun.get(line.who, 0) + 1

    def note_purged(self, line: Line) -> None:
        """Note that a purge returned, and how many messages it ended."""
        self._begun[line.who] = self._begun.get(line.who, 0) - 1
        self._ended.append((line.at, line.count))

    def excused(self, free_at: Iterable[tuple[float, str]]) -> Counter[str]:
        """Return which of the messages that are missing purges may have ended, and how many of each name.

        Args:
            free_at: since when each of them could be purged for good: it was pushed, and whoever had it last
                had it no longer.
        """
        if any(count > 0 for count in self._begun.values()):
            return Counter(message for _, message in free_at)
        ended = sorted(self._ended)
        left = 0
        found: Counter[str] = Counter()
        # The later a message came free, the fewer purges can have ended it: those first.
        for at, message in sorted(free_at, reverse=True):
            while ended and ended[-1][0] >= at:
                left += ended.pop()[1]
            if left:
                left -= 1
                found[message] += 1
        return found
