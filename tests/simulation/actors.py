"""What applications do in a simulated history: push, pop, commit, roll back, forget, and reap from cron.

Owns the workloads; each notes what it attempts before it does, and what came of it afterwards.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from hands import Hands
from plan import Habits
from recurrence_watch import name_of
from scheduler import Process, World

from cassq.errors import (
    CassqError,
    ClosedError,
    DeliveryExpiredError,
    OutcomeUnknownError,
    UnavailableError,
)
from cassq.model.ids import MessageId
from cassq.popping.delivery import Delivery
from cassq.popping.popper import Popper
from cassq.queue import Queue
from cassq.storage.port import Storage
from cassq.store import Store
from cassq.verification.ledger import Kind

if TYPE_CHECKING:
    from client_actors import Service
    from due_watch import DueWatch
    from expiry_watch import ExpiryWatch
    from key_watch import KeyWatch
    from move_watch import MoveWatch
    from recurrence_watch import RecurrenceWatch
    from type_watch import TypeWatch

#: A consumer's patience.
POP_S = 0.3


class Stage(Protocol):
    """The history, as its actors see it."""

    world: World
    is_over: bool
    is_healed: bool
    lease_s: float
    patiences_s: tuple[float, ...]
    max_attempts: int
    habits: Habits
    hands: Hands
    unknown: dict[str, list[CassqError]]
    consumers: int
    ids: dict[str, MessageId]
    soon: float
    expiry: "ExpiryWatch"
    types: "TypeWatch"
    keys: "KeyWatch"
    dues: "DueWatch"
    moves: "MoveWatch"
    rests_s: tuple[float, ...]
    recurring: "RecurrenceWatch"
    services: list["Service"]

    def open(self, process: Process) -> tuple[Store, Queue]: ...

    def priority_of(self, bodies: Sequence[str]) -> int: ...

    def note(self, who: str, kind: Kind, bodies: Iterable[str], **more: Any) -> None: ...


def place_of(message_id: MessageId) -> dict[str, Any]:
    """Return what tells a message from others with its body, as a line has it."""
    return {"pipe": str(message_id.pipe), "seq": message_id.seq}


def push_all(stage: Stage, process: Process, messages: int) -> None:
    """Push so many messages, one by one and in groups, with pauses; then close."""
    store, queue = stage.open(process)
    dice = stage.world.dice
    made = 0
    flying: list[tuple[str, Future[Any]]] = []
    while made < messages:
        count = min(dice.choice((1, 1, 2, 4)), messages - made)
        bodies = [f"{process.name}-{made + place}" for place in range(count)]
        made += count
        timeout = timedelta(seconds=dice.choice(stage.patiences_s))
        how = {
            "timeout": timeout,
            "ttl": stage.expiry.own_ttl(bodies),
            "priority": stage.priority_of(bodies),
            "type": stage.types.type_of(bodies),
            **stage.dues.options(dice, bodies),
        }
        how["key"] = stage.keys.key_of(process.name, bodies, how["priority"], how["type"])
        stage.moves.note_pushed(bodies, how["priority"])
        stage.note(process.name, Kind.ATTEMPTED, bodies)
        if dice.random() < 0.3:
            for body in bodies:
                _push_soon(stage, process, queue, body, how, flying)
        else:
            _note_push(stage, process, bodies, lambda b=bodies, h=how: _push_many(queue, b, h))
        stage.world.sleep(dice.choice((0.0, 0.0, 0.01, 0.05, 0.2)))
    for body, future in flying:
        _note_push(stage, process, [body], lambda f=future: [f.result(60)])
    store.close()


def _push_soon(
    stage: Stage,
    process: Process,
    queue: Queue,
    body: str,
    how: dict[str, Any],
    flying: list[tuple[str, Future[Any]]],
) -> None:
    try:
        flying.append((body, queue.push_soon(body.encode(), **how)))
    except UnavailableError:
        stage.note(process.name, Kind.REFUSED, [body])


def _push_many(queue: Queue, bodies: list[str], how: dict[str, Any]) -> Iterable[MessageId]:
    """Push together; every other group has headers."""
    headers = {"group": bodies[0]} if len(bodies) % 2 == 0 else None
    return queue.push_many([(body.encode(), headers) if headers else body.encode() for body in bodies], **how)


def _note_push(
    stage: Stage, process: Process, bodies: list[str], push: Callable[[], Iterable[MessageId]]
) -> None:
    try:
        stage.ids.update(zip(bodies, push(), strict=True))
    except UnavailableError:
        kind = Kind.REFUSED
    except OutcomeUnknownError:
        kind = Kind.UNKNOWN_PUSH
    else:
        kind = Kind.ACKNOWLEDGED
        stage.dues.note_told(bodies)
        stage.keys.note_told(bodies)
    stage.note(process.name, kind, bodies)


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer in a process, as the ledger names it.

    Attributes:
        offset_s: of the process.
    """

    name: str
    offset_s: float


