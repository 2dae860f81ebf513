"""How letters are pushed again: in parts, at a pace, each once in a call.

Owns what one call has pushed so far. Refuses to know where letters are kept. What must not break: a call
never pushes a message that it pushed itself.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar
from uuid import UUID

from cassq.errors import InvalidOptionError
from cassq.model.ids import MessageId
from cassq.model.label import Label
from cassq.model.message import Headers

T = TypeVar("T")

#: Messages stored anew, though they may break a rule that is younger; their futures have ended.
PushAgain = Callable[[Sequence[tuple[bytes, Headers, Label]]], Sequence[Future[MessageId]]]

#: Dead letters read, pushed or removed at once.
PAGE = 100

#: With a rate, letters are pushed in so many parts a second at most.
PARTS_PER_S = 10

#: The least rate: slower than a letter in 100 s, nobody would wait for the next one.
RATE_MIN = 0.01

#: So often at least it is told how far a redrive is that rests.
TOLD_S = 1.0


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a redrive did, or would do.

    Attributes:
        count: how many letters were pushed again.
        reasons: how many of them had died of what.
    """

    count: int
    reasons: Mapping[str, int]


class Moved:
    """What one call has pushed again so far.

    Args:
        push: stores messages again.
        progress: hears how many letters are done.

    Attributes:
        count: how many are.
    """

    def __init__(self, push: PushAgain, progress: Callable[[int], None] | None) -> None:
        self.push = push
        self.count = 0
        self._progress = progress
        self._first: dict[UUID, int] = {}

    def note(self, count: int) -> None:
        """Note that so many more are done."""
        self.count += count
        if self._progress:
            self._progress(self.count)

    def note_pushed(self, message_id: MessageId) -> None:
        """Note a message that was pushed."""
        pipe, seq = message_id
        self._first[pipe] = min(seq, self._first.get(pipe, seq))

    def has_pushed(self, message_id: MessageId) -> bool:
        """Tell whether the message is of this call, or was pushed after one that is, into the same pipe."""
        pipe, seq = message_id
        return pipe in self._first and seq >= self._first[pipe]


def pace(rate: object) -> tuple[int, float]:
    """Return how many letters are pushed at once, and how long each of them takes at least."""
    if rate is None:
        return PAGE, 0.0
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not RATE_MIN <= rate < math.inf:
        raise InvalidOptionError(
            f"{rate=} is not a number of messages a second: give one of {RATE_MIN} or more, or None"
        )
    return max(1, min(PAGE, round(rate / PARTS_PER_S))), 1 / rate


def parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in parts of a size, the last one perhaps smaller."""
    left = iter(items)
    while part := list(islice(left, size)):
        yield part
