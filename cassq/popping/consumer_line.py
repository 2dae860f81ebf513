"""The line of consumers that wait in a pop.

Owns who waits, who came first, and how much all of them want. Refuses to know what there is; the buffer's
lock guards it. What must not break: the demand is what those in line want, and of nobody else.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from cassq.popping.hand import Portion
from cassq.popping.timing import LOOK_TIMEOUT_S


class Asker(Protocol):
    """Whose consumers pop: a popper, which may be closed while the buffer goes on for others."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        ...


class Bell(Protocol):
    """What calls a consumer that waits: a condition that its thread waits for, or what ends its future."""

    def notify(self) -> None:
        """Call it; with the buffer's lock held."""
        ...


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer that waits in a pop.

    Attributes:
        changed: what calls it.
        count: how many messages it takes at most.
        asked_at: when it came.
        deadline: when it has no time left.
        look: the number of the look that must have ended before it is told that there is nothing.
        look_until: when it gives up waiting for that look.
        given: what it was handed; then it stands in line no more.
    """

    changed: Bell
    asker: Asker | None
    count: int
    asked_at: float
    deadline: float
    look: int
    look_until: float = field(init=False)
    thread: int = field(init=False)
    given: list[Portion] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.look_until = max(self.deadline, self.asked_at + LOOK_TIMEOUT_S)
        self.thread = threading.get_ident()

    def hurry(self, now: float, look: int) -> None:
        """Have no time left, but for one look, if it had any before."""
        if self.deadline > now:
            self.deadline, self.look, self.look_until = now, look, now + LOOK_TIMEOUT_S

    def spare(self) -> None:
        """Allow its look the full time from its deadline on.

        The look is not stuck: it was left to others in line, and is asked for now.
        """
        self.look_until = max(self.look_until, self.deadline + LOOK_TIMEOUT_S)


class ConsumerLine:
    """Who waits, the first one first.

    Attributes:
        demand: how many messages those in line want.
    """

    __slots__ = ("_waiting", "demand")

    def __init__(self) -> None:
        # Thousands may wait, and any of them leave.
        self._waiting: OrderedDict[Consumer, None] = OrderedDict()
        self.demand = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, consumer: Consumer) -> bool:
        return consumer in self._waiting

    @property
    def all(self) -> Iterable[Consumer]:
        """Who waits, in order."""
        return self._waiting

    @property
    def first(self) -> Consumer | None:
        """Who is served next."""
        return next(iter(self._waiting), None)

    def join(self, consumer: Consumer) -> None:
        """Let a consumer stand in line, behind the others."""
        self._waiting[consumer] = None
        self.demand += consumer.count

    def stand_first(self, consumer: Consumer) -> None:
        """Let a consumer stand before the others: what it was handed is worth nothing."""
        self._waiting[consumer] = None
        self._waiting.move_to_end(consumer, last=False)
        self.demand += consumer.count

    def take_first(self) -> Consumer:
        """Take the first one out of the line."""
        consumer, _ = self._waiting.popitem(last=False)
        self.demand -= consumer.count
        return consumer

    def leave(self, consumer: Consumer) -> None:
        """Take a consumer out of the line, if it stands there."""
        if consumer in self._waiting:
            del self._waiting[consumer]
            self.demand -= consumer.count

    def call(self, now: float, *, is_over: bool) -> None:
        """Wake those that have no time left; all where it is over."""
        for consumer in self._waiting:
            if is_over or consumer.deadline <= now:
                consumer.changed.notify()

    def call_those_of(self, asker: Asker) -> None:
        """Wake the consumers of one popper."""
        for consumer in self._waiting:
            if consumer.asker is asker:
                consumer.changed.notify()
