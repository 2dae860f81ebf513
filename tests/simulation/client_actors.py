"""What clients of a service do in a simulated history: lease, and send each call to any process.

Owns the services, which lease and know tokens, and their clients: each sends its calls at random, gives up
waiting, sends them again, also to another process, and contradicts itself now and then. What must not break:
a client notes what it was told, and of what it rolled back it is told nothing more.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from actors import POP_S, Consumer, Stage, _consume, place_of
from scheduler import Process

from cassq.errors import CassqError, DeliveryExpiredError, OutcomeUnknownError, UnavailableError
from cassq.model.lease import Extension, Lease, Rollback, Settled
from cassq.popping.lessor import Leased, LeasedMessage, Lessor
from cassq.queue import Queue
from cassq.verification.ledger import Kind

#: A look of a client whether its answer is there.
LOOK_S = 0.01


@dataclass(slots=True, eq=False)
class Service:
    """A process that serves clients."""

    process: Process
    queue: Queue
    lessor: Lessor


def serve(stage: Stage, process: Process) -> None:
    """Lease to clients, and settle their leases, until the history is over; some pop besides."""
    store, queue = stage.open(process)
    dice = stage.world.dice
    if not stage.is_healed and dice.random() < 0.4:
        popping = partial(_consume, stage, Consumer(process.name, process.offset_s), queue, leaves=True)
        stage.world.spawn(process, "pops", popping)
    while not stage.is_over:
        try:
            lessor = queue.lessor()
        except UnavailableError:
            stage.world.sleep(0.05)
            continue
        service = Service(process, queue, lessor)
        stage.services.append(service)
        until = stage.world.now + (float("inf") if stage.is_healed else dice.choice((0.5, 2.0, 60.0)))
        while not stage.is_over and stage.world.now < until:
            stage.world.sleep(0.05)
        stage.services.remove(service)
        lessor.close()
    store.close()


@dataclass(slots=True, eq=False)
class _Held:
    """A lease in a client's hands."""

    lease: Lease
    messages: Sequence[LeasedMessage]
    asked: set[int] = field(default_factory=set)  # rolled back, or rejected: of these it is told nothing more
    committed: set[int] = field(default_factory=set)  # so it was told: again is no news
    unknown: set[int] = field(
        default_factory=set
    )  # a call may have committed them: no later one takes that back


