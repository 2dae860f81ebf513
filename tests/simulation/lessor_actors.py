"""Leases of a group in a simulated history: processes that lend, their clients, and what must hold of tokens.

Owns that part. Each client sends its calls to any process, gives up waiting, repeats them, falls silent and
contradicts itself. What must not break: what a client is told is held against the rows of progress that were
applied, and never against what the library says of them.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from scheduler import Process, World

from cassq.errors import (
    CassqError,
    GroupNotFoundError,
    InvalidOptionError,
    OffsetGoneError,
    OutcomeUnknownError,
    PartitionLostError,
    TopicNotFoundError,
    UnavailableError,
)
from cassq.topics.group_lessor import GroupLessor
from cassq.topics.group_line import GroupLeased
from cassq.topics.topic import Topic

#: A look of a client whether its answer is there.
LOOK_S = 0.02

#: In a calm history a client has what it was lent for this part of its time, at least.
SURE = 0.6

#: Epoch, next and owner of a partition.
Row = tuple[int, int, str]

Blow = tuple[float, str, int, str, float]


@dataclass(frozen=True, slots=True)
class LessorPlan:
    """What is drawn for the leases of one history.

    Attributes:
        services: so many processes lend.
        lease_s: a client has what it was lent for so long.
        is_calm: whether nothing fails in the history, so that no client may be given up before its time.
        is_alone: whether the group has no other members.
        blows: when which of these processes is struck, and how.
    """

    services: int = 0
    clients: int = 0
    lease_s: float = 1.0
    is_calm: bool = False
    is_alone: bool = False
    blows: tuple[Blow, ...] = ()


def draw_lessors(seed: int) -> LessorPlan:
    """Return the plan of a seed: in seven of ten histories nobody lends."""
    dice = random.Random(f"lessors {seed}")
    if dice.random() < 0.7:
        return LessorPlan()
    services, is_calm = dice.choice((1, 2, 2, 3)), dice.random() < 0.25
    blows: list[Blow] = []
    for _ in range(0 if is_calm else dice.choice((0, 0, 1, 2))):
        how = dice.choice(("crash", "freeze", "freeze", "session"))
        at, seconds = dice.random() * 3, dice.choice((0.2, 1.0, 4.0))
        blows.append((at, "service", dice.randrange(services), how, seconds))
    return LessorPlan(
        services,
        clients=dice.choice((1, 2, 4)),
        lease_s=dice.choice((1.0, 1.0, 1.7)),
        is_calm=is_calm,
        is_alone=dice.random() < 0.7,
        blows=tuple(blows),
    )


@dataclass(slots=True, eq=False)
class _Service:
    process: Process
    lessor: GroupLessor


@dataclass(slots=True, eq=False)
class _Held:
    """What a client has.

    Attributes:
        at: since when.
        is_disputed: whether somebody may have given it back.
        is_told: whether a commit of it was told as done.
    """

    leased: GroupLeased
    at: float
    is_disputed: bool = False
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the history keeps, as leases see it.

    Attributes:
        note_seen: notes a message that somebody has.
        done: the places whose messages were worked on.
        is_reset: whether somebody may reset the group.
    """

    group: str
    is_over: Callable[[], bool]
    is_healed: Callable[[], bool]
    note_seen: Callable[[str, Any], None]
    done: set[tuple[int, int]]
    is_reset: Callable[[], bool]
    broken: list[str]


