"""What is told of a queue, of its priorities, types and pipes: figures, and nothing that counts them.

Owns the meaning of every figure, and its form in JSON. What must not break: a figure keeps its name there,
for what reads it is not ours.
"""

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class PriorityStats:
    """What a queue holds of one priority.

    Attributes:
        priority: from 0 to 9.
        waiting, pending, delayed: messages now, as in `QueueStats`.
        oldest_age: since when the oldest of them is there; None when there is none.
    """

    priority: int
    waiting: int
    pending: int
    delayed: int
    oldest_age: timedelta | None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; the age in seconds, as `oldest_age_s`."""
        return _to_json(asdict(self))


@dataclass(frozen=True, slots=True)
class TypeStats:
    """What a queue holds of one type.

    Attributes:
        type: its name; None for messages without one.
        waiting, pending, delayed: messages now, as in `QueueStats`.
        oldest_age: since when the oldest of them is there; None when there is none.
    """

    type: str | None
    waiting: int
    pending: int
    delayed: int
    oldest_age: timedelta | None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; the age in seconds, as `oldest_age_s`."""
        return _to_json(asdict(self))


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What a queue holds, and what went through it since it was created.

    Attributes:
        queue: its name.
        state: "active" or "paused".
        waiting: messages that may be delivered now.
        pending: messages in consumers' hands, or in those of a popper that took them ahead, or while their
            keys are busy.
        delayed: messages that are not due yet, or were rolled back with a delay that still runs.
        pushed, popped, committed, purged, expired: totals of messages; popped counts a message once, expired
            those that were dropped.
        dead: total of messages that went to the dead letters, or are about to go there.
        dead_letters: how many are there now; counted up to 10 000.
        rolled_back: how often a message came back, by a rollback or an expired lease.
        push_rate, pop_rate, commit_rate: messages per second over the last minute or so.
        oldest_age: since when the oldest message that has not ended is there, or is due; None: there is none.
        pipes: live pipes.
        priorities: the same of each priority that live pipes have, the most urgent first.
        types: the same of each type that live pipes have, by name.
    """

    queue: str
    state: str
    waiting: int
    pending: int
    delayed: int
    pushed: int
    popped: int
    committed: int
    dead: int
    dead_letters: int
    purged: int
    expired: int
    rolled_back: int
    push_rate: float
    pop_rate: float
    commit_rate: float
    oldest_age: timedelta | None
    pipes: int
    priorities: tuple[PriorityStats, ...]
    types: tuple[TypeStats, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; ages in seconds, as `oldest_age_s`."""
        return {
            **_to_json(asdict(self)),
            "priorities": [each.to_json() for each in self.priorities],
            "types": [each.to_json() for each in self.types],
        }


@dataclass(frozen=True, slots=True)
class PipeStats:
    """One live pipe.

    Attributes:
        pipe: its id.
        phase: PA (push active), PF (push finished) or E (empty, being retired).
        pushed, popped, committed: messages so far.
        waiting, pending, delayed: messages now, as in `QueueStats`.
        owner: the name of the popper that claims it, or its slot, which others of its process may share; or
            None.
        pusher: who pushes into it.
        priority, type: of its messages; None for no type.
        slot: of the keys of its messages, from 0 on; None where they have none.
        age: since it was created, by the database's clock.
    """

    pipe: UUID
    phase: str
    pushed: int
    popped: int
    committed: int
    waiting: int
    pending: int
    delayed: int
    owner: str | None
    pusher: str
    priority: int
    type: str | None
    slot: int | None
    age: timedelta

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON values; the age in seconds, as `age_s`."""
        return _to_json(asdict(self))


def _to_json(figures: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, timedelta):
            told[f"{name}_s"] = value.total_seconds()
        elif name == "oldest_age":
            told["oldest_age_s"] = None
        else:
            told[name] = str(value) if isinstance(value, UUID) else value
    return told