def crew_of(process: Process, consumers: int) -> list[Consumer]:
    """Return the consumers of a process, which has a popper for each."""
    names = [process.name] + [f"{process.name}.{number}" for number in range(1, consumers)]
    return [Consumer(name, process.offset_s) for name in names]


def pop_all(stage: Stage, process: Process) -> None:
    """Pop with new poppers now and then, until the history is over; some leave when the faults do."""
    store, queue = stage.open(process)
    leaves = not stage.is_healed and stage.world.dice.random() < 0.7
    own, *others = crew_of(process, stage.consumers)
    for other in others:
        stage.world.spawn(process, other.name, partial(_consume, stage, other, queue, leaves=leaves))
    _consume(stage, own, queue, leaves=leaves)
    store.close()  # the others may be in the middle of a pop


def _consume(stage: Stage, consumer: Consumer, queue: Queue, *, leaves: bool) -> None:
    """Pop with one popper after the other; nothing but the end of the store ends that in the middle."""
    try:
        while not stage.is_over and not (leaves and stage.is_healed):
            _consume_for_a_while(stage, consumer, queue, leaves=leaves)
    except ClosedError:
        if not queue.is_closed:
            raise


def _consume_for_a_while(stage: Stage, consumer: Consumer, queue: Queue, *, leaves: bool) -> None:
    dice = stage.world.dice
    commit = dice.choice(stage.habits.commits)
    types = None if stage.is_healed else stage.types.draw(dice)  # a queue gets empty where all is wanted
    try:
        popper = queue.popper(commit=commit, types=types)
    except UnavailableError:  # a type that was never named before
        stage.world.sleep(0.05)
        return
    try:
        for _ in range(dice.choice((2, 10, 100))):
            if stage.is_over or ((leaves or types) and stage.is_healed):
                break
            for each in _pop_some(stage, consumer, popper, dice, is_grouped=commit == "grouped"):
                stage.types.check(consumer.name, types, each)
    finally:
        stage.note(consumer.name, Kind.CLOSING, [""])
        popper.close()
        if commit == "grouped":
            # Who closes second does not wait for what the first one writes.
            popper._intake.committer.flush()  # type: ignore[attr-defined]
            stage.hands.flush(consumer.name)


def _pop_some(
    stage: Stage, consumer: Consumer, popper: Popper, dice: random.Random, *, is_grouped: bool
) -> Sequence[Delivery]:
    try:
        count = dice.choice((1, 1, 2, 9))
        if stage.soon and dice.random() < stage.soon:
            deliveries = _pop_soon(stage, consumer, popper, count)
        else:
            deliveries = popper.pop_many(count, timeout=POP_S)
    except (UnavailableError, OutcomeUnknownError):
        stage.world.sleep(0.05)
        return []
    popped = deliveries
    stage.hands.give(consumer.name, deliveries)
    for each in deliveries:
        stage.dues.check(consumer.name, each, stage.ids.get(each.body.decode()))
        stage.recurring.check(consumer.name, each)
        stage.keys.check(consumer.name, each, stage.world.now + each.run.left_s)
        stage.note(
            consumer.name,
            Kind.DELIVERED,
            [name_of(each)],
            attempt=each.attempt,
            until=stage.world.now + each.run.left_s,
            **place_of(each.message_id),
        )
    while deliveries:
        count = dice.choice((1, 1, 3, len(deliveries)))
        part, deliveries = deliveries[:count], deliveries[count:]
        _end_some(stage, consumer, popper, part, dice, is_grouped=is_grouped)
    return popped