class LessorWatch:
    """The leases of one history."""

    def __init__(self, plan: LessorPlan, world: World, ledger: Ledger) -> None:
        self.is_on = plan.services > 0
        self._plan = plan
        self._world = world
        self._ledger = ledger
        self._services: list[_Service] = []
        #: How far the group was, of each partition and epoch.
        self._stood: dict[tuple[int, int], set[int]] = defaultdict(set)
        #: From where to where clients had leases, of each partition and epoch.
        self._lent: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        #: The epochs that a release has ended, as it was told.
        self._released: set[tuple[int, int]] = set()
        #: In which epoch a place was told as committed.
        self._committed: dict[tuple[int, int], int] = {}

    # Who lends

    def serve(self, process: Process, topic: Topic) -> None:
        """Lend until the history is over, by one lessor after the other."""
        dice, ledger = self._world.dice, self._ledger
        while not ledger.is_over():
            try:
                topic.declare_group(ledger.group)
                lessor = topic.lessor(ledger.group)
            except (UnavailableError, OutcomeUnknownError, GroupNotFoundError):
                self._world.sleep(0.1)
                continue
            except TopicNotFoundError:
                return
            service = _Service(process, lessor)
            self._services.append(service)
            stays = ledger.is_healed() or self._plan.is_calm  # who ends gives its clients up
            until = self._world.now + (60.0 if stays else dice.choice((1.0, 3.0, 60.0)))
            while not (ledger.is_over() or lessor.is_over) and self._world.now < until:
                self._world.sleep(0.05)
            self._services.remove(service)
            lessor.close()

    # Who asks

    def ask(self, process: Process, topic: Topic) -> None:
        """Be a client: lease, and say what became of it."""
        while not self._ledger.is_over():
            held = self._call(process.name, partial(self._lease, process.name))
            if isinstance(held, _Held):
                self._work(process.name, held)
            elif isinstance(held, OffsetGoneError):
                self._reset(topic)
            elif isinstance(held, TopicNotFoundError):
                return

    def _reset(self, topic: Topic) -> None:
        try:
            topic.reset(self._ledger.group, "earliest")
        except CassqError:
            self._world.sleep(0.05)

    def _lease(self, name: str, service: _Service) -> _Held | None:
        dice = self._world.dice
        future = service.lessor.lease_soon(
            dice.choice((1, 2, 5)), lease=timedelta(seconds=self._plan.lease_s)
        )
        until = self._world.now + dice.choice((0.1, 0.5, 2.5))
        while not future.done() and self._world.now < until:
            self._world.sleep(LOOK_S)
        if dice.random() < 0.15 and not self._ledger.is_healed():
            future.give_back()
            return None
        while not future.done():
            future.hurry()
            self._world.sleep(LOOK_S)
        found = future.result()
        return self._note_lent(name, found[0]) if found else None

    def _call(self, name: str, work: Callable[[_Service], Any]) -> Any:
        """Send a call to any process, and wait; None where no answer came in time."""
        services = [each for each in self._services if not each.process.is_dead]
        self._world.sleep(self._world.dice.choice((0.0, LOOK_S)) if services else 0.1)
        if not services:
            return None
        service, answers = self._world.dice.choice(services), []

        def carry_out() -> None:
            try:
                answers.append(work(service))
            except CassqError as error:
                answers.append(error)

        self._world.spawn(service.process, f"{name} calls", carry_out)
        # What nobody waited for is lent for its whole time: after the last fault all is to come to its end.
        patience = 6.0 if self._ledger.is_healed() else self._world.dice.choice((0.3, 1.0, 3.0))
        until = self._world.now + patience
        while not answers and self._world.now < until:
            self._world.sleep(LOOK_S)
        if answers and isinstance(answers[0], InvalidOptionError):
            self._object(f"{name}: a token is refused: {answers[0]}")
        return answers[0] if answers else None

    def _work(self, name: str, held: _Held) -> None:
        """Make some calls about a lease, until it is known to be over, or the client forgets it."""
        dice = self._world.dice
        is_healed = self._ledger.is_healed()
        for _ in range(8 if is_healed else dice.choice((1, 1, 2, 3, 5))):
            roll = 1.0 if is_healed else dice.random()
            if self._ledger.is_over() or roll < 0.1:
                return
            if roll < 0.3:
                self._world.sleep(self._plan.lease_s * dice.choice((0.3, 0.5, 1.1, 1.5)))
                continue
            how = "release" if roll < 0.45 else "commit"
            told = self._settle(name, held, how)
            if isinstance(told, PartitionLostError | TopicNotFoundError | GroupNotFoundError):
                return
            if told == "done" and dice.random() < 0.8:
                return

    def _settle(self, name: str, held: _Held, how: str) -> Any:
        lease, asked_at = held.leased._lease, self._world.now
        if how == "commit":
            self._ledger.done.update((lease.partition, each) for each in range(lease.first, lease.next))
        else:
            held.is_disputed = True
        is_early = asked_at < held.at + SURE * self._plan.lease_s

        def work(service: _Service) -> str:
            try:
                getattr(service.lessor, how)(held.leased.token)
            except PartitionLostError:
                if self._plan.is_calm and is_early and not (held.is_disputed or held.is_told):
                    self._object(f"{name} is given up before its time: {lease}")
                raise
            self._note_told(name, held, how)
            return "done"

        return self._call(name, work)

    # What must be true

    def _note_lent(self, name: str, leased: GroupLeased) -> _Held:
        lease = leased._lease
        epoch = lease.partition, lease.epoch
        if lease.first not in self._stood[epoch]:
            self._object(f"{name} is lent {lease}, where the group never was: {self._stood[epoch]}")
        if [each.offset for each in leased.messages] != [*range(lease.first, lease.next)]:
            self._object(f"{name} is lent {lease} with {[each.offset for each in leased.messages]}")
        for first, after in self._lent[epoch]:
            if lease.first < after and first < lease.next:
                self._object(f"{name} is lent {lease}, and somebody has {first} to {after - 1}")
        self._lent[epoch].append((lease.first, lease.next))
        for message in leased.messages:
            self._ledger.note_seen(name, message)
            told_in = self._committed.get((lease.partition, message.offset), lease.epoch + 1)
            if told_in <= lease.epoch and not self._ledger.is_reset():
                self._object(f"{name} is lent {message.offset} of {lease}, which is committed")
        return _Held(leased, self._world.now)

    def _note_told(self, name: str, held: _Held, how: str) -> None:
        lease = held.leased._lease
        epoch = lease.partition, lease.epoch
        is_committed = any(each >= lease.next for each in self._stood[epoch])
        if how == "release":
            self._released |= set() if is_committed else {epoch}
            return
        held.is_told = True
        if not is_committed:
            self._object(f"{name} is told as committed: {lease}, and the group was never that far")
        for offset in range(lease.first, lease.next):
            self._committed[lease.partition, offset] = lease.epoch

    def hear_progress(self, partition: int, seen: Row | None, wanted: Row) -> None:
        """Judge a change of the progress, as it is applied."""
        epoch, after, owner = wanted
        self._stood[partition, epoch].add(after)
        if seen is None:
            return
        if owner == "" and after != seen[1] and not self._ledger.is_reset():
            self._object(f"progress: nobody reset the group, and {seen} became {wanted}")
        if epoch != seen[0]:
            return
        if after > seen[1] and (partition, epoch) in self._released:
            self._object(f"progress: {seen} became {wanted}, of a lease that was given back")
        skipped = [at for at in range(seen[1], after) if (partition, at) not in self._ledger.done]
        if skipped:
            self._object(f"skipped: {seen} became {wanted}, and nobody has worked on {skipped}")

    def _object(self, words: str) -> None:
        self._ledger.broken.append(words)
