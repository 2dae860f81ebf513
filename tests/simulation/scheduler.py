"""Virtual time, and who runs next.

Owns the order of everything in a simulated history: tasks are greenlets, one of which runs at a time until it
waits; which of several goes on is drawn from the seed, and time passes only when none can. So one seed is one
history, whatever the machine does meanwhile. Refuses to know what the tasks do.

What must not break: nothing here, and nothing that a task calls, may look at a real clock, a real thread or
an order that differs between two runs.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

#: So many switches are enough for every history; one that needs more goes round in circles.
SWITCHES_MAX = 400_000

#: The time of day when every world begins, in seconds since 1970.
EPOCH_S = 1_767_225_600

#: The shortest wait.
TICK_S = 1e-6


class SimulationError(Exception):
    """The history cannot go on: everybody waits for ever, or somebody runs in circles."""


@dataclass(eq=False)
class Process:
    """A simulated process: what crashes, freezes and has clocks of its own.

    Attributes:
        offset_s: what its elapsed clock shows at the world's beginning.
        wall_offset_s: how far its time of day is off.
        missed_s: how much its elapsed clock missed while its machine was paused.
        unset_s: how much of that its time of day lacks.
        stopped_at: when it was frozen last.
        is_cut: whether its packets get lost.
    """

    name: str
    offset_s: float = 0.0
    wall_offset_s: float = 0.0
    missed_s: float = 0.0
    unset_s: float = 0.0
    stopped_at: float = 0.0
    is_dead: bool = False
    is_frozen: bool = False
    is_cut: bool = False
    thawing: list["Task"] = field(default_factory=list)


class Task:
    """One simulated thread."""

    def __init__(self, world: "World", process: Process, name: str, work: Callable[[], Any]) -> None:
        self.process = process
        self.name = name
        self.number = world.next_number()
        self.is_done = False
        self.is_parked = False
        self.was_woken = False
        self.turn = 0
        self.thread: object | None = None
        self.here: dict[str, object] = {}  # what a `threading.local` has of it
        self.joiners: list[Task] = []
        self._world = world
        self._work = work
        self.greenlet = greenlet(self._run, parent=world.hub)

    def _run(self) -> None:
        try:
            self._work()
        except GreenletExit:
            return
        except BaseException as error:  # whoever judges the history shall see it
            self._world.fail(f"{self.process.name}, {self.name}: {error!r}", error)
        finally:
            self.is_done = True
            for joiner in self.joiners:
                self._world.unpark(joiner)


class World:
    """Everything of one history that has to do with time and turns.

    Attributes:
        now: seconds since the world began.
        dice: every decision comes from here.
        trouble: what must not have happened, in words.
    """

    def __init__(self, seed: object, *, preempt: float = 0.1) -> None:
        self.now = 0.0
        self.dice = random.Random(f"{seed}")
        self.hub = getcurrent()
        self.current: Task | None = None
        self.is_over = False
        self.trouble: list[str] = []
        self.errors: list[BaseException] = []
        self.switches = 0
        self._preempt = preempt
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._tasks: list[Task] = []
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def fail(self, words: str, error: BaseException | None = None) -> None:
        self.trouble.append(words)
        if error:
            self.errors.append(error)

    def spawn(self, process: Process, name: str, work: Callable[[], Any]) -> Task:
        task = Task(self, process, name, work)
        self._tasks.append(task)
        self._make_ready(task)
        return task

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back from the hub, which must not wait, in so many seconds."""
        heapq.heappush(self._timers, (self.now + seconds, self.next_number(), callback))

    def park(self, seconds: float | None = None) -> bool:
        """Wait until somebody wakes this task (True), or `seconds` have passed (False)."""
        task = self._here()
        task.turn += 1
        task.is_parked = True
        task.was_woken = False
        if seconds is not None:
            # Time passes for whoever looks at it in a loop, as it does where looking takes time.
            self.after(max(TICK_S, seconds), partial(self._time_out, task, task.turn))
        self._leave()
        return task.was_woken

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        self.park(seconds)

    def unpark(self, task: Task) -> None:
        """Wake a task; nothing happens when it does not wait."""
        if task.is_parked:
            task.is_parked = False
            task.was_woken = True
            self._make_ready(task)

    def maybe_switch(self) -> None:
        """Let somebody else go on now and then: a real thread may lose its turn anywhere."""
        if self.current is not None and self._ready and self.dice.random() < self._preempt:
            self._make_ready(self.current)
            self._leave()

    def kill(self, process: Process) -> None:
        """End a process where it stands; nothing of it runs any more, not even what cleans up."""
        process.is_dead = True
        self._ready = [task for task in self._ready if task.process is not process]

    def freeze(self, process: Process) -> None:
        """Stop a process; its time goes on."""
        if not process.is_dead:
            process.is_frozen = True

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on."""
        process.is_frozen = False
        thawing, process.thawing = process.thawing, []
        for task in thawing:
            self._make_ready(task)

    def run(self, main: Task, seconds_max: float) -> None:
        """Run until `main` has ended.

        Raises:
            SimulationError: it does not end.
        """
        while not main.is_done:
            if self._ready:
                place = int(self.dice.random() * len(self._ready))
                task, self._ready[place] = self._ready[place], self._ready[-1]
                self._ready.pop()
                self._go_on(task)
            elif self._timers:
                self.now, _, callback = heapq.heappop(self._timers)
                callback()
            else:
                raise SimulationError(f"everybody waits for ever: {self._whereabouts()}")
            self.switches += 1
            if self.switches > SWITCHES_MAX or self.now > seconds_max:
                raise SimulationError(
                    f"not over after {self.now:.1f} s and {self.switches} switches: {self._whereabouts()}"
                )

    def end(self) -> None:
        """Unwind every task that is left; what they try to do on their way out does nothing."""
        self.is_over = True
        for task in self._tasks:
            if not task.is_done and task.greenlet:
                self.current = task
                task.greenlet.throw(GreenletExit)
        self.current = None
        self._tasks.clear()
        self._timers.clear()
        self._ready.clear()

    def _go_on(self, task: Task) -> None:
        if task.process.is_dead:
            return
        if task.process.is_frozen:
            task.process.thawing.append(task)
            return
        self.current = task
        task.greenlet.switch()
        self.current = None

    def _here(self) -> Task:
        if self.is_over:
            raise GreenletExit
        if self.current is None:
            raise SimulationError("the hub must not wait")
        return self.current

    def _leave(self) -> None:
        self.hub.switch()
        if self.is_over:
            raise GreenletExit

    def _make_ready(self, task: Task) -> None:
        if not task.process.is_dead:
            self._ready.append(task)

    def _time_out(self, task: Task, turn: int) -> None:
        if task.is_parked and task.turn == turn:
            task.is_parked = False
            self._make_ready(task)

    def _whereabouts(self) -> str:
        return ", ".join(f"{task.process.name}/{task.name}" for task in self._tasks if not task.is_done)


_worlds: list[World] = []


def world() -> World:
    """Return the world of the history that runs now."""
    return _worlds[-1]


def enter(new: World) -> None:
    """Make `new` the world that `world` returns."""
    _worlds.append(new)


def leave() -> None:
    """Undo `enter`."""
    _worlds.pop()