def _pop_soon(stage: Stage, consumer: Consumer, popper: Popper, count: int) -> list[Delivery]:
    """Pop by a future, which is waited for, hurried, cancelled or given back."""
    world, future = stage.world, popper.pop_soon(count)
    until = world.now + POP_S * world.dice.random()
    while not future.done() and world.now < until:
        world.sleep(0.02)
    if (roll := world.dice.random()) < 0.25:
        stage.note(consumer.name, Kind.CLOSING, [""])
        future.give_back()
        return []
    if roll < 0.5:
        if future.cancel():
            return []
    else:
        future.hurry()
    while not future.done():
        world.sleep(0.02)
        future.hurry()
    return future.result()


def _end_some(
    stage: Stage,
    consumer: Consumer,
    popper: Popper,
    part: list[Delivery],
    dice: random.Random,
    *,
    is_grouped: bool,
) -> None:
    habits, roll = stage.habits, dice.random()
    if stage.is_healed:
        roll = float("inf")  # a queue gets empty only where its consumers do their work
    if (roll := roll - habits.roll_back) < 0:
        _roll_back(stage, consumer, part, timedelta(seconds=dice.choice(stage.rests_s)))
        return
    if (roll := roll - habits.reject) < 0:
        _reject(stage, consumer, part)
        return
    if (roll := roll - habits.forget) < 0:
        return  # the lease ends
    if (roll := roll - habits.dawdle) < 0:
        stage.world.sleep(stage.lease_s * dice.choice(habits.dawdles))
    elif (roll := roll - habits.extend) < 0:
        stage.world.sleep(dice.choice((0.0, 0.0, 0.8, 0.9, 0.97)) * stage.lease_s)
        with suppress(CassqError):
            part[0].extend()
        stage.world.sleep(dice.choice((0.0, 0.5, 0.9, 0.97)) * stage.lease_s)
    _commit(stage, consumer, popper, part, is_grouped=is_grouped)


def _note_each(stage: Stage, consumer: Consumer, kind: Kind, deliveries: list[Delivery]) -> None:
    for each in deliveries:
        place = place_of(each.message_id)
        stage.note(consumer.name, kind, [name_of(each)], attempt=each.attempt, **place)


def _roll_back(stage: Stage, consumer: Consumer, deliveries: list[Delivery], delay: timedelta) -> None:
    for each in deliveries:
        _note_each(stage, consumer, Kind.ROLLING_BACK, [each])
        stage.keys.note_ending(name_of(each), is_last=each.attempt >= stage.max_attempts)
        begun_at, is_told = stage.world.now, each.rollback(delay)
        stage.moves.note_rested(each, begun_at, delay, is_told=is_told)
        if is_told and each.attempt >= stage.max_attempts:
            _note_each(stage, consumer, Kind.GIVEN_UP, [each])


def _reject(stage: Stage, consumer: Consumer, deliveries: list[Delivery]) -> None:
    for each in deliveries:
        _note_each(stage, consumer, Kind.ROLLING_BACK, [each])
        stage.keys.note_ending(name_of(each), is_last=True)
        if each.reject("planned"):
            _note_each(stage, consumer, Kind.GIVEN_UP, [each])


