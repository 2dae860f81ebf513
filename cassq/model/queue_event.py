"""What the journal keeps of a queue that was deleted.

Owns the event's text. Refuses to know what was in its pipes: they go with it, without events.
"""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from cassq.model.tally import Tally

_VERSION = 1


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """That a queue was deleted.

    Attributes:
        deleted_at: by the database's clock, or a moment before.
        totals: the tallies of all pipes that had retired by then.
    """

    queue: str
    incarnation: UUID
    deleted_at: datetime
    totals: Tally
    first: int = 1

    @property
    def key(self) -> str:
        """What says in the log whose event it is: no pipe has this name."""
        return f"queue:{self.incarnation}"

    def to_body(self) -> bytes:
        """Return it as it is published."""
        at = self.deleted_at.isoformat(timespec="milliseconds")
        told = {"version": _VERSION, "queue": self.queue, "deleted_at": at, "totals": asdict(self.totals)}
        return json.dumps(told, separators=(",", ":")).encode()
