"""What happens to a queue that operators pause, alter, delete and create again while others work on it.

Owns the operators, and pushers and poppers that last: each works on with what it has opened, whatever failed,
and opens the queue anew only once it hears that the one it had was deleted. What must not break: the promises
that are judged here are those of docs/guarantees.md, and count from when an operator's call had returned.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import UUID

from actors import Stage, _consume, crew_of
from scheduler import Process

from cassq.catalog.cached_record import REFRESH_S
from cassq.errors import (
    CassqError,
    ClosedError,
    OutcomeUnknownError,
    QueueNotFoundError,
    UnavailableError,
)
from cassq.queue import Queue
from cassq.store import Store
from cassq.verification.ledger import Kind, Line

Result = TypeVar("Result")

#: A pause or a deletion that was told is known everywhere after so long: a look a second, and a request.
NOTICE_S = REFRESH_S + 0.5

#: So long after the last fault everybody works again: sessions are noticed to be over, leases end.
SETTLE_S = 2.0


#: Who was woken has a message sooner than this. Two poppers that meet may miss it, so often at most.
WOKEN_S = 0.8
MISSED_MAX = 2


@dataclass(slots=True)
class Steering:
    """What operators did to the queue, and since when it was healthy.

    Attributes:
        incarnations: of the queue, in the order in which anybody opened them; a generation is a place here.
        doomed: the generations that somebody began to delete.
        gone_at: since when a generation was known to be deleted.
        pauses: when a pause had been told, and when it began to end; of those that were healthy.
        stops: when nobody had to deliver anything: from when to when.
        settled_at: since when all of it is judged.
        slipped: when the one call that fails was sent, and when it was given up.
    """

    incarnations: list[UUID] = field(default_factory=list)
    doomed: set[int] = field(default_factory=set)
    gone_at: dict[int, float] = field(default_factory=dict)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    stops: list[tuple[float, float]] = field(default_factory=list)
    settled_at: float = 0.0
    slipped: tuple[float, float] | None = None
    is_over: bool = False

    def known_at(self, told_at: float) -> float:
        """Return by when everybody knows of a pause or a deletion.

        Where a look at the record fails, what a popper knew before counts for as long again.
        """
        if self.slipped and told_at <= self.slipped[1] and self.slipped[0] <= told_at + NOTICE_S:
            return self.slipped[1] + NOTICE_S
        return told_at + NOTICE_S

    def generation(self, queue: Queue) -> int:
        """Return which of the queues of this name it is."""
        incarnation = queue.record._record.incarnation
        if incarnation not in self.incarnations:
            self.incarnations.append(incarnation)
        return self.incarnations.index(incarnation)


class SteeredStage(Stage, Protocol):
    """The history, as operators see it."""

    steering: Steering
    settings: dict[str, Any]

    def store(self, process: Process) -> Store: ...

    def say(self, words: Any, who: str) -> None: ...


def generation_of(message: str) -> int:
    """Return which queue a message was pushed into."""
    return int(message.rpartition("@")[2])


# Those who last


def push_through(stage: SteeredStage, process: Process, messages: int) -> None:
    """Push so many messages, and on until the operators are done, with what was opened first."""
    store = stage.store(process)
    dice = stage.world.dice
    queue: Queue | None = None
    made = 0
    while made < messages or not stage.steering.is_over:
        if queue is None:
            queue = _find(stage, store)
            continue
        body = f"{process.name}-{made}@{stage.steering.generation(queue)}"
        made += 1
        stage.note(process.name, Kind.ATTEMPTED, [body])
        try:
            queue.push(body.encode(), timeout=timedelta(seconds=dice.choice(stage.patiences_s)))
            kind = Kind.ACKNOWLEDGED
        except QueueNotFoundError:
            kind, queue = Kind.REFUSED, None
        except UnavailableError:
            kind = Kind.REFUSED
        except OutcomeUnknownError:
            kind = Kind.UNKNOWN_PUSH
        stage.note(process.name, kind, [body])
        stage.world.sleep(dice.choice((0.02, 0.1, 0.3, 0.6, 2.0)))
    with suppress(QueueNotFoundError):
        store.close()


def pop_through(stage: SteeredStage, process: Process) -> None:
    """Pop until the history is over, with as few poppers as that takes."""
    store = stage.store(process)
    own, *others = crew_of(process, stage.consumers)
    for other in others:
        stage.world.spawn(process, other.name, partial(_pop_through, stage, store, other))
    _pop_through(stage, store, own)
    store.close()


def _pop_through(stage: SteeredStage, store: Store, consumer: Any) -> None:
    while not stage.is_over:
        queue = _find(stage, store)
        with suppress(QueueNotFoundError):
            if queue:
                _consume(stage, consumer, queue, leaves=False)


def _find(stage: SteeredStage, store: Store) -> Queue | None:
    try:
        return store.find_queue("q")
    except (UnavailableError, OutcomeUnknownError, QueueNotFoundError):
        stage.world.sleep(0.1)
        return None


# Operators


def steer(stage: SteeredStage, process: Process, acts: int) -> None:
    """Pause, resume, alter and delete the queue while faults last, and create it again."""
    store = stage.store(process)
    dice = stage.world.dice
    for _ in range(acts):
        stage.world.sleep(dice.choice((0.1, 0.3, 0.8)))
        if stage.is_healed:
            break
        act = dice.choice(("pause", "resume", "resume", "delete", "alter"))
        with suppress(UnavailableError, OutcomeUnknownError, QueueNotFoundError):
            if act == "delete":
                _delete(stage, process, store)
                stage.world.sleep(dice.choice((0.0, 0.3, 1.5)))
            queue = _open(stage, store)
            if act == "pause":
                queue.pause()
            elif act == "resume":
                queue.resume()
            elif act == "alter":
                store.alter_queue("q", lease=stage.settings["lease"] / dice.choice((1, 2, 4)))
            stage.say(f"has the queue in order after {act}", process.name)


def steer_at_last(stage: SteeredStage, process: Process, acts: Iterable[str], prompt_s: float) -> None:
    """Bring the queue in order; then do each of these, with time for everybody to hear of it."""
    steering, world = stage.steering, stage.world
    store = stage.store(process)
    queue = _insist(stage, lambda: _open(stage, store))
    _insist(stage, queue.resume)
    steering.stops.append((0.0, world.now))
    world.sleep(max(0.0, steering.settled_at - world.now))
    for act in acts:
        begun_at = world.now
        if act == "pause":
            _insist(stage, queue.pause)
            told_at = world.now
            world.sleep(NOTICE_S + 1.0)
            steering.pauses.append((told_at, world.now))
            _insist(stage, queue.resume)
        else:
            _insist(stage, partial(_delete, stage, process, store))
            world.sleep(world.dice.choice((0.0, NOTICE_S + 1.0)))
            queue = _insist(stage, lambda: _open(stage, store))
        stage.say(f"is done with {act}", process.name)
        steering.stops.append((begun_at, world.now + NOTICE_S))
        world.sleep(NOTICE_S)
    world.sleep(prompt_s)
    steering.is_over = True


def _open(stage: SteeredStage, store: Store) -> Queue:
    try:
        return store.find_queue("q")  # whose lease may have been altered
    except QueueNotFoundError:
        return store.queue("q", **stage.settings)


def _insist(stage: SteeredStage, act: Callable[[], Result]) -> Result:
    while True:
        try:
            return act()
        except (UnavailableError, OutcomeUnknownError, ClosedError):
            stage.world.sleep(0.1)


def _delete(stage: SteeredStage, process: Process, store: Store) -> None:
    """Delete the queue; nobody but this operator deletes or creates one meanwhile."""
    steering = stage.steering
    try:
        generation = steering.generation(store.find_queue("q"))
    except QueueNotFoundError:
        return  # by an attempt before this one
    is_new = generation not in steering.doomed
    steering.doomed.add(generation)
    stage.say("deletes the queue", process.name)
    try:
        store.delete_queue("q")
    except UnavailableError:
        if is_new:
            steering.doomed.discard(generation)  # it says that it is not deleted
        raise
    except (OutcomeUnknownError, QueueNotFoundError):
        raise
    except CassqError:
        pass  # it is, and not all of it is cleared
    steering.gone_at[generation] = stage.world.now


# What must hold


def judge_steering(steering: Steering, lines: list[Line], prompt_s: float, healed_at: float) -> Iterator[str]:
    """Tell what was delivered in a pause, pushed into a queue that was gone, or waited for too long."""
    begun_at = {line.message: line.at for line in lines if line.kind is Kind.ATTEMPTED}
    came_at: dict[str, float] = {}
    for line in lines:
        if line.kind is Kind.DELIVERED:
            came_at[line.message] = min(line.at, came_at.get(line.message, line.at))
    for message, at in came_at.items():
        for told_at, until in steering.pauses:
            if begun_at[message] >= steering.known_at(told_at) and at < until:
                yield f"paused at {told_at:.2f} s: {message} was pushed later, and delivered at {at:.2f} s"
    stored = [line for line in lines if line.kind is Kind.ACKNOWLEDGED]
    for line in stored:
        gone_at = steering.gone_at.get(generation_of(line.message), float("inf"))
        if begun_at[line.message] > steering.known_at(max(gone_at, healed_at)):
            yield f"deleted at {gone_at:.2f} s: {line.message} was pushed into it at {line.at:.2f} s"
    kept = [line for line in stored if generation_of(line.message) not in steering.doomed]
    yield from _late(steering, kept, came_at, prompt_s)


def _late(steering: Steering, kept: list[Line], came_at: dict[str, float], prompt_s: float) -> Iterator[str]:
    missed: list[float] = []
    for line in kept:
        at = came_at.get(line.message, float("inf"))
        free_at = _free_at(steering, line.at, prompt_s)
        if at > free_at + prompt_s:
            yield f"late: {line.message} of {line.at:.2f} s, free at {free_at:.2f} s, came at {at:.2f} s"
        if at > free_at + WOKEN_S and free_at > max(missed, default=-1.0) + 1.0:
            missed.append(free_at)
    if len(missed) > MISSED_MAX:
        yield f"late again and again: nobody was woken at {[round(at, 2) for at in missed]}"


def _free_at(steering: Steering, at: float, prompt_s: float) -> float:
    """Return since when nothing but its turn kept a message from its delivery."""
    start = max(at, steering.settled_at)
    for begun_at, ended_at in sorted(steering.stops):
        if begun_at <= start + prompt_s:
            start = max(start, ended_at)
    return start
