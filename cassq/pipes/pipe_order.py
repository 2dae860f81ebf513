"""Which pipe is next.

Owns the order in which whoever wants messages goes through the pipes of a queue, and which of them a round
passes over. Pure. What must not break: a pipe comes after the older ones of its source, and its rank depends
on its entry alone: else two poppers, or two looks of one, would disagree.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

from cassq.model.ids import Source, time_key
from cassq.model.pipe import PipeEntry


def in_order(entries: Iterable[PipeEntry], ageing: timedelta) -> list[PipeEntry]:
    """Return pipes in the order in which to look at them.

    By the times of their ids, where a pipe counts as older by `ageing` for each step of its priority: so
    whatever waits for long enough has its turn. Without ageing the highest priority goes first, always.
    """
    entries = list(entries)
    if not any(entry.priority for entry in entries):
        return sorted(entries, key=lambda entry: time_key(entry.pipe))
    return sorted(entries, key=partial(rank_of, ageing=ageing))


def rank_of(entry: PipeEntry, ageing: timedelta) -> tuple[int, bytes]:
    """Return what pipes are sorted by; what is less goes first."""
    ticks = ageing // timedelta(microseconds=1) * 10  # as the times of ids are counted
    begun = entry.pipe.time if ticks else 0
    return begun - entry.priority * (ticks or 1), time_key(entry.pipe)


def newest_of(entries: Iterable[PipeEntry]) -> dict[Source, UUID]:
    """Return the youngest pipe of each source."""
    return {entry.source: entry.pipe for entry in sorted(entries, key=lambda entry: time_key(entry.pipe))}


def is_younger(entry: PipeEntry, newest: Mapping[Source, UUID]) -> bool:
    """Tell whether a pipe is younger than the youngest that was known of its source."""
    known = newest.get(entry.source)
    return known is None or time_key(entry.pipe) > time_key(known)


def as_far_as(first: Iterable[PipeEntry], second: Iterable[PipeEntry]) -> tuple[PipeEntry, ...]:
    """Return what of a second list goes as far as the first: each pipe with the older ones of its source.

    A list is no snapshot. What is older than what the first shows was acknowledged before the second began,
    which may have news of its own.
    """
    newest = newest_of(first)
    return tuple(entry for entry in second if not is_younger(entry, newest))


def one_after_the_other(entries: Iterable[PipeEntry]) -> Sequence[Sequence[PipeEntry]]:
    """Return pipes in groups: in each one of a source at most, in an earlier one what is older of it."""
    groups: list[list[PipeEntry]] = []
    places: Counter[Source] = Counter()
    for entry in sorted(entries, key=lambda entry: time_key(entry.pipe)):
        if places[entry.source] == len(groups):
            groups.append([])
        groups[places[entry.source]].append(entry)
        places[entry.source] += 1
    return groups


class PipeRound:
    """One round over pipes.

    Args:
        entries: the pipes, in order.
        meant: those that the round is for; None for all.
    """

    def __init__(self, entries: Sequence[PipeEntry], meant: Container[UUID] | None = None) -> None:
        self._entries = entries
        self._meant = meant
        self._held_back: set[Source] = set()
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
