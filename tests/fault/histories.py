"""Short histories in one process: real actors over an embedded store whose replies get lost.

Owns how a history runs. Time runs faster than the machine's (`FastClock`), for the actors and for the store
alike, and two "processes" are two stores over one storage. Their coordinator may lie: a claim is only there
to spare work, so granting every claim to everybody must break no promise.
"""

import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from uuid import UUID

from faulty_storage import Faults, FaultyStorage, Odds

from cassq.coordination.local.coordinator import LocalCoordinator
from cassq.errors import CassqError, DeliveryExpiredError, OutcomeUnknownError, UnavailableError
from cassq.observing.figures import QueueStats
from cassq.popping.delivery import Delivery
from cassq.popping.popper import Popper
from cassq.queue import Queue
from cassq.runtime.clock import SystemClock
from cassq.storage.sqlite.storage import SqliteStorage
from cassq.store import Adapters, Store
from cassq.verification.checker import judge
from cassq.verification.ledger import Kind, Line
from cassq.verification.verdict import Verdict

SPEED = 10.0

SETTINGS = {
    "retry_delay": timedelta(0),
    "lease": timedelta(seconds=1),
    "push_age_max": timedelta(seconds=1),
    "push_grace": timedelta(seconds=1),
    "clock_skew_max": timedelta(milliseconds=100),
    "pipe_messages_max": 40,
    "max_attempts": 1_000_000,
}


class FastClock(SystemClock):
    """The machine's clock, `SPEED` times as fast."""

    def now(self) -> float:
        return super().now() * SPEED

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        condition.wait(None if seconds is None else seconds / SPEED)


class GenerousCoordinator(LocalCoordinator):
    """Grants every claim to everybody, for as long as they like."""

    def claim(self, queue: str, pipe: UUID, holder: str) -> bool:
        return True

    def release(self, queue: str, pipe: UUID, holder: str) -> None:
        pass

    def is_held(self, queue: str, pipe: UUID, holder: str) -> bool:
        return True


@dataclass(slots=True)
class History:
    """What happened, and what the store said in the end."""

    seed: int
    lines: list[Line]
    stats: QueueStats
    counts: dict[str, int]
    trouble: list[str]
    pipes_left: int

    def check(self) -> Verdict:
        """Raise AssertionError unless every promise was kept."""
        verdict = judge(self.lines)
        story = f"seed {self.seed}: {verdict}; {self.stats}; faults {self.counts}"
        assert not self.trouble, f"{self.trouble[:3]}; {story}"
        assert not verdict.broken(), f"{verdict.broken()}; {story}"
        acknowledged = len(verdict.acknowledged)
        assert acknowledged <= self.stats.pushed <= acknowledged + len(verdict.unknown), story
        assert (self.stats.waiting, self.stats.pending, self.stats.delayed) == (0, 0, 0), story
        assert self.stats.pushed == self.stats.popped == self.stats.committed, story
        assert self.pipes_left == 0, f"{self.pipes_left} pipes are left; {story}"
        return verdict


