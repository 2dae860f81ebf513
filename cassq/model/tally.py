"""What became of messages, in figures that may be added up."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the messages of a pipe (up to its floor), or of a whole queue's retired pipes.

    Attributes:
        pushed: messages that were pushed.
        popped: messages that were handed out at least once.
        committed: messages that a consumer committed.
        dead: messages that went to the dead letters.
        purged: messages that were purged or cancelled.
        rolled_back: how often a message came back: by a rollback or because its lease ran out.
        expired: messages that were dropped because they had waited for longer than their ttl.
    """

    pushed: int = 0
    popped: int = 0
    committed: int = 0
    dead: int = 0
    purged: int = 0
    rolled_back: int = 0
    expired: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        """Add two tallies, field by field."""
        return Tally(
            self.pushed + other.pushed,
            self.popped + other.popped,
            self.committed + other.committed,
            self.dead + other.dead,
            self.purged + other.purged,
            self.rolled_back + other.rolled_back,
            self.expired + other.expired,
        )
