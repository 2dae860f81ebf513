"""The queue as a plain list: what a caller may expect of it, without pipes, leases or threads.

Owns where each message is and what may become of it next. What must not break: it knows nothing of cassq but
its promises, so that it cannot repeat a mistake of the code.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


class Place(Enum):
    """Where a message is, for the one who pushed it."""

    WAITING = auto()
    OUT = auto()  # in a consumer's hands, under a lease that runs
    LATE = auto()  # in a consumer's hands, and its lease has run out: it comes again by itself
    DELAYED = auto()
    DOOMED = auto()  # came back from its last attempt: a dead letter as soon as somebody looks
    DEAD = auto()
    COMMITTED = auto()
    PURGED = auto()


#: In nobody's hands, and not over.
IDLE = (Place.WAITING, Place.DELAYED, Place.DOOMED)

#: What a pop may still bring.
COMING = (Place.WAITING, Place.LATE)

#: What is neither over nor dead.
ALIVE = (*IDLE, Place.OUT, Place.LATE)


@dataclass(slots=True, eq=False)
class Pushed:
    """One message."""

    number: int
    body: bytes
    headers: Mapping[str, str]
    place: Place = Place.WAITING
    attempts: int = 0
    message_id: object = None

    @property
    def was_out(self) -> bool:
        return self.attempts > 0


@dataclass(slots=True)
class ListQueue:
    """Everything that was ever pushed, in order."""

    max_attempts: int
    messages: list[Pushed] = field(default_factory=list)
    by_body: dict[bytes, Pushed] = field(default_factory=dict)
    rollbacks: int = 0  # how often a consumer gave a message back
    lapses: int = 0  # how often a lease ran out under a message
    deaths: int = 0
    delivered: int = 0

    def push(self, body: bytes, headers: Mapping[str, str], message_id: object = None) -> Pushed:
        """Append a message; bodies are unique, so that a delivery can be told by its body."""
        pushed = Pushed(len(self.messages), body, headers, message_id=message_id)
        self.messages.append(pushed)
        self.by_body[body] = pushed
        return pushed

    def at(self, *places: Place) -> list[Pushed]:
        """Return the messages at these places, oldest push first."""
        return [each for each in self.messages if each.place in places]

    def count(self, *places: Place) -> int:
        """Return how many messages are at these places."""
        return sum(each.place in places for each in self.messages)

    def deliver(self, body: bytes) -> Pushed:
        """Note a delivery; it must be one of a message that may come."""
        pushed = self.by_body[body]
        assert pushed.place in COMING, f"{pushed} was delivered"
        self.delivered += not pushed.was_out
        pushed.attempts += 1
        pushed.place = Place.OUT
        return pushed

    def oldest_fresh(self) -> Pushed | None:
        """Return the oldest message that waits and was never delivered."""
        return next((each for each in self.at(Place.WAITING) if not each.was_out), None)

    def roll_back(self, pushed: Pushed, *, is_delayed: bool) -> None:
        """A consumer gave a message back in time."""
        self.rollbacks += 1
        self._come_back(pushed, Place.DELAYED if is_delayed else Place.WAITING)

    def let_leases_end(self) -> None:
        """All leases run out, and all delays."""
        for pushed in self.at(Place.DELAYED):
            pushed.place = Place.WAITING
        for pushed in self.at(Place.OUT):
            self.lapses += 1
            self._come_back(pushed, Place.LATE)

    def bury(self, bodies: Iterable[bytes]) -> None:
        """Note which messages are seen among the dead letters."""
        for body in bodies:
            pushed = self.by_body[body]
            assert pushed.place in {Place.DOOMED, Place.DEAD}, f"{pushed} is a dead letter"
            self.deaths += pushed.place is Place.DOOMED
            pushed.place = Place.DEAD

    def put_back(self, pushed: Pushed) -> Pushed:
        """A dead letter becomes a new message."""
        return self.push(pushed.body, pushed.headers)

    def purge(self) -> int:
        """End what is in nobody's hands and no dead letter to be; return how many messages that were.

        Where leases have run out and a reaper has seen it, that is so of those messages too.
        """
        idle = self.at(Place.WAITING, Place.DELAYED, Place.LATE)
        for pushed in idle:
            pushed.place = Place.PURGED
        return len(idle)

    def cancel(self, pushed: Pushed) -> set[bool]:
        """End one of them, as `purge`; return what may be told of it."""
        if pushed.place is Place.PURGED:
            return {True, False}  # as long as somebody remembers
        is_idle = pushed.place in {Place.WAITING, Place.DELAYED, Place.LATE}
        if is_idle:
            pushed.place = Place.PURGED
        return {is_idle}

    def _come_back(self, pushed: Pushed, place: Place) -> None:
        pushed.place = Place.DOOMED if pushed.attempts >= self.max_attempts else place
