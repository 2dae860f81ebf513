"""Who was busy when, and who waited meanwhile: the arithmetic behind `slow_consumers`.

Owns nothing but times. The rule: a message waits in vain only while it waits and somebody is idle, both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class Visit:
    """One message with one consumer, in seconds.

    Attributes:
        popper: which consumer.
        due: when the message was to be pushed.
        begun, ended: when the consumer got it, and when it had been committed.
    """

    popper: int
    due: float
    begun: float
    ended: float


def idle_spans(visits: Iterable[Visit], poppers: int) -> list[tuple[float, float]]:
    """Return when fewer than `poppers` consumers were busy, as (from, until); open at both ends."""
    visits = list(visits)
    steps = sorted([(visit.begun, 1) for visit in visits] + [(visit.ended, -1) for visit in visits])
    busy = [0, *accumulate(change for _, change in steps)]
    times = [float("-inf"), *(at for at, _ in steps), float("inf")]
    spans = [(a, b) for (a, b), count in zip(pairwise(times), busy, strict=True) if count < poppers and a < b]
    joined: list[tuple[float, float]] = []
    for begin, end in spans:
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def waits_in_vain(visits: Sequence[Visit], poppers: int) -> list[float]:
    """Return for how long each message waited while some consumer was idle."""
    spans = idle_spans(visits, poppers)
    return [
        sum(max(0.0, min(end, visit.begun) - max(begin, visit.due)) for begin, end in spans)
        for visit in visits
    ]


def busy_shares(visits: Iterable[Visit], poppers: int, begin: float, end: float) -> list[float]:
    """Return which share of the time from `begin` to `end` each consumer was busy."""
    busy = [0.0] * poppers
    for visit in visits:
        busy[visit.popper] += max(0.0, min(end, visit.ended) - max(begin, visit.begun))
    return [seconds / (end - begin) for seconds in busy]
