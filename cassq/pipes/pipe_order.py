"""Which pipe is next.

Owns the order in which whoever wants messages goes through the pipes of a queue, and which of them a round
passes over. Pure. What must not break: a pipe comes after the older ones of its pusher's lane.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from uuid import UUID

from cassq.model.ids import time_key
from cassq.model.pipe import PipeEntry


def in_order(entries: Iterable[PipeEntry]) -> list[PipeEntry]:
    """Return pipes in the order in which to look at them: highest priority first, then oldest first."""
    return sorted(entries, key=lambda entry: (-entry.priority, time_key(entry.pipe)))


class PipeRound:
    """One round over pipes.

    Args:
        entries: the pipes, in order.
        meant: those that the round is for; None for all.
    """

    def __init__(self, entries: Sequence[PipeEntry], meant: Container[UUID] | None = None) -> None:
        self._entries = entries
        self._meant = meant
        self._held_back: set[tuple[str, int]] = set()
        self._place = -1

    def __iter__(self) -> Iterator[PipeEntry]:
        for place, entry in enumerate(self._entries):
            self._place = place
            if entry.source not in self._held_back and (self._meant is None or entry.pipe in self._meant):
                yield entry

    def ahead(self) -> Sequence[PipeEntry]:
        """Return the pipes behind the one where the round is."""
        return self._entries[self._place + 1 :]

    def hold_back(self, entry: PipeEntry) -> None:
        """Pass over the younger pipes of its lane from here on."""
        self._held_back.add(entry.source)
