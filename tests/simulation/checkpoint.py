"""What outlives the drivers of a simulated stream: the checkpoint and the sink.

Owns what is written down, and the look at every mark of a driver: nothing is committed before a batch of the
sink has it. What must not break: a batch is written down once, and the sink keeps it once, by its number.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from cassq.model.pipe import End, Mark
from cassq.storage.port import Storage

#: All drivers of a stream are one consumer: they read under one name.
STREAM = "stream"

#: Where a message lies: its pipe and its number.
Place = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class Row:
    """A message of a batch."""

    place: Place
    body: bytes
    attempt: int

    @property
    def words(self) -> str:
        """The body as the ledger has it."""
        return self.body.decode()


@dataclass(slots=True)
class Checkpoint:
    """The offsets of all batches as text, those that are done, and the batches of the sink.

    Attributes:
        is_skipping: a batch could not be planned again, so the next driver leaves out what others took.
    """

    is_skipping: bool = False
    done: set[int] = field(default_factory=set)
    _offsets: dict[int, str] = field(default_factory=dict)
    _sunk: set[int] = field(default_factory=set)
    _kept: set[Place] = field(default_factory=set)
    _noted: set[tuple[int, Place, int]] = field(default_factory=set)

    @property
    def last(self) -> int:
        """The number of the last batch that was written down."""
        return max(self._offsets, default=0)

    def read(self, batch: int) -> str | None:
        """Return the offset of a batch; None where there is none."""
        return self._offsets.get(batch)

    def write(self, batch: int, offset: str) -> bool:
        """Write a batch down; False when another driver did."""
        return self._offsets.setdefault(batch, offset) is offset

    def is_new(self, batch: int, row: Row) -> bool:
        """Note that a batch has a message; False when that is known."""
        known = (batch, row.place, row.attempt)
        is_new = known not in self._noted
        self._noted.add(known)
        return is_new

    def keep(self, batch: int, rows: Sequence[Row]) -> bool:
        """Put a batch into the sink; False when it has it, and nothing changes."""
        if batch in self._sunk:
            return False
        self._sunk.add(batch)
        self._kept.update(row.place for row in rows)
        return True

    def guard(self, storage: Storage, broken: Callable[[str], None]) -> None:
        """Look at what a driver marks as committed: all of it has to be in the sink by then."""
        mark = storage.mark

        def mark_and_judge(pipe: UUID, marks: Iterable[Mark], *more: Any) -> None:
            marks = list(marks)
            for each in marks:
                seqs = range(each.first, each.last + 1) if each.end is End.COMMITTED else ()
                if missing := [seq for seq in seqs if (pipe, seq) not in self._kept]:
                    broken(f"committed, and in no batch of the sink: {pipe}:{missing}")
            mark(pipe, marks, *more)

        storage.mark = mark_and_judge  # type: ignore[method-assign]
