"""A crew of worker processes over one store: started, killed, frozen and thawed, and judged in the end.

Owns the processes and their ledgers. What must not break: whatever a test does, no process outlives it, and
nothing is judged before everything was drained and reaped.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from reckoning import DELAY, KEY, Reckoning
from support.patience import patiently
from workers import QUEUE, SETTINGS, commit, note_delivered

import cassq
from cassq.errors import OutcomeUnknownError, UnavailableError
from cassq.model.shelf import Shelf
from cassq.popping.popper import Popper
from cassq.queue import Queue
from cassq.runtime.clock import SystemClock
from cassq.verification.checker import judge
from cassq.verification.ledger import Kind, LedgerReader, LedgerWriter, Line, read_ledger
from cassq.verification.verdict import Verdict

WORKERS = Path(__file__).with_name("workers.py")
SEED = int(os.environ.get("CASSQ_FAULT_SEED", "0")) or random.randrange(1, 1_000_000)

#: Where pipes stand that nobody stages.
LISTS = Shelf.READY, Shelf.KEYED, Shelf.DUE, Shelf.SCHEDULED

PATIENCE_S = 600.0
LOOK_S = 0.02

#: The clock of every ledger here.
now = SystemClock().now

#: Past this pause a lease has ended for everybody, and a pusher counts as dead.
PAST_LEASE_S = (SETTINGS["lease"] + SETTINGS["clock_skew_max"]) / timedelta(seconds=1) + 0.3
PAST_PUSH_S = (SETTINGS["push_age_max"] + SETTINGS["push_grace"] + SETTINGS["clock_skew_max"]) / timedelta(
    seconds=1
) + 0.3


def wait_until(is_so: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait for something to become true; fail, saying what, when it does not."""
    deadline = now() + seconds
    nothing = threading.Event()
    while not is_so():
        assert now() < deadline, f"after {seconds:g} s still not: {what}"
        nothing.wait(LOOK_S)


def wait_for_clock(until: float) -> None:
    """Wait until the clock that every process here reads has passed `until`."""
    wait_until(lambda: now() > until, f"the clock reads {until}", until - now() + PATIENCE_S)


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a worker sits: what it is started with, so that others can get at it."""

    group: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class Member:
    """One worker process, and what it has noted so far."""

    def __init__(
        self, role: str, who: str, ledger: Path, arguments: list[str], seat: Seat, program: Path
    ) -> None:
        self.role = role
        self.who = who
        self.seat = seat
        self.is_frozen = False
        self.freezes: list[Line] = []
        self._ledger = LedgerReader(ledger)
        self._reading = threading.Lock()
        self._errors = ledger.with_suffix(".stderr")
        command = [sys.executable, str(program), role, "--who", who, "--ledger", str(ledger), *arguments]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=errors,
                group=seat.group,
                env={**os.environ, **seat.environment},
            )

    def count(self, kind: Kind) -> int:
        """Return how many lines of one kind there are by now."""
        with self._reading:
            self._ledger.read_on()
            return self._ledger.count(kind)

    def lines(self) -> list[Line]:
        with self._reading:
            self._ledger.read_on()
            return self._ledger.lines

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def freeze(self) -> None:
        """Stop the process where it stands; returns when it does stand.

        Others end a popper's window meanwhile, and it gives back what it had left of that.
        """
        if self.role in {"popper", "consumer"}:
            self.freezes.append(Line(now(), self.who, Kind.CLOSING))
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once, frozen or not."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> None:
        """Ask the process to end in order."""
        self.process.terminate()

    def await_stopped(self) -> None:
        """Wait until it has ended in order."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.who} hangs: it does not end") from None
        words = self._errors.read_text(encoding="utf-8")
        assert code == 0, f"{self.who} ended with {code}: {words[-3000:]}"


