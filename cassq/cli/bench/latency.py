"""How long a message is on its way, from when it was due until a popper has it.

Owns the schedule, an open loop: a thread pushes by the clock, a process of its own pops. What must not break:
a message that is pushed late counts from when it was due, so a store that hangs hides nothing. Refuses to
compare the clocks of two machines: both processes run on this one.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import cassq
from cassq.cli.bench.figures import Latencies
from cassq.cli.bench.messages import BenchFailedError, Plan, Tally, numbered_bodies
from cassq.cli.bench.popping import PoppingProcess
from cassq.cli.output import Bar
from cassq.runtime.clock import SystemClock

#: How often one looks at both sides.
TICK_S = 0.1

#: What is due in the first second warms both sides up: it must come, but its latencies do not count.
WARM_S = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each message is due."""

    begin: float
    rate: int
    count: int

    def due(self, number: int) -> float:
        """Return when a message is due, by the machine's clock."""
        return self.begin + number / self.rate


def measure_latency(
    queue: cassq.Queue, url: str, plan: Plan, bar: Bar, glance: Callable[[], None]
) -> Latencies:
    """Let messages flow at a steady rate, and return how long each was on its way.

    Args:
        url: the store's, with its password, for the popping process.
        glance: called often; raises when a signal came.

    Raises: BenchFailedError: a message did not come, or came twice, or the popping process failed.
    """
    count = plan.rate * (WARM_S + plan.seconds)
    bodies = numbered_bodies(count, plan.body_bytes)
    with PoppingProcess(url, queue.name, count) as popping:
        _wait_ready(popping, plan, glance)
        schedule = Schedule(SystemClock().now(), plan.rate, count)
        with PushingThread(queue, schedule, bodies) as pushing:
            _follow(popping, pushing, plan, bar, glance)
        arrivals = popping.finish()
    return _judge(arrivals, schedule, plan)


def _wait_ready(popping: PoppingProcess, plan: Plan, glance: Callable[[], None]) -> None:
    clock, pause = SystemClock(), threading.Event()
    asked_at = clock.now()
    while not popping.is_ready:
        glance()
        popping.check()
        if clock.now() - asked_at > plan.patience_s:
            raise BenchFailedError(f"the popping process was not ready after {plan.patience_s:g} s")
        pause.wait(TICK_S)


def _follow(
    popping: PoppingProcess, pushing: "PushingThread", plan: Plan, bar: Bar, glance: Callable[[], None]
) -> None:
    """Return when all messages came, or when none comes any more."""
    clock, pause = SystemClock(), threading.Event()
    popped, moved_at = 0, clock.now()
    while not popping.is_done and clock.now() - moved_at < plan.patience_s:
        glance()
        popping.check()
        pushing.check()
        moved = popping.popped - popped
        bar.update(moved)
        popped += moved
        if moved or pushing.is_running:
            moved_at = clock.now()
        pause.wait(TICK_S)
    bar.update(popping.popped - popped)
    pushing.check()


def _judge(arrivals: list[tuple[int, float]], schedule: Schedule, plan: Plan) -> Latencies:
    tally = Tally(schedule.count)
    for number, _ in arrivals:
        tally.note(number)
    tally.check()
    warm = plan.rate * WARM_S
    return Latencies(at - schedule.due(number) for number, at in arrivals if number >= warm)


class PushingThread:
    """Pushes each message when it is due, or as soon after that as it can.

    A context manager: it runs while the block does.
    """

    def __init__(self, queue: cassq.Queue, schedule: Schedule, bodies: Iterator[bytes]) -> None:
        self._queue = queue
        self._schedule = schedule
        self._bodies = bodies
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="cassq-bench-push", daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether there is still something to push."""
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise what a push failed with."""
        if self._error:
            raise self._error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        clock = SystemClock()
        try:
            for number, body in enumerate(self._bodies):
                wait_s = self._schedule.due(number) - clock.now()
                if self._over.wait(wait_s) if wait_s > 0 else self._over.is_set():
                    return
                self._queue.push_soon(body).add_done_callback(self._note)
        except BaseException as error:
            self._error = error

    def _note(self, pushed: "Future[cassq.MessageId]") -> None:
        self._error = self._error or pushed.exception()