class Client:
    """One client, which has one lease at a time."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._world = stage.world
        self._dice = stage.world.dice
        self._name = name

    def run(self) -> None:
        """Lease and settle until the history is over."""
        while not self._stage.is_over:
            count = self._dice.choice((1, 1, 2, 5))
            for leased in self._call(partial(self._lease, count)) or ():
                self._work(self._received(leased))

    def _lease(self, count: int, service: Service) -> list[Leased]:
        lessor = service.lessor
        if self._dice.random() < 0.5:
            return lessor.lease(count, timeout=POP_S)
        future = lessor.lease_soon(count)
        until = self._world.now + POP_S * self._dice.random()
        while not future.done() and self._world.now < until:
            self._world.sleep(0.02)
        if self._dice.random() < 0.3:
            future.give_back()
            return []
        while not future.done():
            future.hurry()
            self._world.sleep(0.02)
        return future.result()

    def _call(self, work: Callable[[Service], Any]) -> Any:
        """Send a call to any process, and wait; None where no answer came in time, or it failed."""
        services = [each for each in self._stage.services if not each.process.is_dead]
        if not services:
            self._world.sleep(0.1)
            return None
        service, answers = self._dice.choice(services), []

        def carry_out() -> None:
            try:
                answers.append(work(service))
            except CassqError as error:
                answers.append(error)

        self._world.spawn(service.process, f"{self._name} calls", carry_out)
        until = self._world.now + self._dice.choice((0.2, 0.8, 2.0))
        while not answers and self._world.now < until:
            self._world.sleep(LOOK_S)
        answer = answers[0] if answers else None
        if isinstance(answer, CassqError) and not isinstance(answer, DeliveryExpiredError):
            self._world.sleep(0.02)
            return None
        return answer

    def _received(self, leased: Leased) -> _Held:
        held = _Held(leased.lease, leased.messages)
        until = self._world.now + leased.left_s
        for each in held.messages:
            self._note(Kind.DELIVERED, [each], until=until)
        return held

    def _work(self, held: _Held) -> None:
        """Make some calls about a lease, until it is known to be settled, or the client forgets it."""
        calls = 8 if self._stage.is_healed else self._dice.choice((1, 1, 2, 3, 5))
        for _ in range(calls):
            if self._stage.is_over:
                return
            roll = 1.0 if self._stage.is_healed else self._dice.random()
            if roll < 0.1:
                return
            if roll < 0.3:
                self._world.sleep(self._stage.lease_s * self._dice.choice((0.3, 0.8, 0.95, 1.1, 1.4)))
            elif roll < 0.45:
                self._extend(held)
            elif (roll < 0.65 and self._settle(held)) or (self._commit(held) and self._dice.random() < 0.8):
                return

    def _extend(self, held: _Held) -> None:
        asked_at = self._world.now
        told = self._call(lambda service: service.queue.leases.extend([held.lease]))
        if told == [Extension.EXTENDED]:
            kept = [each for each in held.messages if each.seq not in held.asked]
            self._note(Kind.EXTENDED, kept, until=asked_at + self._stage.lease_s)

    def _commit(self, held: _Held) -> bool:
        self._note(Kind.COMMITTING, held.messages)
        if self._dice.random() < 0.5:
            told = self._call(lambda service: service.queue.leases.commit([held.lease])[0])
        else:
            told = self._call(partial(self._commit_soon, held.lease))
        return self._note_told(held, told)

    def _commit_soon(self, lease: Lease, service: Service) -> Settled:
        future = service.queue.leases.commit_soon(lease)
        while not future.done():
            self._world.sleep(LOOK_S)
        return future.result()

    def _settle(self, held: _Held) -> bool:
        ways = [self._dice.random() for _ in held.messages]
        back = [each for each, way in zip(held.messages, ways, strict=True) if way < 0.4]
        dead = [each for each, way in zip(held.messages, ways, strict=True) if way > 0.9]
        held.asked |= {each.seq for each in (*back, *dead)}
        kept = [each for each in held.messages if each.seq not in held.asked]
        self._note(Kind.ROLLING_BACK, [*back, *dead])
        self._note(Kind.COMMITTING, kept)
        delays = {each.seq: self._dice.choice((None, *map(_seconds, self._stage.rests_s))) for each in back}
        rolled_back = {seq: Rollback(delay, "planned") for seq, delay in delays.items()}
        rejected = {each.seq: "planned" for each in dead}
        # What it says of messages that it said otherwise of before is for the service to deal with.
        told = self._call(
            lambda service: service.queue.leases.settle(
                held.lease, rolled_back=rolled_back, rejected=rejected
            )
        )
        return self._note_told(held, told)

    def _note_told(self, held: _Held, told: object) -> bool:
        """Note what became of messages; True where the lease is settled."""
        kinds = {Settled.COMMITTED: Kind.COMMITTED, Settled.EXPIRED: Kind.EXPIRED}
        kind = kinds.get(told, Kind.UNKNOWN_COMMIT) if isinstance(told, Settled) else Kind.UNKNOWN_COMMIT
        if isinstance(told, DeliveryExpiredError):
            kind = Kind.UNKNOWN_COMMIT  # a part of it may have been committed before
        for each in held.messages:
            is_doubted = kind is Kind.EXPIRED and each.seq in held.unknown
            if each.seq in held.asked or is_doubted:
                self._note(Kind.UNKNOWN_COMMIT, [each])
            elif each.seq not in held.committed:
                self._note(kind, [each])
                told_as = held.committed if kind is Kind.COMMITTED else held.unknown
                told_as.add(each.seq)
        return isinstance(told, DeliveryExpiredError) or told in (
            Settled.COMMITTED,
            Settled.EXPIRED,
            Settled.ENDED,
        )

    def _note(self, kind: Kind, messages: Iterable[LeasedMessage], **more: Any) -> None:
        for each in messages:
            place = place_of(each.message_id)
            self._stage.note(self._name, kind, [each.body.decode()], attempt=each.attempt, **more, **place)


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def lease_and_settle(stage: Stage, process: Process) -> None:
    """Be a client."""
    with suppress(OutcomeUnknownError):
        Client(stage, process.name).run()
