"""The service beside other queues that speak HTTP, each with its server on this machine.

Owns what both do, in turn: push and take singly, and as many a request as each can. The rule: one rival's
server runs at a time.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from _bench.clients.client_process import ClientProcess
from _bench.errors import BenchError
from _bench.http import client as http
from _bench.http.client import HttpClient, HttpOpener
from _bench.http.dialect import CassqDialect, Dialect
from _bench.http.elasticmq import ElasticMQ
from _bench.http.rabbit_management import RabbitManagement
from _bench.http.servers import Service
from _bench.measuring.compare import Figures, Measure, interleave, ratio
from _bench.page.table import Table, tell_figures, tell_ratio

_QUEUE = "bench-rivals"
_CONNECTIONS, _FEW, _LINES, _LEASE = 64, 4, 1000, 256
_WARM = 1000

_MEASURES = {
    "push one": "Push, 64 connections",
    "take one": "Take and acknowledge one, 64 connections",
    "push many": "Push, as many a request as it takes up to 1000, 4 connections",
    "take many": "Take and acknowledge, as many a request as it gives up to 256, 4 connections",
}


class Rival(Protocol):
    """A queue with its server."""

    name: str
    durability: str
    port: int

    @property
    def dialect(self) -> Dialect:
        """What it speaks."""
        ...

    def version(self) -> str:
        """Tell which one it is."""
        ...

    def start(self, folder: Path) -> None:
        """Start it, empty."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


_RIVALS: Sequence[type[Rival]] = (ElasticMQ, RabbitManagement)


def measure_rivals(
    url: str, folder: Path, options: argparse.Namespace
) -> list[tuple[Table, dict[str, Figures]]]:
    """Measure the service and each rival in turn."""
    rows: dict[str, list[Sequence[str]]] = {name: [] for name in _MEASURES}
    lines: list[Sequence[str]] = []
    raw: dict[str, Figures] = {}
    with ExitStack() as stack:
        service = Service("service", url)
        stack.callback(service.stop)
        service.start(folder)
        opener = HttpOpener(CassqDialect(_QUEUE, service.key), service.ports)
        ours = stack.enter_context(ClientProcess(opener, "cassq"))
        ours.run(HttpClient.set_up)
        for make in _RIVALS:
            rival = make()
            try:
                found = _fight(ours, rival, folder, options)
            except BenchError as error:
                print(f"bench: {rival.name} is left out: {error}", file=sys.stderr)
                continue
            lines.append((rival.name, rival.version(), rival.durability))
            for name in _MEASURES:
                mine, theirs = found[f"cassq: {name}"], found[f"{rival.name}: {name}"]
                told = tell_figures(theirs, "/s"), tell_figures(mine, "/s"), tell_ratio(ratio(mine, theirs))
                rows[name].append((rival.name, *told))
            raw |= {f"beside {rival.name}, {name}": each for name, each in found.items()}
    columns = ("", "rival", "cassq in the same rounds", "cassq / rival")
    tables = [Table(f"{title}: messages/s", columns, rows[name]) for name, title in _MEASURES.items()]
    which = Table("Other queues behind HTTP", ("", "version", "a confirmed push survives"), lines)
    return [(which, raw), *((table, {}) for table in tables)]


def _fight(
    ours: ClientProcess, rival: Rival, folder: Path, options: argparse.Namespace
) -> Mapping[str, Figures]:
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        stack.callback(rival.stop)
        rival.start(Path(place))
        opener = HttpOpener(rival.dialect, [rival.port])
        theirs = stack.enter_context(ClientProcess(opener, rival.name))
        theirs.run(HttpClient.set_up)
        most = rival.dialect.push_max, rival.dialect.pop_max
        sides = {"cassq": (ours, (_LINES, _LEASE)), rival.name: (theirs, most)}
        measures: dict[str, Measure] = {}
        for name in _MEASURES:
            for side, (client, own) in sides.items():
                measures[f"{side}: {name}"] = _measure_of(name, client, own, options)
        for client, _ in sides.values():  # servers compile as they run
            client.run(http.push, _WARM, options.body, 1, _CONNECTIONS)
            client.run(http.pop, _WARM, 1, _CONNECTIONS)
        return interleave(measures, options.rounds, title=rival.name)


def _measure_of(
    name: str, client: ClientProcess, most: tuple[int, int], options: argparse.Namespace
) -> Measure:
    few, many, body = options.messages // 10, options.messages, options.body
    of: dict[str, Measure] = {
        "push one": client.rate_of(http.push, few, body, 1, _CONNECTIONS),
        "take one": client.rate_of(http.pop, few, 1, _CONNECTIONS),
        "push many": client.rate_of(http.push, many, body, min(_LINES, most[0]), _FEW),
        "take many": client.rate_of(http.pop, many, min(_LEASE, most[1]), _FEW),
    }
    return of[name]
