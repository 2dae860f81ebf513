"""Whether a pop costs the same whatever waits behind it and whatever was consumed before.

    tools/bench/flat                             10 000 000 messages of 256 B: needs 3 GB and more of disk

Owns the long way: few messages, then very many, then few again. One process pushes, another pops, and the
memory of that one is told. These runs come one after the other: a backlog cannot be there and not be there in
turn.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

import cassq
from _bench.clients import cassq_work
from _bench.clients.bodies import stream_bodies
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import ClientProcess, Spent, timed
from _bench.measuring.compare import Figures, progress, ratio
from _bench.measuring.percentiles import Latencies, join
from _bench.measuring.settings_line import tell_settings
from _bench.options import add_store, choose, parser, run
from _bench.page.table import Report, Table, tell_figures, tell_number, tell_ratio
from _bench.stage import staged
from cassq.storage.metered import CallCount

_FEW = 1000
_PARTS = 10
_POP = 4000
_COMMIT = 100
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """One tenth of the drain."""

    rate: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Pops:
    """What a new popper found that popped one message at a time.

    Attributes:
        latencies: of all its pops, as they travel. Most are served from its buffer.
        first_ms: how long the first pop took: finding the pipes, claiming one, loading it, taking.
        take_ms: how long the database took for one take, a read and a transaction, on average.
    """

    latencies: bytes
    first_ms: float
    take_ms: float


@dataclass(frozen=True, slots=True)
class Course:
    """What was found on the way."""

    push_rate: float
    before: list[Pops]
    behind: list[Pops]
    after: list[Pops]
    parts: list[Part]


def push_stream(client: CassqClient, count: int, body_bytes: int) -> Spent:
    """Push messages that are made while they are pushed."""
    return timed(count, lambda: client.queue.push_many(stream_bodies(count, body_bytes)))


def pop_singly(client: CassqClient, count: int) -> Pops:
    """Pop one message at a time with a new popper; commits come between, and are not counted."""
    latencies = Latencies()
    first_ns = 0
    held: list[cassq.Delivery] = []
    before = client.store.telemetry.snapshot()
    with client.queue.popper() as popper:
        for _ in range(count):
            begun = time.perf_counter_ns()
            delivery = popper.pop(timeout=cassq_work.PATIENCE_S)
            took_ns = time.perf_counter_ns() - begun
            latencies.note_ns(took_ns)
            first_ns = first_ns or took_ns
            if delivery is None:
                raise RuntimeError("a message was to be there, and none came")
            held.append(delivery)
            if len(held) == _COMMIT:
                popper.commit_many(held)
                held.clear()
        popper.commit_many(held)
        after = client.store.telemetry.snapshot()
    take_ms = sum(1000 * _mean_s(before, after, method) for method in ("read_batches", "transact"))
    return Pops(latencies.encode(), first_ns / 1e6, take_ms)


def _mean_s(before: Mapping[str, CallCount], after: Mapping[str, CallCount], method: str) -> float:
    was, now = (counts.get(method, CallCount()) for counts in (before, after))
    return (now.seconds - was.seconds) / max(1, now.calls - was.calls)


class Drain:
    """A popper that stays from one part of the drain to the next, and its process's memory."""

    popper: cassq.Popper | None = None


def drain_part(client: CassqClient, count: int) -> Part:
    """Pop and commit so many messages."""
    if Drain.popper is None:
        Drain.popper = client.queue.popper()
    popper = Drain.popper

    def pop() -> None:
        left = count
        while left:
            deliveries = popper.pop_many(min(_POP, left), timeout=cassq_work.PATIENCE_S)
            if not deliveries:
                raise RuntimeError(f"{left} more messages were to be there, and none came")
            popper.commit_many(deliveries)
            left -= len(deliveries)

    rate = timed(count, pop).rate
    return Part(rate, psutil.Process().memory_info().rss)


def end_drain(client: CassqClient) -> None:
    """Close the popper that stayed."""
    if Drain.popper is not None:
        Drain.popper.close()
        Drain.popper = None
    client.settle()


