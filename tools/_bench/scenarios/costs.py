"""What it costs to push messages with something, beside those without; and to pop them.

Owns the rates of both, and their table. Refuses to know what the messages are pushed with.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import TypeVar

from _bench.clients import cassq_work
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import ClientProcess, Spent
from _bench.measuring.compare import Figures, Measure, interleave, ratio
from _bench.options import Amount
from _bench.page.table import Table, tell_figures, tell_ratio
from _bench.stage import Stage

_T = TypeVar("_T")

#: What a command takes that measures costs besides.
AMOUNTS = (
    Amount("messages", "N", "of the rates, each round", 40_000, 2_000),
    Amount("body", "B", "bytes", 256, 256),
)


def load_of(options: argparse.Namespace) -> dict[str, str]:
    """Return what the settings line tells of the rates."""
    return {"rates": f"{options.messages} x {options.body} B", "rounds": str(options.rounds)}


def measure_costs(
    stage: Stage,
    options: argparse.Namespace,
    push: Callable[[CassqClient, int, int, _T], Spent],
    ways: Mapping[str, _T],
) -> dict[str, Figures]:
    """Measure pushes and pops in each way: by its name, what `push` gets last. The first is without."""
    with ClientProcess(stage.opener, "client") as client:
        client.wait_ready()
        measures: dict[str, Measure] = {}
        for name, value in ways.items():
            measures[f"push_soon, {name}"] = client.rate_of(push, options.messages, options.body, value)
            measures[f"pop_many, {name}"] = client.rate_of(cassq_work.pop_many, options.messages, 1000, 1)
        return interleave(measures, options.rounds, title="costs")


def tabulate_costs(title: str, rates: Mapping[str, Figures]) -> Table:
    """Return the rates as a table, each against that of the first way."""
    bases: dict[str, Figures] = {}
    rows = []
    for name, figures in rates.items():
        base = bases.setdefault(name.partition(",")[0], figures)
        rows.append((name, tell_figures(figures, "/s"), tell_ratio(ratio(figures, base))))
    return Table(title, ("way", "messages", "ratio"), rows)
