"""What is found when everything has come to its end, and whether it is as it was promised.

Owns the rules that compare the ledgers' verdict with the queue's own totals. Refuses to read either. What
must not break: every figure is held to be exact; only a push whose outcome nobody heard leaves room.
"""

from dataclasses import dataclass

from cassq.checker import Verdict
from cassq.ledger import Kind, Line
from cassq.statistics import QueueStats


@dataclass(frozen=True, slots=True)
class Reckoning:
    """What was found in the end."""

    verdict: Verdict
    stats: QueueStats
    lines: list[Line]

    def broken(self) -> list[str]:
        """Return in words what is not as it was promised, and each figure that is not exactly right."""
        verdict, stats = self.verdict, self.stats
        trouble = [f"{line.who}: {line.words}" for line in self.lines if line.kind == Kind.TROUBLE]
        # What a killed pusher had on its way has no outcome in its ledger.
        heard = verdict.acknowledged | verdict.refused | verdict.unknown
        open_ended = len(verdict.unknown) + len(verdict.attempted - heard)
        ended = verdict.committed | verdict.maybe_committed
        left = (stats.waiting, stats.pending, stats.delayed, stats.dead, stats.pipes)
        rules = {
            "pushed is not what was acknowledged": (
                len(verdict.acknowledged) <= stats.pushed <= len(verdict.acknowledged) + open_ended
            ),
            "pushed, popped and committed differ": stats.pushed == stats.popped == stats.committed,
            "committed is not what the ledgers tell": stats.committed == len(ended),
            "waiting, pending, delayed, dead and pipes are not all 0": not any(left),
            "something was delivered and never committed": verdict.delivered <= ended,
        }
        return [*trouble, *verdict.broken(), *(what for what, is_so in rules.items() if not is_so)]
