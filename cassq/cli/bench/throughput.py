"""How fast a store takes messages, and how fast it gives them back: two measurements of `cassq bench`.

Owns what lies inside the time that is taken: for the push all from the first body until the last is durable,
for the pop all from the opening of the popper until the last commit is written, with the counting of what
came. What must not break: a signal ends both within a moment, while the store answers.
"""

from collections.abc import Callable, Iterator

import cassq
from cassq.cli.bench.figures import Throughput
from cassq.cli.bench.messages import Plan, Tally, number_of, numbered_bodies
from cassq.cli.output import Bar
from cassq.runtime.clock import SystemClock

#: Popped and committed at once.
POP_MAX = 4000

#: How soon a pop that waits notices a signal.
TICK_S = 0.25

#: How long, at the end, one looks for what comes a second time.
LAST_LOOK_S = 0.2

#: So many bodies are made before one looks for a signal again.
_GLANCE = 256


def measure_push(queue: cassq.Queue, plan: Plan, bar: Bar, glance: Callable[[], None]) -> Throughput:
    """Push all messages in one call, which cuts them into writes by itself.

    Args:
        glance: called now and then; raises when a signal came.
    """
    clock = SystemClock()
    durable = 0

    def move(count: int) -> None:
        nonlocal durable
        bar.update(count - durable)
        durable = count

    bodies = _watched(numbered_bodies(plan.messages, plan.body_bytes), glance)
    begun = clock.now()
    queue.push_many(bodies, progress=move)
    return Throughput(plan.messages, clock.now() - begun)


def measure_pop(queue: cassq.Queue, plan: Plan, bar: Bar, glance: Callable[[], None]) -> Throughput:
    """Pop and commit until all messages are there.

    Raises: BenchFailedError: one of them did not come, or came twice.
    """
    clock = SystemClock()
    tally = Tally(plan.messages)
    begun = came_at = clock.now()
    with queue.popper() as popper:
        while not tally.is_full and clock.now() - came_at < plan.patience_s:
            glance()
            if deliveries := popper.pop_many(POP_MAX, TICK_S):
                came_at = clock.now()
                _note(tally, deliveries)
                popper.commit_many(deliveries)
                bar.update(len(deliveries))
        seconds = clock.now() - begun
        _note(tally, popper.pop_many(1, LAST_LOOK_S))
    tally.check()
    return Throughput(plan.messages, seconds)


def _note(tally: Tally, deliveries: list[cassq.Delivery]) -> None:
    for delivery in deliveries:
        tally.note(number_of(delivery.body))


def _watched(bodies: Iterator[bytes], glance: Callable[[], None]) -> Iterator[bytes]:
    for place, body in enumerate(bodies):
        if place % _GLANCE == 0:
            glance()
        yield body
