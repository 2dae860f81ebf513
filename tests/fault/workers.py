"""Worker processes that push, pop or reap until they are told to stop, and write down what they saw.

Owns what one worker does, and what it notes, in the words of `cassq.verification.ledger`. Refuses to judge
anything: a worker may be killed or frozen between any two lines. The rule that must not break: a line about
an intention is written before the call, a line about an outcome only after it.

    python workers.py pusher --url URL --ledger FILE --who NAME --seed 7 --timeout 8

SIGTERM ends a worker in order: what is on its way is finished, the store is closed, `done` is noted.
SIGUSR1 ends its ZooKeeper session behind its back, as if the servers had heard nothing of it for too long.
"""

import argparse
import os
import random
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, TypeVar

from kazoo.client import KazooClient
from reckoning import DELAY, KEY

import cassq
from cassq.errors import CassqError, DeliveryExpiredError, OutcomeUnknownError, UnavailableError
from cassq.limits import BATCH_MESSAGES_MAX
from cassq.model.options import PushOptions
from cassq.model.topic import OFFSET_HEADER
from cassq.popping.delivery import Delivery
from cassq.popping.popper import Popper
from cassq.queue import Queue
from cassq.verification.ledger import Kind, LedgerWriter, Line

Begun = TypeVar("Begun")

QUEUE = "faults"

#: How often a pusher with a rate pushes one message alone.
SINGLES = 0.3

#: How many messages a popper asks for where the load is steady.
STEADY = 60

#: Of so many keys each message with one has any.
KEYS = 8

#: Every time limit is short, so that each fault outlasts it within seconds.
SETTINGS = {
    "retry_delay": timedelta(0),
    "lease": timedelta(seconds=1.5),
    "push_age_max": timedelta(seconds=1),
    "push_grace": timedelta(milliseconds=600),
    "clock_skew_max": timedelta(milliseconds=100),
    "pipe_messages_max": 200,
    "max_attempts": 1_000_000,
    "keys": "ordered",
    "key_slots": 4,
}


@dataclass(frozen=True, slots=True)
class Habits:
    """How a worker works.

    Attributes:
        rate: messages a second that a pusher pushes, whatever became of the ones before; a popper then
            commits in one call what came in one. 0: a pusher goes by its pace, a popper by the dice.
        pace_s: without a rate, the longest pause between two pushes, so that poppers can keep up.
        timeout_s: how long one push may take.
        padding: blanks behind each body.
        keyed: in how many calls a pusher pushes messages of one key.
        delayed: in how many of the others they are due later.
        delay_s: how much later at the most.
        mishaps: how many of a popper's parts end otherwise than by a commit: rolled back, one in four of
            them forgotten. As many are extended first.
        work_s: how long a popper works on what one call brought.
        rest_s: a reaper's pause between two passes.
        topic: what a worker of `topic_workers` works with; `queue` is its writer or its group then.
        begin: the number that a writer goes on with.
        commit: how a member commits; each in a way of its own where this is empty.
        services: the folder with the sockets of services, for workers of `service_workers`.
    """

    queue: str = QUEUE
    seed: int = 0
    rate: float = 0.0
    pace_s: float = 0.03
    timeout_s: float = 30.0
    padding: int = 0
    keyed: float = 0.02
    delayed: float = 0.02
    delay_s: float = 3.0
    mishaps: float = 0.04
    work_s: float = 0.0
    rest_s: float = 0.02
    topic: str = ""
    begin: int = 0
    commit: str = ""
    services: str = ""


class Bell:
    """An event that a signal handler may set.

    A `threading.Event` has a lock, and waits for itself for ever where the signal strikes inside it. A
    `SimpleQueue` waits for ever where a handler runs until its time is over.
    """

    def __init__(self) -> None:
        self._heard, self._rung = os.pipe()

    def set(self) -> None:
        os.write(self._rung, b"!")

    def is_set(self) -> bool:
        return self.wait(0.0)

    def wait(self, seconds: float) -> bool:
        return bool(select.select([self._heard], [], [], seconds)[0])


