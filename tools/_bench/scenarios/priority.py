"""How long urgent messages wait behind a backlog, and what priorities cost.

    tools/bench/priority                         a backlog, 16 popper processes, ten urgent messages a second

Owns the crew: every consumer is a process of its own with a popper of its own, and takes a few milliseconds
for each message. The same flow without a priority is measured beside: it waits for the backlog.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from _bench.clients import cassq_work
from _bench.clients.bodies import Schedule, make_bodies, stamp_of, steady
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import ClientProcess, Spent, timed
from _bench.measuring.compare import progress
from _bench.measuring.percentiles import Latencies
from _bench.measuring.settings_line import tell_settings
from _bench.options import Amount, add_store, parser, read_amounts, run
from _bench.page.table import Report, Table, raw_figures, tell_number
from _bench.scenarios.costs import AMOUNTS, load_of, measure_costs, tabulate_costs
from _bench.stage import Stage, staged
from cassq import UnavailableError

_PRIORITY = 9
_LOOK_S = 0.5
_LEAD_S = 3.0

#: In how many priorities those are mixed that are compared.
_WAYS = {"one priority": 1, "ten priorities in turn": 10}

_AMOUNTS = (
    Amount("backlog", "N", "messages that are not urgent", 1_000_000, 5_000),
    Amount("poppers", "N", "processes", 16, 2),
    Amount("seconds", "S", "of urgent messages", 30, 2),
    *AMOUNTS,
)


def consume(client: CassqClient, hold_s: float, since_ns: int, until_ns: int) -> list[float]:
    """Pop one message after the other, hold each, commit it; return how long those since then had waited."""
    waits = []
    with client.queue.popper() as popper:
        while time.monotonic_ns() < until_ns:
            delivery = None
            with suppress(UnavailableError):  # so many processes at once may keep a look from its end
                delivery = popper.pop(timeout=_LOOK_S)
            if delivery is None:
                continue
            due_ns = stamp_of(delivery.body)
            if due_ns >= since_ns:  # those of the backlog are numbered
                waits.append((time.monotonic_ns() - due_ns) / 1e9)
            with delivery:
                time.sleep(hold_s)
    return waits


def push_urgent(client: CassqClient, due_ns: Sequence[int], body_bytes: int, priority: int) -> None:
    """Push a message at each moment."""
    for body in Schedule(due_ns, body_bytes):
        client.queue.push(body, priority=priority)


def push_mixed(client: CassqClient, count: int, body_bytes: int, levels: int) -> Spent:
    """Push one by one from one thread, with priorities in turn, and wait for the last."""
    bodies = make_bodies(count, body_bytes)

    def push() -> None:
        futures = [client.queue.push_soon(body, priority=n % levels) for n, body in enumerate(bodies)]
        for future in futures:
            future.result()

    return timed(count, push)


def overtakings(stage: Stage, options: argparse.Namespace, priority: int) -> list[float]:
    """Return how long each urgent message waited that was popped before time was up."""
    with ExitStack() as openers:
        crew = [
            openers.enter_context(ClientProcess(stage.opener, f"popper-{n}")) for n in range(options.poppers)
        ]
        pusher = openers.enter_context(ClientProcess(stage.opener, "pusher"))
        for each in (*crew, pusher):
            each.wait_ready(180)
        pusher.run(cassq_work.push_many, options.backlog, options.body, 1)
        due_ns = steady(time.monotonic_ns() + round(_LEAD_S * 1e9), 1 / options.every, options.seconds)
        until_ns = due_ns[-1] + round(_LEAD_S * 1e9)
        for each in crew:
            each.begin(consume, options.hold, due_ns[0], until_ns)
        pusher.run(push_urgent, due_ns, options.body, priority)
        waits = [wait for each in crew for wait in each.result()]
        pusher.run(cassq_work.drain)
    return waits


def tabulate(found: dict[str, list[float]], urgent: int) -> tuple[Table, dict[str, dict[str, float]]]:
    """Return the waits as a table, and raw."""
    rows, raw = [], {}
    for name, seconds in found.items():
        raw[name] = {"pushed": float(urgent), "popped": float(len(seconds))}
        told = ["-"] * 3
        if seconds:
            waits = Latencies()
            for each in seconds:
                waits.note_ns(round(each * 1e9))
            raw[name] |= {f"wait_p{percentile}_ms": waits.at_ms(percentile) for percentile in (50, 99, 100)}
            told = [f"{tell_number(waits.at_ms(percentile))} ms" for percentile in (50, 99, 100)]
        rows.append((name, f"{len(seconds)} of {urgent}", *told))
    return Table("Behind a backlog", ("pushed with", "popped", "p50", "p99", "longest"), rows), raw


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("priority", "How long do urgent messages wait, and what do priorities cost?")
    add_store(made)
    add = made.add_argument
    add("--hold", type=float, default=0.02, metavar="S", help="how long each message is held (%(default)g s)")
    add("--every", type=float, default=0.1, metavar="S", help="between urgent messages (%(default)g s)")
    options = read_amounts(made, _AMOUNTS, arguments)
    found = {}
    with staged(options) as stage:
        load = {
            "backlog": f"{options.backlog} x {options.body} B",
            "poppers": f"{options.poppers} processes that hold each message {options.hold * 1000:g} ms",
            "urgent": f"one each {options.every * 1000:g} ms",
            "seconds": str(options.seconds),
        }
        settings = tell_settings(stage.told, load, load_of(options))
        rates = measure_costs(stage, options, push_mixed, _WAYS)
        with progress(2, "backlog") as bar:
            for name, priority in ((f"priority {_PRIORITY}", _PRIORITY), ("priority 0", 0)):
                found[name] = overtakings(stage, options, priority)
                bar.update()
    waits, raw = tabulate(found, round(options.seconds / options.every))
    cost = tabulate_costs("Priorities in turn", rates)
    Report("priority", settings, [waits, cost], raw | raw_figures(rates)).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