@dataclass(slots=True)
class Crew:
    """Workers over one store.

    Attributes:
        url: the store.
        folder: where ledgers are kept.
        timeout_s: how long a worker's push may take.
        queue, settings: the queue's name, and its settings.
        habits: more of the workers' options.
        seat_of: tells what a worker is started with.
        program: what a worker runs.
        former, deaths: members that were killed, and when they were.
    """

    url: str
    folder: Path
    seed: int
    timeout_s: float = 30.0
    pace_s: float = 0.03
    queue: str = QUEUE
    settings: Mapping[str, Any] = field(default_factory=lambda: SETTINGS)
    habits: Sequence[str] = ()
    seat_of: Callable[[str], Seat] = lambda _: Seat()
    program: Path = WORKERS
    members: list[Member] = field(default_factory=list)
    former: list[Member] = field(default_factory=list)
    deaths: list[Line] = field(default_factory=list)
    _made: int = 0

    def __post_init__(self) -> None:
        with patiently(lambda: cassq.connect(self.url)) as store:
            patiently(lambda: store.queue(self.queue, **self.settings))

    # -- processes -------------------------------------------------------------------------------------

    def start(self, role: str, count: int = 1) -> list[Member]:
        """Start workers, without waiting for them."""
        new = []
        for _ in range(count):
            self._made += 1
            who = f"{role}{self._made}"
            arguments = ["--url", self.url, "--seed", str(self.seed), "--timeout", str(self.timeout_s)]
            arguments += ["--pace", str(self.pace_s), *self.habits, *self.duties(role, who)]
            ledger = self.folder / f"{who}.ledger"
            new.append(Member(role, who, ledger, arguments, self.seat_of(who), self.program))
        self.members += new
        return new

    def duties(self, role: str, who: str) -> list[str]:
        """Return what one worker is told."""
        return ["--queue", self.queue]

    def start_all(self, *, pushers: int = 4, poppers: int = 4, reapers: int = 1) -> None:
        """Start a whole crew and wait until every one of it works."""
        self.start("pusher", pushers)
        self.start("popper", poppers)
        self.start("reaper", reapers)
        for each in self.members:
            wait_until(lambda m=each: m.count(Kind.READY), f"{each.who} is ready")
        self.await_more(Kind.ACKNOWLEDGED, "pusher")
        self.await_more(Kind.COMMITTED, "popper")

    def of(self, role: str) -> list[Member]:
        return [each for each in self.members if each.role == role]

    def kill(self, member: Member) -> None:
        member.kill()
        self.deaths.append(Line(now(), member.who, Kind.DIED))
        self.members.remove(member)
        self.former.append(member)

    def await_more(self, kind: Kind, role: str, lines: int = 1) -> None:
        """Wait until every awake worker of a role has noted so many more lines of a kind."""
        awake = [(each, each.count(kind) + lines) for each in self.of(role) if not each.is_frozen]
        for each, goal in awake:
            wait_until(lambda m=each, g=goal: m.count(kind) >= g, f"{each.who} has {lines} more {kind}")

    def await_lines(self, member: Member, kind: Kind, count: int) -> None:
        """Wait until a worker has noted so many lines of a kind in all."""
        wait_until(lambda: member.count(kind) >= count, f"{member.who} has {count} {kind}")

    def await_any(self, kind: Kind, role: str, lines: int = 1) -> None:
        """Wait until all workers of a role together have noted so many more lines of a kind."""
        goal = sum(each.count(kind) for each in self.of(role)) + lines
        wait_until(
            lambda: sum(each.count(kind) for each in self.of(role)) >= goal,
            f"{lines} more {kind} by some {role}",
        )

    def end(self) -> None:
        """Leave no process behind, whatever happened."""
        for each in [*self.members, *self.former]:
            if each.is_alive:
                each.kill()

    # -- the end ---------------------------------------------------------------------------------------

    def finish(self) -> Verdict:
        """Bring everything to its end; fail unless every promise was kept and all totals are right."""
        end = self.reckon()
        story = f"CASSQ_FAULT_SEED={self.seed}: {end.verdict}; {end.stats}"
        print(story)  # noqa: T201 - shown by pytest when the test fails, and by -s
        broken = end.broken()
        assert not broken, f"{'; '.join(broken)}; {story}"
        for mark in (KEY, DELAY):
            assert any(mark in name for name in end.verdict.delivered), f"none was named with {mark}; {story}"
        return end.verdict

    def reckon(self) -> Reckoning:
        """Thaw and stop everybody, drain, reap, and tell what the ledgers and the store say."""
        for each in self.members:
            each.thaw()  # all of them first: one that is frozen may keep the others waiting
        for role in ("pusher", "popper", "reaper"):
            for each in self.of(role):
                self.await_lines(each, Kind.READY, 1)
                each.stop()
            for each in self.of(role):
                each.await_stopped()
                assert each.count(Kind.DONE) == 1, f"{each.who} did not say that it is done"
        drainer = self.folder / "drainer.ledger"
        with patiently(lambda: cassq.connect(self.url)) as store:
            queue = patiently(lambda: store.queue(self.queue))
            drain(queue, LedgerWriter(drainer, "drainer"))
            reap_all(store, queue)
            stats = queue.stats()
        everybody = [*self.members, *self.former]
        lines = [line for each in everybody for line in (*each.lines(), *each.freezes)]
        lines += [*self.deaths, *read_ledger(drainer)]
        return Reckoning(judge(lines), stats, lines)


@contextmanager
def crew(url: str, folder: Path, **options: Any) -> Iterator[Crew]:
    """Give a test a crew, and take every process away from it in the end."""
    made = Crew(url, folder, SEED, **options)
    try:
        yield made
    finally:
        made.end()


def drain(queue: Queue, ledger: LedgerWriter) -> None:
    """Pop and commit until nothing waits and nothing is pending."""
    with queue.popper() as popper:

        def is_drained() -> bool:
            _drain_some(popper, ledger)
            stats = queue.stats()
            return stats.waiting == stats.pending == stats.delayed == 0

        wait_until(is_drained, "the queue is drained")


def _drain_some(popper: Popper, ledger: LedgerWriter) -> None:
    while True:
        try:
            deliveries = popper.pop_many(500, timeout=0.3)
        except (UnavailableError, OutcomeUnknownError):
            continue
        if not deliveries:
            return
        note_delivered(ledger, deliveries)
        commit(ledger, popper, deliveries)


def reap_all(store: cassq.Store, queue: Queue) -> None:
    """Reap until every pipe is gone, also those of pushers that died."""

    def is_clean() -> bool:
        store.reap()
        lists = (store.storage.list_pipes(queue.name, shelf=shelf) for shelf in LISTS)
        return not any(listing.entries for listing in lists)

    settings = queue.settings
    dead_after = settings.push_age_max + settings.push_grace + settings.clock_skew_max
    wait_until(is_clean, "every pipe is retired and deleted", dead_after.total_seconds() + PATIENCE_S)