class Worker:
    """One process's seat in a test.

    Attributes:
        ROLES: which method does what a role has to do.
    """

    ROLES: ClassVar = {"pusher": "push", "popper": "pop", "reaper": "reap"}

    def __init__(self, ledger: LedgerWriter, habits: Habits) -> None:
        self.ledger = ledger
        self.dice = random.Random(f"{habits.seed} {ledger.who}")
        self.habits = habits
        self.timeout = timedelta(seconds=habits.timeout_s)
        self.is_over = Bell()

    def stop(self, *_: object) -> None:
        self.is_over.set()

    def patiently(self, begin: Callable[[], Begun]) -> Begun:
        """Begin something, again after a while when there is an outage just now, as a supervisor would."""
        while True:
            try:
                return begin()
            except UnavailableError:
                if self.is_over.wait(0.5):
                    raise

    def push(self, store: cassq.Store) -> None:
        """Push unique messages, by a rate or in calls of 1 to 40."""
        queue = self.patiently(lambda: store.queue(self.habits.queue))
        begun_at = self.ledger.now()
        made = calls = 0
        while not self.is_over.is_set():
            # Never more than one request: of several, the first may be stored though the call raised.
            count = self.dice.choice((1, 1, 1, 3, 10, 40))
            if self.habits.rate:
                count = self._due((self.ledger.now() - begun_at) * self.habits.rate - made)
            options: PushOptions = {}
            ending = ""
            # The first two calls, too: of any that pushes, however seldom, some have a key, and some a delay.
            if calls == 0 or self.dice.random() < self.habits.keyed:
                options["key"], count = f"key{self.dice.randrange(KEYS)}", min(max(count, 3), 10)
                ending = f"{KEY}{options['key']}"
            elif calls == 1 or self.dice.random() < self.habits.delayed:
                options["delay"] = timedelta(
                    milliseconds=self.dice.randrange(round(1000 * self.habits.delay_s))
                )
                ending = f"{DELAY}{options['delay'] // timedelta(milliseconds=1)}"
            bodies = [f"{self.ledger.who}-{made + place}{ending}" for place in range(count)]
            made += len(bodies)
            if bodies:
                self.ledger.note(Kind.ATTEMPTED, *bodies)
                kind, words = self._push_some(queue, bodies, options)
                self.ledger.note(kind, *bodies, words=words)
                calls += 1
            self.is_over.wait(self.dice.random() * self.habits.pace_s)

    def _due(self, late: float) -> int:
        """Return how many to push now: one by one at times, all that the rate asks for at others."""
        return min(int(late), 1 if self.dice.random() < SINGLES else BATCH_MESSAGES_MAX)

    def _push_some(self, queue: Queue, bodies: Sequence[str], options: PushOptions) -> tuple[Kind, str]:
        padded = [body.encode() + b" " * self.habits.padding for body in bodies]
        try:
            if len(bodies) == 1:
                queue.push(padded[0], timeout=self.timeout, **options)
            else:
                queue.push_many(padded, timeout=self.timeout, **options)
        except UnavailableError as error:
            return Kind.REFUSED, str(error)
        except OutcomeUnknownError as error:
            return Kind.UNKNOWN_PUSH, str(error)
        return Kind.ACKNOWLEDGED, ""

    def pop(self, store: cassq.Store) -> None:
        """Pop in calls of 1 to 60; commit nearly all, roll some back, leave a few to their leases."""
        sizes = (STEADY,) if self.habits.rate else (1, 1, 5, 20, 60)
        with self.patiently(lambda: store.queue(self.habits.queue)).popper() as popper:
            while not self.is_over.is_set():
                try:
                    deliveries = popper.pop_many(self.dice.choice(sizes), timeout=0.5)
                except (UnavailableError, OutcomeUnknownError):
                    continue
                note_delivered(self.ledger, deliveries)
                if deliveries and self.habits.work_s:
                    self.is_over.wait(self.habits.work_s)
                self._work_off(popper, deliveries)
            self.ledger.note(Kind.CLOSING)

    def _work_off(self, popper: Popper, deliveries: list[Delivery]) -> None:
        while deliveries:
            count = len(deliveries) if self.habits.rate else self.dice.choice((1, 4, len(deliveries)))
            part, deliveries = deliveries[:count], deliveries[count:]
            roll = self.dice.random()
            if roll < self.habits.mishaps * 0.75:
                for each in part:
                    self.ledger.note(Kind.ROLLING_BACK, name_of(each), attempt=each.attempt)
                    each.rollback()
            elif roll < self.habits.mishaps:
                continue  # forgotten: the lease ends
            else:
                if roll < 2 * self.habits.mishaps:
                    extend(self.ledger, part)
                commit(self.ledger, popper, part)

    def reap(self, store: cassq.Store) -> None:
        """Make one pass after the other."""
        while not self.is_over.is_set():
            try:
                report = store.reap()
            except (UnavailableError, OutcomeUnknownError) as error:
                self.ledger.note(Kind.REAPED, words=f"failed: {error}")
                self.is_over.wait(0.1)
            else:
                words = f"sealed {report.sealed} returned {report.returned} retired {report.retired}"
                self.ledger.note(Kind.REAPED, words=words)
            self.is_over.wait(self.habits.rest_s)


