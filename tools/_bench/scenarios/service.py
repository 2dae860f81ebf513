"""What the service costs: beside the library, beside its own door alone, and beside other queues behind HTTP.

    tools/bench/service                          all of it
    tools/bench/service --only rates,latency     parts of it

Owns which figure is compared with which. The load comes from one process that speaks HTTP over bare sockets.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import cast

from _bench.clients import cassq_work
from _bench.clients.cassq_clients import CassqOpener
from _bench.clients.client_process import ClientProcess
from _bench.errors import BenchError
from _bench.http import client as http
from _bench.http.client import HttpOpener
from _bench.http.dialect import CassqDialect
from _bench.http.rest import measure_rest
from _bench.http.rivals import measure_rivals
from _bench.http.servers import Service
from _bench.http.strangers import be_strange
from _bench.measuring.compare import Figures, Measure, interleave, ratio
from _bench.measuring.percentiles import join
from _bench.measuring.settings_line import tell_settings
from _bench.options import Amount, add_store, parser, read_amounts, run
from _bench.page.table import Report, Table, raw_figures, tell_figures, tell_ratio
from _bench.scenarios.latency import measure_rate
from _bench.stage import Stage, staged

#: The library and the service have a queue each: poppers of both would take from each other.
QUEUE = "bench-service"
_LINES, _LEASE, _FEW, _CONNECTIONS, _BATCH = 1000, 256, 4, 64, 1000

_AMOUNTS = (
    Amount("messages", "N", "of the batched ways; a tenth of the others", 40_000, 2_000),
    Amount("body", "B", "bytes of a message", 256, 256),
    Amount("rate", "N", "messages/s for the latency", 200, 200),
    Amount("seconds", "S", "that the latency is measured, each round", 10, 2),
    Amount("waiting", "N", "clients that wait on one queue", 5000, 200),
    Amount("queues", "N", "queues with one client each that waits", 300, 20),
    Amount("rest", "S", "that they are watched", 20, 2),
)

PUSH_LINES, LEASE_MANY = f"push, {_LINES} lines a request", f"lease {_LEASE} + commit, {_FEW} connections"
PUSH_ONE, LEASE_ONE = f"push, {_CONNECTIONS} connections", f"lease 1 + commit, {_CONNECTIONS} connections"
AWAY = f"{LEASE_ONE}, commit away"
DOOR = ", door alone"
_PUSH_MANY, _POP_MANY = "push_many", f"pop_many({_BATCH}) + commit_many"

_BESIDE_STRANGERS = "service, beside strangers"
_LATENCIES = ("library", "service", _BESIDE_STRANGERS)
#: So much longer are strangers there than the flow takes: it begins later.
_STRANGE_S = 8

_BESIDE = {PUSH_LINES: _PUSH_MANY, LEASE_MANY: _POP_MANY, AWAY: LEASE_ONE} | {
    name: name + DOOR for name in (PUSH_ONE, LEASE_ONE)
}


@dataclass(frozen=True, slots=True)
class Sides:
    """The clients, each in a process of its own.

    Attributes:
        pusher: pushes through the library into the service's queue.
    """

    library: ClientProcess
    pusher: ClientProcess
    home: ClientProcess
    away: ClientProcess
    door: ClientProcess


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("service", "The service beside the library, its door alone, and other queues behind HTTP.")
    add_store(made)
    made.add_argument("--only", metavar="A,B", help=f"of {', '.join(_PARTS)}")
    options = read_amounts(made, _AMOUNTS, arguments)
    names = options.only.split(",") if options.only else list(_PARTS)
    for name in names:
        if name not in _PARTS:
            raise BenchError(f"{name!r} is not one of {', '.join(_PARTS)}")
    tables: list[Table] = []
    raw: dict[str, list[float]] = {}
    with staged(options) as stage:
        told = {"body": f"{options.body} B", "rounds": str(options.rounds)}
        settings = tell_settings(stage.told, told)
        for name in names:
            for table, figures in _PARTS[name](stage, options):
                tables.append(table)
                raw |= raw_figures(figures)
    Report("service", settings, tables, raw).tell(options.json)
    return 0


Found = list[tuple[Table, dict[str, Figures]]]
Opener = CassqOpener | HttpOpener


def _measure_rates(stage: Stage, options: argparse.Namespace) -> Found:
    with ExitStack() as stack:
        found = interleave(_measures(_open(stack, stage), options), options.rounds, title="service")
    rows = []
    for name, figures in found.items():
        beside = _BESIDE.get(name)
        told = tell_ratio(ratio(figures, found[beside])) if beside else ""
        rows.append((name, tell_figures(figures, "/s"), told, beside or ""))
    return [(Table("Rates", ("way", "messages", "ratio", "to"), rows), found)]


def _open(stack: ExitStack, stage: Stage) -> Sides:
    url = cast("CassqOpener", stage.opener).url
    services = [Service("service", url), Service("other", url), Service("door", None)]
    for each in services:
        stack.callback(each.stop)
        each.start(stage.folder)
    home, other, door = services
    at_home, at_door = CassqDialect(QUEUE, home.key), CassqDialect(QUEUE, door.key)
    openers: dict[str, Opener] = {
        "library": CassqOpener(url),
        "pusher": CassqOpener(url, queue=QUEUE),
        "home": HttpOpener(at_home, home.ports),
        "away": HttpOpener(at_home, [*home.ports, *other.ports]),
        "door": HttpOpener(at_door, door.ports),
    }
    clients = {name: stack.enter_context(ClientProcess(opener, name)) for name, opener in openers.items()}
    clients["home"].run(http.HttpClient.set_up)
    return Sides(**clients)


def _measures(sides: Sides, options: argparse.Namespace) -> dict[str, Measure]:
    many, few, body = options.messages, options.messages // 10, options.body

    def fill_then(measure: Measure, count: int) -> Measure:
        def measured() -> float:
            sides.pusher.run(cassq_work.push_many, count, body, 1)
            sides.pusher.run(cassq_work.settle)
            return measure()

        return measured

    def settled(measure: Measure) -> Measure:
        def measured() -> float:
            rate = measure()
            sides.library.run(cassq_work.settle)
            return rate

        return measured

    def of(client: ClientProcess, suffix: str = "") -> dict[str, Measure]:
        return {
            PUSH_LINES + suffix: client.rate_of(http.push, many, body, _LINES, _FEW),
            LEASE_MANY + suffix: client.rate_of(http.pop, many, _LEASE, _FEW),
            PUSH_ONE + suffix: client.rate_of(http.push, few, body, 1, _CONNECTIONS),
            LEASE_ONE + suffix: client.rate_of(http.pop, few, 1, _CONNECTIONS),
        }

    return {
        _PUSH_MANY: sides.library.rate_of(cassq_work.push_many, many, body, 1),
        _POP_MANY: settled(sides.library.rate_of(cassq_work.pop_many, many, _BATCH, 1)),
        **of(sides.home),
        AWAY: fill_then(sides.away.rate_of(http.pop, few, 1, _CONNECTIONS), few),
        **of(sides.door, DOOR),
    }


def _measure_latency(stage: Stage, options: argparse.Namespace) -> Found:
    url = cast("CassqOpener", stage.opener).url
    parts: dict[str, list[bytes]] = {name: [] for name in _LATENCIES}
    with ExitStack() as opened:
        service = Service("service", url)
        opened.callback(service.stop)
        service.start(stage.folder)
        opener = HttpOpener(CassqDialect(QUEUE, service.key), service.ports)
        strangers = opened.enter_context(ClientProcess(opener, "strangers"))
        for _ in range(options.rounds):
            for name, each in parts.items():
                is_library = name == "library"
                pusher = CassqOpener(url) if is_library else CassqOpener(url, queue=QUEUE)
                popper: Opener = CassqOpener(url) if is_library else opener
                if name == _BESIDE_STRANGERS:
                    strangers.begin(be_strange, service.key, service.ports, options.seconds + _STRANGE_S)
                each.append(_latency(pusher, popper, options))
                if name == _BESIDE_STRANGERS:
                    strangers.result()
    found = {
        f"{name} p{percentile}": Figures(tuple(join([one]).at_ms(percentile) for one in each))
        for name, each in parts.items()
        for percentile in (50, 99)
    }
    rows = [
        (name, tell_figures(found[f"{name} p50"], " ms"), tell_figures(found[f"{name} p99"], " ms"))
        for name in parts
    ]
    title = f"A message into an idle queue until a client that waits has it, at {options.rate}/s"
    return [(Table(title, ("way", "p50", "p99"), rows), found)]


def _latency(pusher: Opener, popper: Opener, options: argparse.Namespace) -> bytes:
    with ClientProcess(pusher, "pusher") as one, ClientProcess(popper, "popper") as other:
        one.run(cassq_work.drain)
        return measure_rate(one, other, options.rate, options.seconds, options.body)


_PARTS: dict[str, Callable[[Stage, argparse.Namespace], Found]] = {
    "rates": _measure_rates,
    "latency": _measure_latency,
    "rest": lambda stage, options: measure_rest(cast("CassqOpener", stage.opener).url, stage.folder, options),
    "rivals": lambda stage, options: measure_rivals(
        cast("CassqOpener", stage.opener).url, stage.folder, options
    ),
}


if __name__ == "__main__":
    sys.exit(run(main))
