"""That a queue has a topic's messages, as the topic's record stores it."""

import json
from dataclasses import dataclass
from typing import Literal
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Subscription:
    """That a queue has a topic's messages.

    Attributes:
        incarnation: the queue's: a later one of its name is not meant.
        types: shell patterns: only messages whose header `type` matches one; None for all.
        on_gone: "oldest": it goes on at the oldest offset where the next one was deleted; else it ends.
    """

    incarnation: UUID
    types: tuple[str, ...] | None = None
    on_gone: Literal["error", "oldest"] = "error"

    def to_text(self) -> str:
        """Return it as it is stored."""
        stored = {"incarnation": str(self.incarnation), "types": self.types, "on_gone": self.on_gone}
        return json.dumps(stored)

    @classmethod
    def from_text(cls, stored: str) -> "Subscription":
        """Return what was stored.

        Raises: ValueError, KeyError, TypeError: it is none.
        """
        found = json.loads(stored)
        types = None if found["types"] is None else tuple(map(str, found["types"]))
        return cls(UUID(found["incarnation"]), types, "oldest" if found["on_gone"] == "oldest" else "error")
