"""What the doors before the library cost: workers, asyncio, observers and tracers, beside the bare library.

    tools/bench/doors                            each beside what a program would write without it

Owns which figure is compared with which. Each door is a client in a process of its own, on the same store.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import cast

from _bench.clients import cassq_work, door_work
from _bench.clients.cassq_clients import CassqOpener
from _bench.clients.client_process import ClientProcess
from _bench.measuring.compare import Figures, Measure, interleave, ratio
from _bench.measuring.settings_line import tell_settings
from _bench.options import add_store, choose, parser, run
from _bench.page.table import Report, Table, raw_figures, tell_figures, tell_ratio
from _bench.stage import Stage, staged

_THREADS, _TASKS, _CONCURRENCY, _BATCH = 64, 1000, 16, 1000

#: Whoever watches a client, by the word for it.
_WATCHES = {
    "nobody": dict,
    "Prometheus": door_work.by_prometheus,
    "OpenTelemetry": door_work.by_opentelemetry,
}

#: What each figure is compared with.
_BESIDE = {
    "worker, 16 threads": "for delivery in popper",
    "worker, 16 tasks": "for delivery in popper",
    "aio push, 1000 tasks": "push, 64 threads",
    "aio pop and commit, 64 tasks": "pop and commit, 64 threads",
    "aio pop and commit, 1 task": "pop and commit, 1 thread",
} | {
    f"{what}, {watch}": what
    for what in ("push_many", "pop_many", "for delivery in popper")
    for watch in ("Prometheus", "OpenTelemetry")
}


def measures_of(clients: dict[str, ClientProcess], options: argparse.Namespace) -> dict[str, Measure]:
    """Return what is measured, by name."""
    plain, many, few, body = clients["nobody"], options.messages, options.messages // 10, options.body
    measures: dict[str, Measure] = {}
    for watch, client in clients.items():
        suffix = "" if watch == "nobody" else f", {watch}"
        measures |= {
            f"push_many{suffix}": _then_drained(client, client.rate_of(cassq_work.push_many, many, body, 1)),
            f"pop_many{suffix}": client.rate_of(door_work.pop_many, many, body, _BATCH),
            f"for delivery in popper{suffix}": client.rate_of(door_work.iterate, many, body),
        }
    return measures | {
        "worker, 16 threads": plain.rate_of(door_work.work_in_threads, many, body, _CONCURRENCY),
        "worker, 16 tasks": plain.rate_of(door_work.work_in_tasks, many, body, _CONCURRENCY),
        "push, 64 threads": _then_drained(
            plain, plain.rate_of(cassq_work.push_from_threads, few, body, _THREADS)
        ),
        "aio push, 1000 tasks": _then_drained(
            plain, plain.rate_of(door_work.push_from_tasks, few, body, _TASKS)
        ),
        "pop and commit, 64 threads": plain.rate_of(door_work.pop_from_threads, few, body, _THREADS),
        "aio pop and commit, 64 tasks": plain.rate_of(door_work.pop_from_tasks, few, body, _THREADS),
        "pop and commit, 1 thread": plain.rate_of(door_work.pop_from_threads, few // 4, body, 1),
        "aio pop and commit, 1 task": plain.rate_of(door_work.pop_from_tasks, few // 4, body, 1),
    }


def _then_drained(client: ClientProcess, measure: Measure) -> Measure:
    def measured() -> float:
        rate = measure()
        client.run(cassq_work.drain)
        return rate

    return measured


def measure(stage: Stage, options: argparse.Namespace, rounds: int) -> dict[str, Figures]:
    """Measure every door, round by round."""
    url = cast("CassqOpener", stage.opener).url
    with ExitStack() as openers:
        clients = {
            name: openers.enter_context(ClientProcess(CassqOpener(url, watch), name))
            for name, watch in _WATCHES.items()
        }
        for each in clients.values():
            each.wait_ready()
        # A popper of another process would take a part of what is measured.
        measures = {name: _settled(clients, one) for name, one in measures_of(clients, options).items()}
        return interleave(measures, rounds, title="doors")


def _settled(clients: dict[str, ClientProcess], measure: Measure) -> Measure:
    def measured() -> float:
        rate = measure()
        for client in clients.values():
            client.run(cassq_work.settle)
        return rate

    return measured


def tabulate(found: dict[str, Figures]) -> Table:
    """Return the rates as a table, each door beside what it is compared with."""
    rows = []
    for name, figures in found.items():
        beside = _BESIDE.get(name)
        told = tell_ratio(ratio(figures, found[beside])) if beside else ""
        rows.append((name, tell_figures(figures, "/s"), told, beside or ""))
    return Table("Doors", ("way", "messages", "ratio", "to"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("doors", "Workers, asyncio, observers and tracers beside the bare library.")
    add_store(made)
    add = made.add_argument
    add("--messages", type=int, metavar="N", help="of the fast ways; a tenth of the others (40000)")
    add("--body", type=int, default=256, metavar="B", help="bytes (%(default)s)")
    options = made.parse_args(arguments)
    options.messages = choose(options.messages, 40_000, 4_000, is_short=options.short)
    rounds = choose(options.rounds, 5, 1, is_short=options.short)
    with staged(options) as stage:
        load = {"messages": str(options.messages), "body": f"{options.body} B"}
        settings = tell_settings(stage.told, load, {"rounds": str(rounds)})
        found = measure(stage, options, rounds)
    Report("doors", settings, [tabulate(found)], raw_figures(found)).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