def travel(pusher: ClientProcess, popper: ClientProcess, options: argparse.Namespace, rounds: int) -> Course:
    """Go the whole way."""
    count, body = options.messages, options.body
    with progress(3 * rounds + 1 + _PARTS, "flat", "step") as bar:

        def few() -> Pops:
            pusher.run(push_stream, _FEW, body)
            found = popper.run(pop_singly, _FEW)
            bar.update()
            return found

        pusher.run(push_stream, _FEW, body)
        popper.run(pop_singly, _FEW)  # warms up
        before = [few() for _ in range(rounds)]
        bar.set_postfix_str(f"{count} messages pushed")
        push_rate = pusher.run(push_stream, count, body).rate
        bar.update()
        behind = []
        for _ in range(rounds):
            behind.append(popper.run(pop_singly, _FEW))
            bar.update()
        bar.set_postfix_str(f"{count} messages popped")
        parts, left = [], count - rounds * _FEW
        for part in range(_PARTS):
            parts.append(popper.run(drain_part, left // _PARTS + (part < left % _PARTS)))
            bar.update()
        popper.run(end_drain)
        bar.set_postfix_str("few again")
        after = [few() for _ in range(rounds)]
    return Course(push_rate, before, behind, after, parts)


def tabulate(course: Course, count: int) -> list[Table]:
    """Return the drain, and the single pops."""
    at_first = course.parts[0].rate
    drained = [
        (
            f"{number}",
            tell_number(part.rate) + "/s",
            f"{part.rate / at_first:.2f}",
            f"{part.rss_bytes / _MIB:.0f} MiB",
        )
        for number, part in enumerate(course.parts, 1)
    ]
    base = _at(course.before, 99)
    singles = []
    for title, rounds in (
        (f"backlog of {_FEW}", course.before),
        (f"backlog of {count}", course.behind),
        (f"backlog of {_FEW}, after {count} were consumed", course.after),
    ):
        p99 = _at(rounds, 99)
        first, take = (Figures(tuple(getattr(p, name) for p in rounds)) for name in ("first_ms", "take_ms"))
        cells = [tell_figures(figures) for figures in (_at(rounds, 50), p99, first, take)]
        cells.insert(2, tell_ratio(ratio(p99, base)))
        singles.append((title, *cells))
    return [
        Table(
            f"Drain of {count} messages",
            ("tenth", "messages", "of the first", "memory of the popper"),
            drained,
        ),
        Table(
            "pop() of one message, ms",
            ("", "p50", "p99", "p99 against the first row's", "first pop of a popper", "mean take"),
            singles,
        ),
    ]


def _at(rounds: Sequence[Pops], percentile: float) -> Figures:
    return Figures(tuple(join([pops.latencies]).at_ms(percentile) for pops in rounds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("flat", "Does a pop cost the same whatever waits and whatever was consumed?")
    add_store(made)
    made.add_argument("--messages", type=int, metavar="N", help="of the large backlog (10000000)")
    made.add_argument("--body", type=int, default=256, metavar="B", help="bytes (%(default)s)")
    options = made.parse_args(arguments)
    options.messages = choose(options.messages, 10_000_000, 20_000, is_short=options.short)
    rounds = choose(options.rounds, 10, 2, is_short=options.short)
    with staged(options) as stage:
        load = {
            "messages": str(options.messages),
            "body": f"{options.body} B",
            "runs of single pops": str(rounds),
        }
        settings = tell_settings(stage.told, load)
        with ClientProcess(stage.opener, "pusher") as pusher, ClientProcess(stage.opener, "popper") as popper:
            course = travel(pusher, popper, options, rounds)
    singles = {"before": course.before, "behind": course.behind, "after": course.after}
    raw = {
        "push_rate": course.push_rate,
        "drain": [{"rate": part.rate, "rss_bytes": part.rss_bytes} for part in course.parts],
        "pop_ms": {
            name: {f"p{p}": list(_at(found, p).values) for p in (50, 99, 100)}
            | {"first": [pops.first_ms for pops in found], "take": [pops.take_ms for pops in found]}
            for name, found in singles.items()
        },
    }
    Report("flat", settings, tabulate(course, options.messages), raw).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