@dataclass(slots=True)
class _Stage:
    """One history while it runs."""

    seed: int
    clock: FastClock
    faults: Faults
    lines: list[Line] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def note(self, who: str, kind: Kind, body: str = "", attempt: int = 0, until: float = 0.0) -> None:
        self.lines.append(Line(self.clock.now(), who, kind, body, attempt, until))

    def note_delivered(self, who: str, each: Delivery) -> None:
        place = {"pipe": str(each.message_id.pipe), "seq": each.message_id.seq}
        line = Line(
            self.clock.now(), who, Kind.DELIVERED, each.body.decode(), each.attempt, each.run.ends_at, **place
        )
        self.lines.append(line)

    def run(self, name: str, work: Callable[[random.Random], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work(random.Random(f"{self.seed} {name}"))
            except BaseException as error:
                self.trouble.append(f"{name}: {error!r}")

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def sleep(self, seconds: float) -> None:
        self.is_over.wait(seconds / SPEED)


def run_history(
    seed: int, *, messages: int = 120, odds: Odds | None = None, is_generous: bool = False, poppers: int = 2
) -> History:
    """Run one history to its end: push, pop and reap under faults, then heal, drain and count."""
    clock = FastClock()
    faults = Faults(seed, odds, is_on=False)
    stage = _Stage(seed, clock, faults)
    storage = SqliteStorage(None, clock=clock)
    coordinator = (GenerousCoordinator if is_generous else LocalCoordinator)(None, clock)
    stores = [
        Store(f"{seed} {name}", Adapters(FaultyStorage(storage, faults), coordinator, _nothing), clock=clock)
        for name in ("pushers", "reaper", *(f"popper{number}" for number in range(poppers)))
    ]
    queues = [store.queue("q", **SETTINGS) for store in stores]
    faults.is_on = True
    pushers = [
        stage.run(f"pusher{number}", lambda dice, n=number: _push(stage, queues[0], n, messages, dice))
        for number in range(2)
    ]
    others = [stage.run("reaper", lambda _dice: _reap(stage, stores[1]))]
    for number in range(poppers):
        others += [
            stage.run(
                f"popper{number}", lambda dice, n=number: _pop(stage, queues[2 + n], f"popper{n}", dice)
            )
        ]
    _join(stage, pushers, 60)
    faults.end()
    queues[0].close()
    stats = _await_empty(stage, stores[1].queue("q"))
    stage.is_over.set()
    _join(stage, others, 30)
    left = _reap_all(stage, stores[1])
    stats = stores[1].queue("q").stats()
    for store in stores:
        store.close()
    coordinator.close()
    storage.close()
    return History(seed, stage.lines, stats, faults.counts, stage.trouble, left)


def _nothing() -> None:
    pass


def _join(stage: _Stage, threads: Iterable[threading.Thread], seconds: float) -> None:
    for thread in threads:
        thread.join(seconds)
        if thread.is_alive():
            stage.trouble.append(f"{thread.name} hangs")


def _await_empty(stage: _Stage, queue: Queue) -> QueueStats:
    end = stage.clock.now() + 20 * SPEED
    while True:
        stats = queue.stats()
        if stats.waiting == stats.pending == stats.delayed == 0:
            return stats
        if stage.clock.now() > end:
            stage.trouble.append(f"the queue does not drain: {stats}")
            return stats
        stage.sleep(0.2)


def _reap_all(stage: _Stage, store: Store) -> int:
    end = stage.clock.now() + 10 * SPEED
    while True:
        store.reap()
        left = len(store.storage.list_pipes("q").entries)
        if not left or stage.clock.now() > end:
            return left
        threading.Event().wait(0.2 / SPEED)


def _reap(stage: _Stage, store: Store) -> None:
    while not stage.is_over.is_set():
        with suppress(UnavailableError, OutcomeUnknownError):
            store.reap()
        stage.sleep(0.2)


def _push(stage: _Stage, queue: Queue, number: int, messages: int, dice: random.Random) -> None:
    who = f"pusher{number}"
    made = 0
    flying: list[tuple[str, Future[object]]] = []
    while made < messages:
        # Never more than one request: of several, the first may be stored though the call says "not pushed".
        count = min(dice.choice((1, 1, 3, 17, 40)), messages - made)
        bodies = [f"{number}-{made + place}" for place in range(count)]
        made += count
        timeout = timedelta(seconds=dice.choice((0.5, 2, 30)))
        _note_all(stage, who, Kind.ATTEMPTED, bodies)
        if count == 1 and dice.random() < 0.5:
            try:
                flying.append((bodies[0], queue.push_soon(bodies[0].encode(), timeout=timeout)))
            except UnavailableError:
                stage.note(who, Kind.REFUSED, bodies[0])
            continue
        _note_outcome(stage, who, bodies, lambda b=bodies, t=timeout: _push_many(queue, b, t))
        stage.sleep(dice.choice((0, 0, 0.01, 0.3)))
    for body, future in flying:
        _note_outcome(stage, who, [body], lambda f=future: f.result(40))


def _push_many(queue: Queue, bodies: list[str], timeout: timedelta) -> None:
    queue.push_many([body.encode() for body in bodies], timeout=timeout)


def _note_outcome(stage: _Stage, who: str, bodies: list[str], push: Callable[[], object]) -> None:
    try:
        push()
    except UnavailableError:
        kind = Kind.REFUSED
    except OutcomeUnknownError:
        kind = Kind.UNKNOWN_PUSH
    else:
        kind = Kind.ACKNOWLEDGED
    _note_all(stage, who, kind, bodies)


def _note_all(stage: _Stage, who: str, kind: Kind, bodies: Iterable[str]) -> None:
    for body in bodies:
        stage.note(who, kind, body)


def _pop(stage: _Stage, queue: Queue, who: str, dice: random.Random) -> None:
    while not stage.is_over.is_set():
        popper = queue.popper(commit="each")
        try:
            for _ in range(dice.choice((5, 50, 500))):
                if stage.is_over.is_set():
                    break
                _pop_some(stage, popper, who, dice)
        finally:
            stage.note(who, Kind.CLOSING)
            popper.close()


def _pop_some(stage: _Stage, popper: Popper, who: str, dice: random.Random) -> None:
    try:
        deliveries = popper.pop_many(dice.choice((1, 1, 2, 9, 40)), timeout=0.5)
    except UnavailableError:
        return
    for each in deliveries:
        stage.note_delivered(who, each)
    while deliveries:
        count = dice.choice((1, 1, 3, len(deliveries)))
        part, deliveries = deliveries[:count], deliveries[count:]
        match dice.random():
            case roll if roll < 0.08:
                _roll_back(stage, part, who, timedelta(seconds=dice.choice((0, 0, 0.2))))
            case roll if roll < 0.12:
                continue  # dropped: the lease ends
            case roll if roll < 0.16:
                stage.sleep(1.3)
                _commit(stage, popper, part, who)
            case roll if roll < 0.22:
                _extend(stage, part, who)
                _commit(stage, popper, part, who)
            case _:
                _commit(stage, popper, part, who)


def _roll_back(stage: _Stage, deliveries: list[Delivery], who: str, delay: timedelta) -> None:
    for each in deliveries:
        stage.note(who, Kind.ROLLING_BACK, each.body.decode(), each.attempt)
        each.rollback(delay)


def _extend(stage: _Stage, deliveries: list[Delivery], who: str) -> None:
    run = deliveries[0].run
    with suppress(CassqError):
        deliveries[0].extend()
        for each in deliveries:
            if each.run is run:
                stage.note(who, Kind.EXTENDED, each.body.decode(), each.attempt, run.ends_at)


def _commit(stage: _Stage, popper: Popper, deliveries: list[Delivery], who: str) -> None:
    for _, each in groupby(deliveries, key=lambda delivery: delivery.run):
        _commit_run(stage, popper, list(each), who)


def _commit_run(stage: _Stage, popper: Popper, deliveries: list[Delivery], who: str) -> None:
    for each in deliveries:
        stage.note(who, Kind.COMMITTING, each.body.decode(), each.attempt)
    try:
        if len(deliveries) == 1:
            deliveries[0].commit()
        else:
            popper.commit_many(deliveries)
    except DeliveryExpiredError:
        kind = Kind.EXPIRED
    except OutcomeUnknownError:
        kind = Kind.UNKNOWN_COMMIT
    else:
        kind = Kind.COMMITTED
    for each in deliveries:
        stage.note(who, kind, each.body.decode(), each.attempt)