def _commit(
    stage: Stage, consumer: Consumer, popper: Popper, deliveries: list[Delivery], *, is_grouped: bool
) -> None:
    """Commit in calls of one run each, so that what a call ends with is true of all that it names."""
    for _, each in groupby(deliveries, key=lambda delivery: delivery.run):
        together = list(each)
        _note_each(stage, consumer, Kind.COMMITTING, together)
        for one in together:
            stage.keys.note_ending(name_of(one), is_last=True)
        if stage.soon and stage.world.dice.random() < stage.soon:
            _commit_soon(stage, consumer, together)
        elif is_grouped:
            _commit_later(stage, popper, together)
        else:
            _commit_now(stage, consumer, popper, together)


def _commit_now(stage: Stage, consumer: Consumer, popper: Popper, deliveries: list[Delivery]) -> None:
    try:
        _call_commit(popper, deliveries)
    except DeliveryExpiredError:
        kind = Kind.EXPIRED
    except OutcomeUnknownError:
        kind = Kind.UNKNOWN_COMMIT
    except ClosedError:
        return
    else:
        kind = Kind.COMMITTED
    _note_each(stage, consumer, kind, deliveries)


def _commit_soon(stage: Stage, consumer: Consumer, deliveries: list[Delivery]) -> None:
    """Commit by futures; who asks for the next message meanwhile hears of them later."""
    future = None
    for each in deliveries:
        with suppress(ClosedError):
            future = each.commit_soon()
            future.add_done_callback(partial(_note_told, stage, consumer, each))
    while future and not future.done() and stage.world.dice.random() < 0.9:
        stage.world.sleep(0.002)


def _note_told(stage: Stage, consumer: Consumer, delivery: Delivery, future: "Future[None]") -> None:
    error, kind = future.exception(), Kind.COMMITTED
    if isinstance(error, DeliveryExpiredError):
        kind = Kind.EXPIRED
    elif isinstance(error, OutcomeUnknownError):
        kind = Kind.UNKNOWN_COMMIT
    elif error:
        raise error
    _note_each(stage, consumer, kind, [delivery])


def _commit_later(stage: Stage, popper: Popper, deliveries: list[Delivery]) -> None:
    """Hand a commit over; it has only begun when that returns."""
    stage.hands.group(deliveries)
    try:
        _call_commit(popper, deliveries)
    except DeliveryExpiredError:
        stage.hands.refuse(deliveries)


def _call_commit(popper: Popper, deliveries: list[Delivery]) -> None:
    if len(deliveries) == 1:
        deliveries[0].commit()
    else:
        popper.commit_many(deliveries)


def purge_all(stage: Stage, process: Process, times: int) -> None:
    """Purge the queue now and then, as an operator may."""
    _, queue = stage.open(process)
    unknown = stage.unknown[process.name]
    for _ in range(times):
        stage.world.sleep(stage.world.dice.random())
        unknown.clear()
        stage.note(process.name, Kind.PURGING, [""])
        stage.keys.note_purging()
        with suppress(UnavailableError, OutcomeUnknownError):
            count = queue.purge()
            # Where an answer got lost, the count is of what was surely this purge's: there may be more.
            if not unknown:
                stage.note(process.name, Kind.PURGED, [""], count=count)
        stage.keys.note_purging()


def unknown_transactions(storage: Storage) -> list[CassqError]:
    """Return a list that grows by each transaction whose outcome stays unknown; before a store wraps it."""
    unknown: list[CassqError] = []
    transact = storage.transact

    def transact_and_tell(*arguments: Any) -> Any:
        try:
            return transact(*arguments)
        except OutcomeUnknownError as error:
            unknown.append(error)
            raise

    storage.transact = transact_and_tell  # type: ignore[method-assign]
    return unknown


def reap_all(stage: Stage, process: Process) -> None:
    """Reap every queue again and again, as cron does: each time from a store that knows nothing yet."""
    store, _ = stage.open(process)
    while not stage.is_over:
        with suppress(UnavailableError, OutcomeUnknownError):
            store.reap()
        stage.world.sleep(stage.world.dice.choice((0.1, 0.3, 0.8)))
