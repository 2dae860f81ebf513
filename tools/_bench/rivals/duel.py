"""cassq and one rival in turn, round by round.

Owns what is measured of both and in which order, and how many messages a run has. What must not break: both
do the same number of messages with the same bodies, in processes of their own, and never at the same time.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from _bench.clients import cassq_work
from _bench.clients.cassq_clients import CassqOnCassandra
from _bench.clients.client_process import ClientProcess, Spent
from _bench.clients.contestant import Contestant
from _bench.clients.work import pop_batches, push_batches, push_each, replay
from _bench.measuring.compare import Figures, gather
from _bench.measuring.percentiles import join
from _bench.rivals.roster import Rival
from _bench.scenarios.latency import measure_rate

PUSH, POP, PUSH_EACH, REPLAY = "push", "pop", "push_each", "replay"
P50, P99 = "p50_ms", "p99_ms"
RATES = (PUSH, POP, PUSH_EACH)
LATENCIES = (P50, P99)

# A run lasts about so long where --messages allows it.
_BATCHED_S = 2.0
_SINGLE_S = 1.0
_SAMPLE = 2000
_SAMPLE_SINGLES = 100


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of everybody.

    Attributes:
        messages: of a batched run, at most.
        batch: messages a call.
        rate, seconds: of the run that measures latency.
        rounds: how often everything is measured.
        warm_s: so long both work before anything counts; servers and clients compile as they run.
        folder: for files of the rivals' servers.
    """

    messages: int
    batch: int
    body_bytes: int
    rate: float
    seconds: float
    rounds: int
    warm_s: float
    folder: Path = Path()


@dataclass(frozen=True, slots=True)
class Size:
    """How many messages a run has: batched, and one by one."""

    batched: int
    single: int


@dataclass(frozen=True, slots=True)
class Found:
    """What the rounds found, by measure."""

    size: Size
    ours: Mapping[str, Figures]
    theirs: Mapping[str, Figures]


class Side:
    """One contestant at work: a process that pushes and a process that pops.

    Args:
        after: what is to be done after a round and is not measured.
    """

    def __init__(self, pusher: ClientProcess, popper: ClientProcess, after: Callable[[], None]) -> None:
        self._pusher = pusher
        self._popper = popper
        self.after = after

    def batched(self, count: int, load: Load) -> tuple[Spent, Spent]:
        """Push in batches, then pop in batches."""
        pushed = self._pusher.run(push_batches, count, load.body_bytes, load.batch)
        return pushed, self._popper.run(pop_batches, count, load.batch)

    def single(self, count: int, load: Load) -> Spent:
        """Push one by one; what was pushed is popped, but that is not measured."""
        pushed = self._pusher.run(push_each, count, load.body_bytes)
        self._popper.run(pop_batches, count, load.batch)
        return pushed

    def round(self, size: Size, load: Load, rival: Rival) -> dict[str, float]:
        """Return one figure for each measure."""
        self.batched(load.batch, load)  # opens what was closed since
        pushed, popped = self.batched(size.batched, load)
        found = {PUSH: pushed.rate, POP: popped.rate, PUSH_EACH: self.single(size.single, load).rate}
        if rival.has_replay:
            found[REPLAY] = self._popper.run(replay, size.batched, load.batch).rate
        if rival.has_latency:
            flow = measure_rate(self._pusher, self._popper, load.rate, load.seconds, load.body_bytes)
            latencies = join([flow])
            found |= {P50: latencies.at_ms(50), P99: latencies.at_ms(99)}
        self.after()
        return found

    def warm(self, load: Load) -> Size:
        """Work without being measured, and return how many messages keep this side busy for long enough."""
        begun = time.monotonic()
        while True:
            pushed, popped = self.batched(_SAMPLE, load)
            one = self.single(_SAMPLE_SINGLES, load)
            if time.monotonic() - begun >= load.warm_s:
                break
        self.after()
        batched = int(min(pushed.rate, popped.rate) * _BATCHED_S)
        return Size(max(_SAMPLE, batched), max(_SAMPLE_SINGLES, int(one.rate * _SINGLE_S)))


@contextmanager
def at_work(contestant: Contestant) -> Iterator[Side]:
    """Lend the two processes of a contestant whose server is up."""
    with ExitStack() as stack:
        opener = contestant.opener()
        pusher = stack.enter_context(ClientProcess(opener, f"{contestant.name}: pusher"))
        popper = stack.enter_context(ClientProcess(opener, f"{contestant.name}: popper"))
        pusher.wait_ready()
        popper.wait_ready()

        def settle() -> None:
            # cassq's threads stay while a queue is open. They would work beside the rival.
            if isinstance(contestant, CassqOnCassandra):
                pusher.run(cassq_work.settle)
                popper.run(cassq_work.settle)

        yield Side(pusher, popper, settle)


def fight(
    ours: Contestant, theirs: Contestant, rival: Rival, load: Load, done: Callable[[], object]
) -> Found:
    """Measure both, in turn; both servers are up.

    Args:
        done: called after each round of each side.
    """
    with at_work(ours) as mine, at_work(theirs) as other:
        wishes = mine.warm(load), other.warm(load)
        batched = min(load.messages, rival.messages_max, *(wish.batched for wish in wishes))
        size = Size(batched, min(batched, *(wish.single for wish in wishes)))
        told: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
        for _ in range(load.rounds):
            for side, figures in zip((mine, other), told, strict=True):
                figures.append(side.round(size, load, rival))
                done()
    measures = (
        *RATES,
        *((REPLAY,) if rival.has_replay else ()),
        *(LATENCIES if rival.has_latency else ()),
    )
    return Found(size, gather(measures, told[0]), gather(measures, told[1]))
