"""What a history shows, message by message, and which promises it broke.

Owns the words of the checker's answer. Refuses to judge: that is `cassq.verification.checker`. Pure.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

#: How many of a kind `Verdict.broken` names.
_NAMED = 10


@dataclass(slots=True)
class Verdict:
    """What a history shows, message by message.

    Attributes:
        attempted: messages of which any line of a push tells.
        acknowledged, refused, unknown: what the pushes ended with.
        delivered, committed: each message counted once.
        maybe_committed: a commit was begun, and nobody noted how it ended, or that nobody knows.
        dead: found among the dead letters.
        purged: missing, and so many are that purges may have ended; or cancelled.
        lost: acknowledged, and neither committed nor perhaps committed nor dead nor discarded nor purged
            nor cancelled; or put back, and fewer of its name have ended so than there must be.
        unexpected: delivered though never attempted, or though the push said that it did not happen.
        damaged: delivered with another digest than it was pushed with, or with two.
        explained: deliveries after the first, by the reason for them.
        unexplained: the others, commits that return twice, dead letters that were committed or came back, and
            more messages of one name than were pushed, in words.
        reordered: first deliveries that overtook another of their pipe, in words.
    """

    attempted: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    delivered: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)
    maybe_committed: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    unexpected: set[str] = field(default_factory=set)
    damaged: set[str] = field(default_factory=set)
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)

    def broken(self) -> list[str]:
        """Return the promises that were broken, in words, naming the first few messages; none is good."""
        found = {
            "lost": sorted(self.lost),
            "unexpected": sorted(self.unexpected),
            "damaged": sorted(self.damaged),
            "delivered or committed again without a reason": self.unexplained,
            "out of order in its pipe": self.reordered,
        }
        return [
            f"{what} {len(each)}: {'; '.join(each[:_NAMED])}{' …' if len(each) > _NAMED else ''}"
            for what, each in found.items()
            if each
        ]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: how many were fine, and which were not."""
        counted = ("attempted", "acknowledged", "refused", "unknown", "delivered", "committed")
        named = ("lost", "unexpected", "damaged", "unexplained", "reordered")
        return {
            **{name: len(getattr(self, name)) for name in (*counted, "maybe_committed", "dead", "purged")},
            "explained": dict(self.explained),
            **{name: sorted(getattr(self, name)) for name in named},
        }

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(self.explained.items()))
        return (
            f"attempted {len(self.attempted)}, acknowledged {len(self.acknowledged)}, "
            f"refused {len(self.refused)}, unknown {len(self.unknown)}, delivered {len(self.delivered)}, "
            f"committed {len(self.committed)} (+ {len(self.maybe_committed)} perhaps), "
            f"dead {len(self.dead)}, purged {len(self.purged)}, lost {len(self.lost)}, "
            f"unexpected {len(self.unexpected)}, damaged {len(self.damaged)}, "
            f"delivered again with a reason {self.explained.total()}{f' ({reasons})' if reasons else ''}, "
            f"without {len(self.unexplained)}, out of order {len(self.reordered)}"
        )
