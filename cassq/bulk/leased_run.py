"""A run as a consumer writes it down, to find it again after a restart.

Owns its form, and reads its messages, in whatever process. Refuses to know under which lease it stands now.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from cassq.errors import DecodeError, InvalidOptionError
from cassq.model.message import Batch
from cassq.model.pipe import PipeEntry, PipeState, Run, RunState
from cassq.model.progress import Progress
from cassq.model.ranges import Range, Ranges
from cassq.storage.forms import BatchQuery
from cassq.storage.port import PipeStorage

_BATCHES_READ = 16


@dataclass(frozen=True, slots=True)
class LeasedRun:
    """A run as it is written down.

    Attributes:
        pipe: where it is.
        lease_id: the lease under which it may be committed.
        attempt: how many times it was handed out, this time included.
        read_from: first number of the batch that holds its first message.
        parts: the messages of it that had not ended when it was taken.
        priority, type: of its messages; "" for no type.
    """

    pipe: UUID
    lease_id: UUID
    attempt: int
    read_from: int
    parts: tuple[Range, ...]
    priority: int = 0
    type: str = ""

    @property
    def count(self) -> int:
        """How many messages it has."""
        return sum(part.size for part in self.parts)

    def to_json(self) -> list[Any]:
        """Return it as JSON values."""
        parts = [list(part) for part in self.parts]
        like = [self.priority, self.type] if self.priority or self.type else []
        return [str(self.pipe), str(self.lease_id), self.attempt, self.read_from, parts, *like]

    @classmethod
    def from_json(cls, found: Sequence[Any]) -> Self:
        """Read it back.

        Raises: InvalidOptionError: it is not one.
        """
        try:
            pipe, lease_id, attempt, read_from, parts, *like = found
            priority, kind = like or (0, "")
            stretches = tuple(Range(*part) for part in parts)
            if not stretches:
                raise ValueError("it has no messages")
            place = UUID(pipe), UUID(lease_id), int(attempt), int(read_from), stretches
            return cls(*place, int(priority), str(kind))
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidOptionError(
                f"{str(found)[:80]} is not a run that cassq wrote down: {error}"
            ) from None


def read_leased(storage: PipeStorage, run: LeasedRun) -> Iterator[Batch]:
    """Yield the messages of a run, in order; the same ones however often.

    Raises: DecodeError: some are gone, and which. The lease had ended, others took the run, and its pipe was
        retired; or rows were lost.
    """
    first, last = run.read_from, run.parts[-1].last
    wanted, found = Ranges(run.parts), Ranges()
    while first <= last:
        batches = storage.read_batches(run.pipe, BatchQuery(first, last, limit=_BATCHES_READ))
        if not batches:
            break
        for batch in batches:
            for part in wanted.within(batch.first, batch.last):
                found.add(*part)
                yield batch.part(*part)
        first = batches[-1].last + 1
    gone = [gap for part in run.parts for gap in found.missing(*part)]
    if gone:
        told = ", ".join(f"{gap.first} to {gap.last}" for gap in gone[:5])
        raise DecodeError(
            f"pipe {run.pipe}: messages {told} of a leased run are gone: others committed them, because the "
            "lease of this reader had ended (give it a longer one), or their rows were lost"
        )


def tag(name: str) -> str:
    """Return what stands as the holder in the runs of a reader."""
    return f"reader {name}"


def left_of(entry: PipeEntry, state: PipeState, row: Run) -> LeasedRun | None:
    """Return what has not ended of a leased row; None where it is nothing, or may still grow."""
    if row.state is not RunState.LEASED or row.window_ms:
        return None
    parts = tuple(Progress(state).left_of(row))
    return written_down(entry, row, parts) if parts else None


def written_down(entry: PipeEntry, row: Run, parts: tuple[Range, ...]) -> LeasedRun:
    """Return these messages of a row as they are written down."""
    place = entry.pipe, row.lease_id, row.attempt, row.read_from, parts
    return LeasedRun(*place, entry.priority, entry.type)
