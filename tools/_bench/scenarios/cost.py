"""What a thousand messages cost: requests by kind, bytes written, processor time of the clients.

    tools/bench/cost                             at full rate, and at 100 messages/s

Owns what counts: everything that a pusher's and a popper's process send from the first push until every pipe
of these messages is sealed, retired and deleted. Nothing is left out because it happens beside.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from _bench.clients.bodies import make_bodies, steady
from _bench.clients.client_process import ClientProcess
from _bench.clients.work import pop_on_time, push_on_schedule
from _bench.measuring.compare import Figures, progress
from _bench.measuring.settings_line import tell_settings
from _bench.measuring.statement_count import KINDS, CountedClient, CountedOpener, Tally
from _bench.options import add_store, choose, parser, run
from _bench.page.table import Report, Table, tell_figures, tell_number
from _bench.stage import staged

_SLOW_RATE = 100.0
_LEAD_NS = 1_000_000_000
_POP = 1000
_LOADS = ("full rate", f"{_SLOW_RATE:g}/s")


@dataclass(frozen=True, slots=True)
class Bill:
    """What one process's share cost."""

    tally: Tally
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What some messages cost, both processes together.

    Attributes:
        disk_bytes: what Cassandra's processes wrote meanwhile; None where they are not ours to look at.
    """

    messages: int
    pusher: Bill
    popper: Bill
    disk_bytes: int | None

    def requests(self, kind: str) -> float:
        """Return how many requests of a kind a thousand messages took."""
        both = self.pusher.tally.requests[kind] + self.popper.tally.requests[kind]
        return 1000 * both / self.messages


def push_all(client: CountedClient, count: int, body_bytes: int) -> Bill:
    """Push everything at once, and seal the pipes."""
    bodies = make_bodies(count, body_bytes)
    return _billed(client, lambda: client.queue.push_many(bodies))


def push_slowly(client: CountedClient, due_ns: Sequence[int], body_bytes: int) -> Bill:
    """Push on schedule, and seal the pipes."""
    return _billed(client, lambda: push_on_schedule(client, due_ns, body_bytes))


def pop_all(client: CountedClient, count: int) -> Bill:
    """Pop in large calls, and clear the pipes away."""
    return _billed(client, lambda: client.pop_batches(count, _POP))


def pop_slowly(client: CountedClient, count: int, until_ns: int) -> Bill:
    """Pop as messages come, and clear the pipes away."""
    return _billed(client, lambda: pop_on_time(client, count, 0, until_ns))


def clear_away(client: CountedClient) -> Bill:
    """Retire what is left after the pusher sealed its last pipe."""
    return _billed(client, client.queue.reap)


def _billed(client: CountedClient, work: Callable[[], object]) -> Bill:
    cpu = time.process_time()
    work()
    client.settle()
    return Bill(client.counter.take(), time.process_time() - cpu)


def measure(
    pusher: ClientProcess, popper: ClientProcess, options: argparse.Namespace, load: str, pids: Sequence[int]
) -> Cost:
    """Send messages through, and return what all of it cost."""
    before = _written(pids)
    if load == _LOADS[0]:
        count = options.messages
        popper.begin(pop_all, count)
        pushed = pusher.run(push_all, count, options.body)
    else:
        due_ns = steady(time.monotonic_ns() + _LEAD_NS, _SLOW_RATE, options.seconds)
        count = len(due_ns)
        popper.begin(pop_slowly, count, due_ns[-1])
        pushed = pusher.run(push_slowly, due_ns, options.body)
    popped: Bill = popper.result()
    rest = popper.run(clear_away)
    both = Tally(
        popped.tally.requests + rest.tally.requests, popped.tally.bytes_written + rest.tally.bytes_written
    )
    after = _written(pids)
    disk = None if before is None or after is None else after - before
    return Cost(count, pushed, Bill(both, popped.cpu_seconds + rest.cpu_seconds), disk)


def _written(pids: Sequence[int]) -> int | None:
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
        except OSError:
            return None
        total += next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
    return total if pids else None


def tabulate(found: dict[str, list[Cost]], body_bytes: int) -> list[Table]:
    """Return requests, and bytes and processor time."""
    kinds = [*KINDS, "other"]
    rows = [(kind, *(_per_thousand(costs, kind) for costs in found.values())) for kind in kinds]
    total = [
        tell_number(statistics.median(sum(cost.requests(kind) for kind in kinds) for cost in costs))
        for costs in found.values()
    ]
    rest = [
        (
            "bytes bound to writes, per byte of bodies",
            *(_bytes(costs, body_bytes) for costs in found.values()),
        ),
        (
            "bytes that Cassandra wrote to disk meanwhile, per byte of bodies",
            *(_disk(c, body_bytes) for c in found.values()),
        ),
        ("pusher, processor ms", *(_cpu(costs, "pusher") for costs in found.values())),
        ("popper, processor ms", *(_cpu(costs, "popper") for costs in found.values())),
    ]
    return [
        Table(
            "Requests per 1000 messages: median of the rounds", ("request", *found), [*rows, ("all", *total)]
        ),
        Table("Bytes, and processor time of the clients per 1000 messages", ("", *found), rest),
    ]


def _per_thousand(costs: Sequence[Cost], kind: str) -> str:
    median = statistics.median(cost.requests(kind) for cost in costs)
    return tell_number(median) if median else "0"


def _bytes(costs: Sequence[Cost], body_bytes: int) -> str:
    return tell_figures(
        Figures(
            tuple(
                (c.pusher.tally.bytes_written + c.popper.tally.bytes_written) / (c.messages * body_bytes)
                for c in costs
            )
        )
    )


def _disk(costs: Sequence[Cost], body_bytes: int) -> str:
    told = [c.disk_bytes / (c.messages * body_bytes) for c in costs if c.disk_bytes is not None]
    return tell_figures(Figures(tuple(told))) if told else "unknown"


def _cpu(costs: Sequence[Cost], who: str) -> str:
    bills = [(getattr(cost, who), cost.messages) for cost in costs]
    return tell_figures(Figures(tuple(1e6 * bill.cpu_seconds / messages for bill, messages in bills)))


def _raw(cost: Cost) -> dict[str, object]:
    return {
        "messages": cost.messages,
        "requests_per_1000": {kind: cost.requests(kind) for kind in (*KINDS, "other")},
        "bytes_bound": cost.pusher.tally.bytes_written + cost.popper.tally.bytes_written,
        "disk_bytes": cost.disk_bytes,
        "pusher_cpu_s": cost.pusher.cpu_seconds,
        "popper_cpu_s": cost.popper.cpu_seconds,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("cost", "What a thousand messages cost: requests, bytes, processor time.")
    add_store(made, has_sqlite=False)
    add = made.add_argument
    add("--messages", type=int, metavar="N", help="at full rate, each round (200000)")
    add("--seconds", type=int, metavar="S", help=f"at {_SLOW_RATE:g} messages/s, each round (30)")
    add("--body", type=int, default=256, metavar="B", help="bytes (%(default)s)")
    options = made.parse_args(arguments)
    options.messages = choose(options.messages, 200_000, 12_000, is_short=options.short)
    options.seconds = choose(options.seconds, 30, 3, is_short=options.short)
    rounds = choose(options.rounds, 5, 1, is_short=options.short)
    found: dict[str, list[Cost]] = {load: [] for load in _LOADS}
    with staged(options) as stage:
        told = {"messages at full rate": str(options.messages), "body": f"{options.body} B"}
        settings = tell_settings(stage.told, told, {"rounds": str(rounds), "clients": "one pushes, one pops"})
        if stage.server is None:
            raise AssertionError("this command is for Cassandra")
        opener, pids = CountedOpener(stage.server.store_url()), stage.server.pids()
        with (
            ClientProcess(opener, "pusher") as pusher,
            ClientProcess(opener, "popper") as popper,
            progress(rounds * len(found), "cost") as bar,
        ):
            measure(pusher, popper, argparse.Namespace(messages=_POP, body=options.body), _LOADS[0], pids)
            for _ in range(rounds):
                for load, costs in found.items():
                    bar.set_postfix_str(load)
                    costs.append(measure(pusher, popper, options, load, pids))
                    bar.update()
    raw = {load: [_raw(cost) for cost in costs] for load, costs in found.items()}
    Report("cost", settings, tabulate(found, options.body), raw).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
