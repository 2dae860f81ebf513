"""What is stored of a queue itself: its settings, its state, and the totals of its retired pipes.

One small row, changed by compare-and-set only. The rule that must not break: a retired pipe's tally enters
`totals` exactly once. `counted` names the pipes whose tally is in but which may still stand, so:

    reaper A                    the record                    reaper B
    | read record (op 1) ------->                             |
    | read P: sealed, all ended                               |
    |                              <----- count P (op 1 -> 2) |
    | count P IF op = 1 ---------> refused                    | retire P, delete P
    | read record (op 2 or later), then P: gone: done         |

A pipe leaves `counted` only once its head is retired or gone, and whoever counts reads the record before
the head: then either the record it saw still names the pipe, or the head it read is no longer sealed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from uuid import UUID

from cassq.model.settings import QueueSettings
from cassq.model.tally import Tally


class QueueState(Enum):
    """Whether poppers may take."""

    ACTIVE = "active"
    PAUSED = "paused"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Sample:
    """How far the queue was at one moment; rates are the difference between two.

    Attributes:
        at_ms: the database's clock.
    """

    at_ms: int
    pushed: int
    popped: int
    committed: int


@dataclass(frozen=True, slots=True)
class Written:
    """What was decided of a writer that stages pipes (see `cassq.bulk.staging`).

    Attributes:
        batch: number of the last of its batches that was decided to be published.
        manifest: the staged pipe that names what is published; None once all of it is.
    """

    batch: int
    manifest: UUID | None = None


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """One queue, as stored.

    Attributes:
        name: the queue's name.
        incarnation: tells a queue from an earlier one of the same name.
        settings: what it was created with, or altered to since.
        state: active, paused, or deleted (its pipes are being removed).
        op: changes with every write; what the next one is conditional on.
        totals: the tallies of all retired pipes.
        counted: pipes whose tally is in `totals` and which may still be listed.
        samples: a few readings of the past minutes, oldest first; of a deleted queue that keeps a journal,
            none any more once the event of its deletion is there.
        writers: by name, what was decided of writers that stage pipes.
        publications: how often staged pipes were published: what is listed since may have older ids.
        read_at_ms: the database's clock when it was glanced at, where it has one of its own; 0 if not.
    """

    name: str
    incarnation: UUID
    settings: QueueSettings
    op: UUID
    state: QueueState = QueueState.ACTIVE
    totals: Tally = field(default_factory=Tally)
    counted: frozenset[UUID] = frozenset()
    samples: tuple[Sample, ...] = ()
    writers: Mapping[str, Written] = field(default_factory=dict)
    publications: int = 0
    read_at_ms: int = field(default=0, compare=False)

    @property
    def owes_event(self) -> bool:
        """Whether the event of its deletion may not be in the journal yet."""
        return self.state is QueueState.DELETED and self.settings.journal != "off" and bool(self.samples)

    def deleted(self, at_ms: int) -> "QueueRecord":
        """Return it as a deleted queue's, whose samples are what it owes an event for.

        Args:
            at_ms: the database's clock before the deletion.
        """
        totals = self.totals
        last = Sample(at_ms, totals.pushed, totals.popped, totals.committed)
        return replace(self, state=QueueState.DELETED, samples=(last,))