def note_delivered(ledger: LedgerWriter, deliveries: Sequence[Delivery]) -> None:
    """Note deliveries, in their order; where there are keys or due times without a place: that tells none."""
    at = ledger.now()
    ledger.append(
        Line(
            at,
            ledger.who,
            Kind.DELIVERED,
            name_of(each),
            each.attempt,
            each.run.ends_at,
            pipe="" if each.key or each.due else str(each.message_id.pipe),
            seq=0 if each.key or each.due else each.message_id.seq,
            digest=digest_of(each.body, each.headers) if OFFSET_HEADER in each.headers else "",
        )
        for each in deliveries
    )


def commit(ledger: LedgerWriter, popper: Popper, deliveries: Sequence[Delivery]) -> None:
    """Commit, run by run: then every outcome is one of the whole call."""
    for together in by_run(deliveries):
        bodies, attempt = [name_of(each) for each in together], together[0].attempt
        ledger.note(Kind.COMMITTING, *bodies, attempt=attempt)
        try:
            popper.commit_many(together)
        except DeliveryExpiredError:
            kind = Kind.EXPIRED
        except OutcomeUnknownError:
            kind = Kind.UNKNOWN_COMMIT
        else:
            kind = Kind.COMMITTED
        ledger.note(kind, *bodies, attempt=attempt)


def extend(ledger: LedgerWriter, deliveries: Sequence[Delivery]) -> None:
    """Extend the lease of the first one's run, and note that of those that are in hand."""
    run = deliveries[0].run
    try:
        deliveries[0].extend()
    except (DeliveryExpiredError, UnavailableError, OutcomeUnknownError):
        return
    at = ledger.now()
    ledger.append(
        Line(at, ledger.who, Kind.EXTENDED, name_of(each), each.attempt, run.ends_at)
        for each in deliveries
        if each.run is run
    )


def steal_session(store: cassq.Store) -> None:
    """Have ZooKeeper end this process's session: a second client takes it over and closes it."""
    own = store.coordinator._session
    thief = KazooClient(own.hosts, client_id=own.client.client_id, timeout=own.timeouts.session)
    thief.start()
    thief.stop()
    thief.close()


def name_of(delivery: Delivery) -> str:
    """Return what a message is called in the ledgers: its place in a topic, or its body without padding."""
    return delivery.headers.get(OFFSET_HEADER) or delivery.body.decode().rstrip()


def digest_of(body: bytes, headers: Mapping[str, str]) -> str:
    """Return what tells a message from another: body and headers, but for what a relay adds."""
    told = sorted((name, value) for name, value in headers.items() if name != OFFSET_HEADER)
    return sha256(repr((body, told)).encode()).hexdigest()[:16]


def by_run(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """Group deliveries by the run they were taken in."""
    runs: dict[int, list[Delivery]] = {}
    for each in deliveries:
        runs.setdefault(id(each.run), []).append(each)
    return list(runs.values())


def note_dead_thread(ledger: LedgerWriter, died: threading.ExceptHookArgs) -> None:
    """Note that a thread died: a finding, whoever started it, but for one that is known.

    A ZooKeeper server that loses its leader may answer out of order (ZOOKEEPER-1863), which ends kazoo's
    thread (kazoo issue 254). cassq starts it anew; whether it did is judged by the messages.
    """
    words = "".join(traceback.format_exception(died.exc_value))
    if "kazoo" in words and "xids do not match" in words:
        sys.stderr.write(words)
        return
    ledger.note(Kind.TROUBLE, words=words)


def main(kind: type[Worker] = Worker) -> int:
    """Run one worker; returns the exit code."""
    given = _parse(kind.ROLES)
    ledger = LedgerWriter(given.ledger, given.who)
    worker = kind(ledger, Habits(**{name: getattr(given, name) for name in Habits.__slots__}))
    signal.signal(signal.SIGTERM, worker.stop)
    threading.excepthook = partial(note_dead_thread, ledger)
    try:
        with worker.patiently(lambda: cassq.connect(given.url)) as store:
            theft = partial(threading.Thread, target=steal_session, args=(store,))
            signal.signal(signal.SIGUSR1, lambda *_: theft().start())
            ledger.note(Kind.READY)
            getattr(worker, kind.ROLES[given.role])(store)
    except BaseException:
        with suppress(CassqError):
            ledger.note(Kind.TROUBLE, words=traceback.format_exc())
        raise
    ledger.note(Kind.DONE)
    return 0


def _parse(roles: Collection[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=roles)
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--who", required=True)
    for field in fields(Habits):
        name = f"--{field.name.removesuffix('_s')}"
        parser.add_argument(name, dest=field.name, type=type(field.default), default=field.default)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
