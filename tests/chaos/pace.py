"""How fast commits went, and how long a blow slowed them down.

Owns the windows, the meaning of "before", "dip" and "back". Pure: it is given times. What must not break: a
dip that does not end is told as such, and no figure is rounded in the queue's favour.

Windows are 0.5 s. The rate before is the median of the windows before the first blow. A dip is three windows
or more in a row below 90 % of it: shorter ones come with any rate that is made of calls, and `gap_s` shows
them where nothing at all was committed. A blow's dips are those that begin within the time in which all is
to be well again; commits are back when the last of them has ended, however long it took.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

WINDOW_S = 0.5
ENOUGH = 0.9
DIP_WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """What the commits of one run tell.

    Attributes:
        before: commits a second before the first blow.
        back_s: seconds from a blow until the rate was back, the worst of all blows; None when it was not.
        gap_s: the longest time without any commit after the first blow.
    """

    before: float
    back_s: float | None
    gap_s: float


@dataclass(frozen=True, slots=True)
class Course:
    """When things were done.

    Attributes:
        begun, ended: when the load was steady.
        blows: when something was done to the crew or its servers, sorted; at least one.
        lulls: from when to when nobody could commit at the old rate, whatever cassq did: who pushes or pops
            was frozen, or no quorum was there.
    """

    begun: float
    ended: float
    blows: Sequence[float]
    lulls: Sequence[tuple[float, float]] = ()


def measure(commits: Sequence[float], course: Course, goal_s: float) -> Pace:
    """Measure a run; `commits` tells when each commit returned, sorted."""
    first = course.blows[0]
    before = median(rates(commits, course.begun, first))
    after = rates(commits, first, course.ended)
    for place in range(len(after)):
        start = first + place * WINDOW_S
        if any(start < until and since < start + WINDOW_S for since, until in course.lulls):
            after[place] = before
    dips = [
        (first + start * WINDOW_S, None if end is None else first + end * WINDOW_S)
        for start, end in find_dips(after, before * ENOUGH)
    ]
    within = [at for at in commits if first <= at <= course.ended]
    gaps = [later - earlier for earlier, later in pairwise([first, *within, course.ended])]
    return Pace(before, _back(dips, course.blows, goal_s), max(gaps))


def rates(commits: Sequence[float], start: float, end: float) -> list[float]:
    """Return the commits a second in each whole window from start to end."""
    counts = [0] * int((end - start) / WINDOW_S)
    for at in commits:
        place = int((at - start) / WINDOW_S) if at >= start else -1
        if 0 <= place < len(counts):
            counts[place] += 1
    return [count / WINDOW_S for count in counts]


def find_dips(windows: Sequence[float], floor: float) -> list[tuple[int, int | None]]:
    """Return the first window of each dip and the one after its last, None where it does not end."""
    dips: list[tuple[int, int | None]] = []
    start: int | None = None
    for place, rate in enumerate(windows):
        if rate < floor:
            start = place if start is None else start
        elif start is not None:
            if place - start >= DIP_WINDOWS:
                dips.append((start, place))
            start = None
    if start is not None and len(windows) - start >= DIP_WINDOWS:
        dips.append((start, None))
    return dips


def _back(dips: Sequence[tuple[float, float | None]], blows: Sequence[float], goal_s: float) -> float | None:
    worst = 0.0
    for start, end in dips:
        blow = max(at for at in blows if at <= start + WINDOW_S)
        if start - blow > goal_s:
            continue
        if end is None:
            return None
        worst = max(worst, end - blow)
    return worst
