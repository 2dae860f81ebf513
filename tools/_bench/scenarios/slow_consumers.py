"""One pusher, many consumers that take their time: is everybody kept busy, and does anything wait in vain?

    tools/bench/slow-consumers                   20 messages/s, 32 processes that hold each for 1 s

Owns the crew: every consumer is a process of its own with a popper of its own. The same flow comes for a
while before anything is counted: a server that has just started compiles, and has little left for anybody.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from _bench.clients.bodies import stamp_of, steady
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import ClientProcess
from _bench.clients.contestant import Client
from _bench.clients.work import push_on_schedule
from _bench.measuring.compare import progress
from _bench.measuring.percentiles import Latencies
from _bench.measuring.settings_line import tell_settings
from _bench.options import add_store, choose, parser, run
from _bench.page.table import Report, Table, tell_number
from _bench.scenarios.idleness import Visit, busy_shares, waits_in_vain
from _bench.stage import staged

#: Poppers are there, and hungry, before the first message comes, and again before the first that counts.
_LEAD_S = 3.0
_PAUSE_S = 5.0
_TAIL_S = 5.0
_LOOK_S = 0.5

_Held = list[tuple[float, float, float]]


def consume(client: CassqClient, hold_s: float, until_ns: int, patience_s: float) -> _Held:
    """Pop one message after the other, hold each, commit it; return when each was due, begun and ended.

    Args:
        client: pops, with one popper.
        hold_s: how long each message is held.
        until_ns: when the last message is pushed. After that it ends as soon as nothing came for a while.
        patience_s: how long after that it ends in any case.
    """
    held: _Held = []
    quiet_at = until_s = until_ns / 1e9
    with client.queue.popper() as popper:
        while time.monotonic() < min(quiet_at + _TAIL_S, until_s + patience_s):
            delivery = popper.pop(timeout=_LOOK_S)
            if delivery is None:
                continue
            quiet_at = max(until_s, time.monotonic() + hold_s)
            begun = time.monotonic()
            with delivery:
                time.sleep(hold_s)
            held.append((stamp_of(delivery.body) / 1e9, begun, time.monotonic()))
    return held


def measure(
    openers: ExitStack, opener: Callable[[], Client], options: argparse.Namespace, seconds: int
) -> tuple[list[Visit], int]:
    """Let the crew work; return the visit of every message that counts, and how many were left over."""
    crew = [openers.enter_context(ClientProcess(opener, f"popper-{n}")) for n in range(options.poppers)]
    pusher = openers.enter_context(ClientProcess(opener, "pusher"))
    with progress(len(crew) + 2, "slow-consumers", "step") as bar:
        for each in (*crew, pusher):
            each.wait_ready(180)
            bar.update()
        begin_ns = time.monotonic_ns() + round(_LEAD_S * 1e9)
        warming_ns = steady(begin_ns, options.rate, options.warm_up)
        counted_ns = begin_ns + round((options.warm_up + _PAUSE_S) * 1e9) if warming_ns else begin_ns
        due_ns = warming_ns + steady(counted_ns, options.rate, seconds)
        for each in crew:
            each.begin(consume, options.hold, due_ns[-1], max(30.0, float(seconds)))
        bar.set_postfix_str(f"{len(due_ns)} messages")
        pusher.run(push_on_schedule, due_ns, options.body)
        visits = [Visit(n, *held) for n, each in enumerate(crew) for held in each.result()]
        bar.update()
    paused_at = counted_ns / 1e9 - _PAUSE_S / 2
    return [visit for visit in visits if visit.due > paused_at], len(due_ns) - len(visits)


def tabulate(
    visits: Sequence[Visit], left: int, options: argparse.Namespace
) -> tuple[Table, dict[str, float]]:
    """Return the figures as a table, and raw."""
    begin, end = min(v.due for v in visits), max(v.due for v in visits)
    shares = busy_shares(visits, options.poppers, begin, end)
    waits = Latencies()
    for visit in visits:
        waits.note_ns(round((visit.begun - visit.due) * 1e9))
    vain = waits_in_vain(visits, options.poppers)
    raw = {
        "messages": len(visits),
        "messages_left_over": left,
        "poppers_that_got_one": len({visit.popper for visit in visits}),
        "offered_share": options.rate * options.hold / options.poppers,
        "busy_share": statistics.mean(shares),
        "busy_share_least": min(shares),
        "busy_share_most": max(shares),
        "wait_p50_ms": waits.at_ms(50),
        "wait_p99_ms": waits.at_ms(99),
        "wait_longest_ms": waits.at_ms(100),
        "wait_in_vain_longest_ms": max(vain) * 1000,
        "waited_in_vain_over_500_ms": sum(each > 0.5 for each in vain),
    }
    rows = [
        ("messages that were consumed", tell_number(raw["messages"])),
        ("messages that nobody had got when it was stopped", tell_number(left)),
        ("poppers that got one", f"{raw['poppers_that_got_one']} of {options.poppers}"),
        ("share of the poppers' time that the load fills", f"{raw['offered_share']:.3f}"),
        ("share that they were busy: mean (least to most)", _spread(shares)),
        (
            "push to pop, p50 / p99 / longest",
            " / ".join(tell_number(waits.at_ms(p)) for p in (50, 99, 100)) + " ms",
        ),
        ("longest wait while some popper was idle", f"{tell_number(raw['wait_in_vain_longest_ms'])} ms"),
        ("messages that waited so for more than 500 ms", str(raw["waited_in_vain_over_500_ms"])),
    ]
    title = (
        f"{options.rate:g} messages/s, {options.poppers} popper processes that hold each {options.hold:g} s"
    )
    return Table(title, ("", options.store), rows), raw


def _spread(shares: Sequence[float]) -> str:
    return f"{statistics.mean(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("slow-consumers", "Are many slow consumers all kept busy by one pusher?")
    add_store(made)
    add = made.add_argument
    add("--rate", type=float, default=20.0, metavar="N", help="messages/s (%(default)g)")
    add("--poppers", type=int, metavar="N", help="processes (32)")
    add("--hold", type=float, default=1.0, metavar="S", help="how long each message is held (%(default)g s)")
    add("--seconds", type=int, metavar="S", help="of pushing that counts (60)")
    add("--warm-up", type=int, metavar="S", help="of pushing before that (30)")
    add("--body", type=int, default=256, metavar="B", help="bytes (%(default)s)")
    options = made.parse_args(arguments)
    options.poppers = choose(options.poppers, 32, 4, is_short=options.short)
    if options.short:
        options.rate, options.hold = options.rate / 2, min(options.hold, 0.2)
    options.warm_up = choose(options.warm_up, 30, 0, is_short=options.short)
    seconds = choose(options.seconds, 60, 3, is_short=options.short)
    with staged(options) as stage:
        crew = {
            "clients": f"1 + {options.poppers} processes",
            "seconds": f"{options.warm_up} that do not count, {seconds}",
        }
        settings = tell_settings(stage.told, crew)
        with ExitStack() as openers:
            visits, left = measure(openers, stage.opener, options, seconds)
    table, raw = tabulate(visits, left, options)
    Report("slow-consumers", settings, [table], raw).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
