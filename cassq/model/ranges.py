"""Sets of sequence numbers, kept as ranges.

Messages are taken and committed in runs, so a set of thousands is a handful of ranges. The rule that
must not break: ranges in a set are sorted, disjoint and never touch.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Range(NamedTuple):
    """The numbers first, first + 1 … last, both included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return self.last - self.first + 1


class Ranges:
    """A mutable set of sequence numbers that costs by its gaps, not by its size."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, stretches: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in stretches:
            self.add(first, last)

    def __iter__(self) -> Iterator[Range]:
        return map(Range, self._firsts, self._lasts)

    def __contains__(self, seq: int) -> bool:
        place = bisect_right(self._firsts, seq) - 1
        return place >= 0 and seq <= self._lasts[place]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __repr__(self) -> str:
        return f"Ranges({[tuple(s) for s in self]})"

    def add(self, first: int, last: int) -> None:
        """Add first … last, joining what it touches."""
        begin = bisect_left(self._lasts, first - 1)
        end = bisect_right(self._firsts, last + 1)
        if begin < end:
            first = min(first, self._firsts[begin])
            last = max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def within(self, first: int, last: int) -> Iterator[Range]:
        """Yield the parts of the set that lie in first … last."""
        for place in range(bisect_left(self._lasts, first), len(self._firsts)):
            if self._firsts[place] > last:
                return
            yield Range(max(first, self._firsts[place]), min(last, self._lasts[place]))

    def missing(self, first: int, last: int) -> Iterator[Range]:
        """Yield the parts of first … last that the set lacks."""
        expected = first
        for part in self.within(first, last):
            if part.first > expected:
                yield Range(expected, part.first - 1)
            expected = part.last + 1
        if expected <= last:
            yield Range(expected, last)

    def covers(self, first: int, last: int) -> bool:
        """Tell whether every number of first … last is in the set."""
        return next(self.missing(first, last), None) is None

    def count_within(self, first: int, last: int) -> int:
        """Return how many numbers of first … last are in the set."""
        return sum(part.size for part in self.within(first, last))

    def reach(self, first: int) -> int:
        """Return the last number of the unbroken stretch from `first`, or first - 1 if it is not in."""
        part = next(self.within(first, first), None)
        if part is None:
            return first - 1
        return self._lasts[bisect_right(self._firsts, first) - 1]

    def portions(self, count: int) -> "Iterator[Ranges]":
        """Yield the set as sets of up to so many stretches."""
        for begin in range(0, len(self._firsts), count):
            end = begin + count
            yield Ranges(zip(self._firsts[begin:end], self._lasts[begin:end], strict=True))

    def forget_below(self, seq: int) -> None:
        """Drop every number below `seq`."""
        place = bisect_left(self._lasts, seq)
        del self._firsts[:place], self._lasts[:place]
        if self._firsts and self._firsts[0] < seq:
            self._firsts[0] = seq
