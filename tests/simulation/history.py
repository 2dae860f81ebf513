"""One simulated history: the library's own actors in simulated processes, until the queue is empty.

Owns who is there, what happens to them, and what must be true in the end. What must not break: a history
depends on its plan alone, so that a seed that fails fails again.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import scheduler
import threads
from actors import crew_of, pop_all, purge_all, push_all, reap_all
from cluster import Cluster
from ensemble import Ensemble, Seat
from plan import LEASE_S, Plan
from scheduler import Process, SimulationError, World
from session import SimulatedSession

from cassq import intake, windows
from cassq import queue as queue_module
from cassq.checker import Verdict, judge
from cassq.errors import OutcomeUnknownError, UnavailableError
from cassq.ledger import Kind, Line
from cassq.model.pace import Pace
from cassq.queue import Queue
from cassq.storage.cassandra.statements import Call
from cassq.storage.cassandra.storage import CassandraStorage
from cassq.store import Store

#: Pushers are done after so long at most, and all that is left is healed after so long.
FAULTS_S = 6.0
HEALED_S = 30.0

#: A look at the queue while it drains.
LOOK_S = 0.15


class ProcessClock:
    """A process's own clock: the world's, from a beginning of its own."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def now(self) -> float:
        return self._world.now + self._process.offset_s

    def wait(self, condition: threads.Condition, seconds: float | None) -> None:
        condition.wait(seconds)


@dataclass(slots=True)
class Outcome:
    """How a history ended.

    Attributes:
        broken: which promises did not hold, in words; none if all is well.
        trace: what happened, line by line, when it was asked for.
    """

    plan: Plan
    broken: list[str]
    verdict: Verdict | None = None
    seconds: float = 0.0
    requests: int = 0
    trace: list[tuple[float, str, Any]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)


def run(plan: Plan, *, is_traced: bool = False) -> Outcome:
    """Run one history and judge it."""
    world = World(plan.seed, preempt=plan.preempt)
    scheduler.enter(world)
    # Names that count up through a process would make the second history differ from the first.
    numbers, queue_module._numbers = queue_module._numbers, itertools.count(1)
    is_fast, window_messages, intakes_max = Pace.is_fast, windows.WINDOW_MESSAGES, intake.INTAKES_MAX
    windows.WINDOW_MESSAGES, intake.INTAKES_MAX = plan.window_messages, plan.intakes
    if plan.flows:
        Pace.is_fast = lambda pace, now: world.dice.random() < plan.flows or is_fast(pace, now)  # type: ignore[method-assign]
    stage = _Stage(plan, world, is_traced=is_traced)
    try:
        threads.install()
        stage.play()
        return stage.outcome()
    finally:
        queue_module._numbers = numbers
        windows.WINDOW_MESSAGES, intake.INTAKES_MAX = window_messages, intakes_max
        Pace.is_fast = is_fast  # type: ignore[method-assign]
        scheduler.leave()


