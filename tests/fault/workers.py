"""Worker processes that push, pop or reap until they are told to stop, and write down what they saw.

Owns what one worker does, and what it notes, in the words of `cassq.ledger`. Refuses to judge anything: a
worker may be killed or frozen between any two lines. The rule that must not break: a line about an intention
is written before the call, a line about an outcome only after it.

    python workers.py pusher --url URL --ledger FILE --who NAME --seed 7 --timeout 8

SIGTERM ends a worker in order: what is on its way is finished, the store is closed, `done` is noted.
"""

import argparse
import random
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import cassq
from cassq.delivery import Delivery
from cassq.errors import CassqError, DeliveryExpiredError, OutcomeUnknownError, UnavailableError
from cassq.ledger import Kind, LedgerWriter, Line
from cassq.popper import Popper
from cassq.queue import Queue

QUEUE = "faults"

#: Every time limit is short, so that each fault outlasts it within seconds.
SETTINGS = {
    "lease": timedelta(seconds=1.5),
    "push_age_max": timedelta(seconds=1),
    "push_grace": timedelta(milliseconds=600),
    "clock_skew_max": timedelta(milliseconds=100),
    "pipe_messages_max": 200,
    "max_attempts": 1_000_000,
}


class Worker:
    """One process's seat in a test.

    Args:
        pace_s: the longest pause between two pushes, so that poppers can keep up.
        timeout_s: how long one push may take.
    """

    def __init__(self, ledger: LedgerWriter, *, who: str, seed: int, pace_s: float, timeout_s: float) -> None:
        self.ledger = ledger
        self.dice = random.Random(f"{seed} {who}")
        self._who = who
        self._pace_s = pace_s
        self._timeout = timedelta(seconds=timeout_s)
        self._is_over = threading.Event()

    def stop(self, *_: object) -> None:
        self._is_over.set()

    def push(self, store: cassq.Store) -> None:
        """Push unique messages, in calls of 1 to 40."""
        queue = store.queue(QUEUE, **SETTINGS)
        made = 0
        while not self._is_over.is_set():
            # Never more than one parcel: of several, the first may be stored though the call raised.
            count = self.dice.choice((1, 1, 1, 3, 10, 40))
            bodies = [f"{self._who}-{made + place}" for place in range(count)]
            made += count
            self.ledger.note(Kind.ATTEMPTED, *bodies)
            kind, words = self._push_some(queue, bodies)
            self.ledger.note(kind, *bodies, words=words)
            self._is_over.wait(self.dice.random() * self._pace_s)

    def _push_some(self, queue: Queue, bodies: Sequence[str]) -> tuple[Kind, str]:
        try:
            if len(bodies) == 1:
                queue.push(bodies[0].encode(), timeout=self._timeout)
            else:
                queue.push_many([body.encode() for body in bodies], timeout=self._timeout)
        except UnavailableError as error:
            return Kind.REFUSED, str(error)
        except OutcomeUnknownError as error:
            return Kind.UNKNOWN_PUSH, str(error)
        return Kind.ACKNOWLEDGED, ""

    def pop(self, store: cassq.Store) -> None:
        """Pop in calls of 1 to 60; commit nearly all, roll some back, leave a few to their leases."""
        with store.queue(QUEUE, **SETTINGS).popper() as popper:
            while not self._is_over.is_set():
                try:
                    deliveries = popper.pop_many(self.dice.choice((1, 1, 5, 20, 60)), timeout=0.5)
                except (UnavailableError, OutcomeUnknownError):
                    continue
                note_delivered(self.ledger, deliveries)
                self._work_off(popper, deliveries)
            self.ledger.note(Kind.CLOSING)

    def _work_off(self, popper: Popper, deliveries: list[Delivery]) -> None:
        while deliveries:
            count = self.dice.choice((1, 4, len(deliveries)))
            part, deliveries = deliveries[:count], deliveries[count:]
            roll = self.dice.random()
            if roll < 0.03:
                for each in part:
                    self.ledger.note(Kind.ROLLING_BACK, each.body.decode(), attempt=each.attempt)
                    each.rollback()
            elif roll < 0.04:
                continue  # forgotten: the lease ends
            else:
                commit(self.ledger, popper, part)

    def reap(self, store: cassq.Store) -> None:
        """Make one pass after the other."""
        while not self._is_over.is_set():
            try:
                report = store.reap()
            except (UnavailableError, OutcomeUnknownError) as error:
                self.ledger.note(Kind.REAPED, words=f"failed: {error}")
                self._is_over.wait(0.1)
            else:
                words = f"sealed {report.sealed} returned {report.returned} retired {report.retired}"
                self.ledger.note(Kind.REAPED, words=words)
            self._is_over.wait(0.02)


def note_delivered(ledger: LedgerWriter, deliveries: Sequence[Delivery]) -> None:
    """Note deliveries, in the order in which they came."""
    at = ledger.now()
    ledger.append(
        Line(
            at,
            ledger.who,
            Kind.DELIVERED,
            each.body.decode(),
            each.attempt,
            each.run.ends_at,
            pipe=str(each.message_id.pipe),
            seq=each.message_id.seq,
        )
        for each in deliveries
    )


def commit(ledger: LedgerWriter, popper: Popper, deliveries: Sequence[Delivery]) -> None:
    """Commit, run by run: then every outcome is one of the whole call."""
    for together in by_run(deliveries):
        bodies, attempt = [each.body.decode() for each in together], together[0].attempt
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


def by_run(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """Group deliveries by the run they were taken in."""
    runs: dict[int, list[Delivery]] = {}
    for each in deliveries:
        runs.setdefault(id(each.run), []).append(each)
    return list(runs.values())


def main() -> int:
    """Run one worker; returns the exit code."""
    given = _parse()
    ledger = LedgerWriter(given.ledger, given.who)
    worker = Worker(ledger, who=given.who, seed=given.seed, pace_s=given.pace, timeout_s=given.timeout)
    signal.signal(signal.SIGTERM, worker.stop)
    # A thread that dies is a finding, whoever started it.
    threading.excepthook = lambda died: ledger.note(
        Kind.TROUBLE, words="".join(traceback.format_exception(died.exc_value))
    )
    try:
        with cassq.connect(given.url) as store:
            ledger.note(Kind.READY)
            {"pusher": worker.push, "popper": worker.pop, "reaper": worker.reap}[given.role](store)
    except BaseException:
        with suppress(CassqError):
            ledger.note(Kind.TROUBLE, words=traceback.format_exc())
        raise
    ledger.note(Kind.DONE)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("pusher", "popper", "reaper"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--who", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pace", type=float, default=0.03)
    parser.add_argument("--timeout", type=float, default=30.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
