"""One crew at a steady load, and what is done to it.

Owns the load's figures and the record of what was done when. Refuses to know the kinds of fault. What must
not break: a blow is noted before it falls, so that no figure is too good.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from clocks import Clocks
from crew import SEED, Crew, Member, Seat, now, wait_until
from firewall import FIRST_GROUP, Firewall
from pace import Course
from ring import Ring

from cassq.verification.ledger import Kind

_TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class Load:
    """How much is pushed by whom, and the queue's limits; durations in seconds."""

    rate: float = 400.0
    pushers: int = 4
    poppers: int = 4
    lease: float = 5.0
    session: float = 5.0
    push_age_max: float = 3.0
    push_grace: float = 4.0
    clock_skew_max: float = 0.5
    work: float = 0.1
    pop_width: int = 2
    timeout: float = 4.0
    push_timeout: float = 10.0

    @property
    def goal(self) -> float:
        """Until when everything should be well again: what may have to be waited for, and two seconds."""
        return max(self.lease, self.session) + 2.0

    @property
    def past_lease(self) -> float:
        """A pause after which a lease has ended for everybody."""
        return self.lease + self.clock_skew_max + 2.0

    @property
    def past_push(self) -> float:
        """A pause after which a pusher counts as dead."""
        return self.push_age_max + self.push_grace + self.clock_skew_max + 2.0

    def settings(self) -> dict[str, Any]:
        """Return the settings of a queue."""
        names = ("lease", "push_age_max", "push_grace", "clock_skew_max")
        durations = {name: timedelta(seconds=getattr(self, name)) for name in names}
        return {
            **durations,
            "pipe_messages_max": 2000,
            "max_attempts": 1_000_000,
            "pop_width": self.pop_width,
        }

    def habits(self) -> tuple[str, ...]:
        """Return what the workers are told."""
        rate = f"{self.rate / self.pushers:g}"
        return ("--rate", rate, "--work", f"{self.work:g}", "--mishaps", "0", "--rest", "0.2")


@dataclass(slots=True)
class Scene:
    """What a kind of fault acts on.

    Attributes:
        ring: the servers; none where the store is a file.
        disk: the folder of a file store's own disk.
        watch: called some times a second, with the scene.
        blows, lulls: see `pace.Course`.
        struck: of a mix, how often each kind struck.
        doing: what happens just now, in words.
    """

    crew: Crew
    load: Load
    firewall: Firewall
    clocks: Clocks
    watch: Callable[["Scene"], None]
    ring: Ring | None = None
    disk: Path | None = None
    dice: random.Random = field(default_factory=lambda: random.Random(SEED))
    blows: list[float] = field(default_factory=list)
    lulls: list[tuple[float, float]] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    doing: str = ""
    begun: float = 0.0

    @property
    def servers(self) -> Ring:
        """The ring, where there has to be one."""
        assert self.ring is not None, "this kind needs servers"
        return self.ring

    @staticmethod
    def now() -> float:
        """Read the clock of all ledgers."""
        return now()

    def begin(self) -> None:
        """Note that the load is steady from now on."""
        self.begun = now()

    def blow(self, what: str) -> None:
        """Note that something is about to be done."""
        self.doing = what
        self.blows.append(now())

    @contextmanager
    def lull(self, what: str) -> Iterator[None]:
        """Note that nobody can keep the rate up while the block runs; its end is a blow."""
        self.blow(what)
        since = self.blows[-1]
        try:
            yield
        finally:
            self.blow("it is over")
            self.lulls.append((since, self.blows[-1]))

    def wait(self, seconds: float) -> None:
        """Let the load go on for so long."""
        until = now() + seconds
        nothing = threading.Event()
        while now() < until:
            nothing.wait(min(_TICK_S, max(0.0, until - now())))
            self.watch(self)

    def pick(self, role: str) -> Member:
        """Choose a worker."""
        return self.dice.choice(self.crew.of(role))

    def pick_holding(self) -> Member:
        """Choose a popper that has just been given messages, and works on them."""
        poppers = self.crew.of("popper")
        self.dice.shuffle(poppers)
        seen = {each: each.count(Kind.DELIVERED) for each in poppers}
        given: list[Member] = []

        def is_given() -> bool:
            given.extend(each for each in poppers if each.count(Kind.DELIVERED) > seen[each])
            return bool(given)

        wait_until(is_given, "some popper is given messages")
        return given[0]

    def replace(self, role: str) -> None:
        """Start a worker for one that was killed, and wait until it works."""
        (new,) = self.crew.start(role)
        wait_until(lambda: new.count(Kind.READY), f"{new.who} is ready")

    def freeze(self, members: Sequence[Member]) -> None:
        """Halt workers where they are."""
        for each in members:
            each.freeze()

    def thaw(self, members: Sequence[Member]) -> None:
        """Let workers go on."""
        for each in members:
            each.thaw()

    def course(self) -> Course:
        """Return what was done when; the load ends now."""
        return Course(self.begun, now(), sorted(self.blows), self.lulls)


def seat_of(clocks: Clocks, who: str) -> Seat:
    """Return a group of its own for a worker, where that can be given, and its clock."""
    number = int("".join(letter for letter in who if letter.isdigit()))
    group = FIRST_GROUP + number if Firewall.is_root() else None
    return Seat(group, clocks.environment(who))
