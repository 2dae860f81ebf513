"""Comparing what is measured: in turn, round by round, as medians with their range.

Owns the order of measurements and the arithmetic of ratios. Refuses to know what is measured. What must not
break: two figures are compared within a round only, because the machine of the next round is another one.
"""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tqdm import tqdm

Measure = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Figures:
    """One figure, measured once in each round.

    Attributes:
        values: in the order of the rounds.
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The one in the middle."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The least."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The greatest."""
        return max(self.values)


def ratio(ours: Figures, theirs: Figures) -> Figures:
    """Return ours / theirs, round by round."""
    return Figures(tuple(a / b for a, b in zip(ours.values, theirs.values, strict=True)))


def interleave(measures: Mapping[str, Measure], rounds: int, *, title: str = "") -> dict[str, Figures]:
    """Measure everything once, in order, and all of it again, `rounds` times: A B A B.

    Args:
        measures: what to measure, by name; each is called once a round.
        rounds: how often.
        title: stands before the progress bar on stderr.
    """
    values: dict[str, list[float]] = {name: [] for name in measures}
    with progress(rounds * len(measures), title) as bar:
        for _ in range(rounds):
            for name, measure in measures.items():
                bar.set_postfix_str(name)
                values[name].append(measure())
                bar.update()
    return {name: Figures(tuple(each)) for name, each in values.items()}


def progress(total: int, title: str, unit: str = "run") -> "tqdm[None]":
    """Return a progress bar on stderr where that is a terminal; it leaves nothing behind."""
    return tqdm(
        total=total, desc=title, unit=unit, file=sys.stderr, leave=False, dynamic_ncols=True, disable=None
    )


def gather(names: Sequence[str], rounds: Sequence[Mapping[str, float]]) -> dict[str, Figures]:
    """Return figures that were measured together, several in one run, by name."""
    return {name: Figures(tuple(each[name] for each in rounds)) for name in names}