class _Stage:
    """One history while it runs."""

    def __init__(self, plan: Plan, world: World, *, is_traced: bool) -> None:
        self.plan = plan
        self.world = world
        self.lines: list[Line] = []
        self.trace: list[tuple[float, str, Any]] = []
        self.is_traced = is_traced
        self.is_over = False
        self.is_healed = False
        self.broken: list[str] = []
        self.verdict: Verdict | None = None
        self.cast: dict[str, list[Process]] = {
            "pusher": [],
            "popper": [],
            "reaper": [],
            "operator": [],
            "judge": [],
        }
        self.cluster = Cluster(
            world,
            odds=plan.odds,
            skews_ms=plan.skews_ms,
            timeout_s=plan.timeout_s,
            watch=self._watch if is_traced else None,
            stop=self._stop,
        )
        self.ensemble = Ensemble(world, plan.seat_odds, is_generous=plan.is_generous, say=self.say)
        self.seats: dict[str, Seat] = {}
        self.lease_s = LEASE_S
        self.habits = plan.habits
        self.consumers = plan.consumers
        self._done: set[str] = set()

    # The play

    def play(self) -> None:
        judge_process = self.process("judge", "judge")
        main = self.world.spawn(judge_process, "main", self._main)
        try:
            self.world.run(main, FAULTS_S + HEALED_S + 60)
        except SimulationError as error:
            self.broken.append(str(error))
        finally:
            self.world.end()
        self.broken += self.world.trouble

    def outcome(self) -> Outcome:
        return Outcome(
            self.plan,
            self.broken,
            self.verdict,
            self.world.now,
            self.cluster.requests,
            self.trace,
            self.world.errors,
        )

    def _main(self) -> None:
        self.cluster.is_faulty = self.ensemble.is_faulty = False
        first = self.store(self.cast["judge"][0])
        first.queue("q", **self.plan.settings)
        self.cluster.is_faulty = self.ensemble.is_faulty = True
        pushing = [self._start("pusher", n, self._push) for n in range(self.plan.pushers)]
        for number in range(self.plan.poppers):
            self._start("popper", number, partial(pop_all, self))
        self._start("reaper", 0, partial(reap_all, self))
        self._start("operator", 0, partial(purge_all, self, times=self.plan.purges))
        for blow in self.plan.blows:
            self.world.after(blow.at, partial(self._strike, blow))
        end = self.world.now + FAULTS_S
        while self.world.now < end and not all(task.is_done or task.process.is_dead for task in pushing):
            self.world.sleep(LOOK_S)
        self._heal()
        self._drain(first)

    def _heal(self) -> None:
        self.cluster.heal()
        self.ensemble.is_faulty = False
        self.is_healed = True
        for role in self.cast.values():
            for process in role:
                process.is_cut = False
                if process.is_frozen:
                    self.say("thaws", process.name)
                    self.world.thaw(process)
        self.say("all faults end", "world")

    def _drain(self, store: Store) -> None:
        """Wait until everything has ended, which it must without any help, and judge."""
        queue = store.queue("q")
        end = self.world.now + HEALED_S
        # A popper that died has nobody in its place; one at least is there to the end.
        self._start("popper", self.plan.poppers, partial(pop_all, self))
        while (left := self._left(queue, store, end)) and self.world.now < end:
            self.world.sleep(LOOK_S)
        if left:
            self.broken.append(f"stuck: {left} {HEALED_S:g} s after the last fault")
        self.is_over = True
        stats = queue.stats()
        dead = {letter.body.decode() for letter in queue.dead.peek(1000)}
        self._judge(stats, dead)
        self.broken += [f"left behind: {row}" for row in self.cluster.leftovers() if not left]

    def _left(self, queue: Queue, store: Store, end: float) -> str:
        if any(self._works(process) for process in self.cast["pusher"]):
            return "a pusher still pushes"
        pipes = store.storage.list_pipes("q").entries
        if pipes and self.world.now > end:
            return f"{len(pipes)} pipes, {queue.stats()}"
        return f"{len(pipes)} pipes" if pipes else ""

    def _works(self, process: Process) -> bool:
        return not process.is_dead and process.name not in self._done

    def _judge(self, stats: Any, dead: set[str]) -> None:
        self.note("judge", Kind.DEAD_LETTER, sorted(dead))
        self.verdict = verdict = judge(self.lines)
        if len(verdict.lost) <= stats.purged:
            verdict.lost.clear()  # a purge tells how many messages it ended, not which
        self.broken += verdict.broken()
        acknowledged, sure = len(verdict.acknowledged), verdict.acknowledged | verdict.delivered | dead
        most = len(verdict.attempted - verdict.refused)
        if not len(sure) <= stats.pushed <= most:
            self.broken.append(
                f"totals: {stats.pushed} pushed, of {acknowledged} acknowledged, {most} at most"
            )
        ended = stats.committed + stats.dead + stats.purged
        if stats.pushed != ended or not ended - stats.purged <= stats.popped <= ended:
            self.broken.append(f"totals do not add up: {stats}")

    # Processes

    def process(self, role: str, name: str) -> Process:
        dice = self.world.dice
        offsets = self.plan.wall_offsets_s
        process = Process(
            name,
            offset_s=dice.random() * 1000,
            wall_offset_s=offsets[len(self.seats) % len(offsets)],
        )
        self.cast[role].append(process)
        return process

    def store(self, process: Process) -> Store:
        seat = self.seats[process.name] = Seat(self.ensemble, process)
        storage = CassandraStorage(SimulatedSession(self.cluster, process))
        return Store(process.name, storage, seat, clock=ProcessClock(self.world, process), closed=seat.close)

    def open(self, process: Process) -> tuple[Store, Queue]:
        """Open the queue for an actor, however long that takes."""
        store = self.store(process)
        while True:
            try:
                return store, store.find_queue("q")
            except (UnavailableError, OutcomeUnknownError):
                self.world.sleep(0.1)

    def _push(self, process: Process) -> None:
        push_all(self, process, self.plan.messages)
        self._done.add(process.name)

    def _start(self, role: str, number: int, work: Callable[[Process], None]) -> scheduler.Task:
        process = self.process(role, f"{role}{number}")
        return self.world.spawn(process, "main", partial(work, process))

    def _strike(self, blow: "Any") -> None:
        if self.is_over or not self.cluster.is_faulty:
            return
        if blow.kind == "compact":
            self.say("deletions in the pipe list are forgotten", "nodes")
            self.cluster.compact_list()
            return
        if blow.kind == "node":
            replica = self.cluster.replicas[blow.target]
            if all(each.is_up for each in self.cluster.replicas):
                self.say("goes down", f"node{blow.target}")
                replica.is_up = False
                self.world.after(blow.seconds, partial(setattr, replica, "is_up", True))
            return
        process = self.cast[blow.role][blow.target]
        if blow.kind == "session":
            self.say("loses its session", process.name)
            self.ensemble.expire(self.seats[process.name])
        elif blow.kind == "cut":
            self.say("is cut off", process.name)
            process.is_cut = True
            self.world.after(blow.seconds, partial(setattr, process, "is_cut", False))
        else:
            self._stop(process, blow.kind, blow.seconds)

    def _stop(self, process: Process, how: str, seconds: float | None = None) -> None:
        if process.is_dead or process in self.cast["judge"] or self.is_over or not self.cluster.is_faulty:
            return
        if how == "crash":
            self.say("dies", process.name)
            self.world.kill(process)
            for each in crew_of(process, self.plan.consumers):
                self.lines.append(Line(self.world.now, each.name, Kind.DIED))
            self.ensemble.expire(self.seats[process.name])
            return
        if seconds is None:
            seconds = self.world.dice.choice((0.1, 0.6, self.plan.push_age_s + self.plan.grace_s + 0.2))
        self.say(f"freezes for {seconds:.1f} s", process.name)
        self.world.freeze(process)
        if self.world.dice.random() < 0.7:
            self.ensemble.expire(self.seats[process.name])
        self.world.after(seconds, partial(self._thaw, process))

    def _thaw(self, process: Process) -> None:
        if process.is_frozen and not process.is_dead:
            self.say("thaws", process.name)
            self.world.thaw(process)

    # What is written down

    def say(self, words: Any, who: str) -> None:
        if self.is_traced:
            self.trace.append((self.world.now, who, words))

    def _watch(self, process: Process, call: Call, work: Any, answer: object) -> None:
        self.trace.append((self.world.now, process.name, (call, work, answer)))

    def note(self, who: str, kind: Kind, bodies: Iterable[str], **more: Any) -> None:
        for body in bodies:
            line = Line(self.world.now, who, kind, body, **more)
            self.lines.append(line)
            self.say(line, who)
