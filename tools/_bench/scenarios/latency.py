"""How long a message is on its way, from when it was due to be pushed until a popper has it.

    tools/bench/latency                          1000 messages/s, and single messages into an idle queue

Owns the schedule: an open loop, so that a message that is sent late counts as late. One process pushes,
another pops. Refuses to share clocks between machines: both processes read the same one.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from _bench.clients.bodies import spaced, steady
from _bench.clients.cassq_clients import CassqOnCassandra, CassqOnSqlite
from _bench.clients.cassq_work import idle_reads, settle
from _bench.clients.client_process import ClientProcess
from _bench.clients.contestant import Contestant
from _bench.clients.work import pop_on_time, push_on_schedule
from _bench.measuring.compare import Figures, progress
from _bench.measuring.percentiles import Latencies, join
from _bench.measuring.settings_line import tell_settings
from _bench.options import choose, parser, run
from _bench.page.table import Report, Table, tell_figures
from _bench.servers import CassandraServer
from _bench.stage import folder_of

_LEAD_NS = 1_500_000_000
_WARM_S = 2.0
_IDLE_LOW_S, _IDLE_HIGH_S = 0.5, 0.8


@dataclass(frozen=True, slots=True)
class Flow:
    """What is pushed in one run.

    Attributes:
        rate, seconds: a steady flow; what comes in the first seconds is not counted.
        singles: and then so many single messages, each after a pause.
        idle_s: and then so long nothing at all.
    """

    rate: float
    seconds: float
    singles: int
    idle_s: float
    body_bytes: int


@dataclass(frozen=True, slots=True)
class Passage:
    """What one run of a flow found; latencies as they travel."""

    steady: bytes
    single: bytes
    reads: float


def measure_rate(
    pusher: ClientProcess, popper: ClientProcess, rate: float, seconds: float, body_bytes: int
) -> bytes:
    """Let messages flow at a steady rate and return their latencies, without those of the first seconds.

    Both processes may be of any contestant. What the flow begins with warms both up.
    """
    begin_ns = _begin_ns(pusher, popper)
    warm_s = min(_WARM_S, seconds / 2)
    return _pass(
        pusher, popper, steady(begin_ns, rate, warm_s + seconds), begin_ns + round(warm_s * 1e9), body_bytes
    )


def measure_singles(pusher: ClientProcess, popper: ClientProcess, count: int, body_bytes: int) -> bytes:
    """Push single messages into an idle queue and return their latencies; the first one is not counted."""
    due_ns = spaced(_begin_ns(pusher, popper), count + 1, _IDLE_LOW_S, _IDLE_HIGH_S)
    return _pass(pusher, popper, due_ns, due_ns[1], body_bytes)


def _begin_ns(*processes: ClientProcess) -> int:
    """Return when a schedule may begin: once all are there, and the popper has had time to look."""
    for process in processes:
        process.wait_ready()
    return time.monotonic_ns() + _LEAD_NS


def _pass(
    pusher: ClientProcess, popper: ClientProcess, due_ns: list[int], count_from_ns: int, body_bytes: int
) -> bytes:
    popper.begin(pop_on_time, len(due_ns), count_from_ns, due_ns[-1])
    pusher.run(push_on_schedule, due_ns, body_bytes)
    return bytes(popper.result())


def measure(contestant: Contestant, flow: Flow) -> Passage:
    """Run a flow through cassq, in processes that end with it."""
    with (
        ClientProcess(contestant.opener(), "pusher") as pusher,
        ClientProcess(contestant.opener(), "popper") as popper,
    ):
        flowing = measure_rate(pusher, popper, flow.rate, flow.seconds, flow.body_bytes)
        single = measure_singles(pusher, popper, flow.singles, flow.body_bytes)
        reads = popper.run(idle_reads, flow.idle_s)
        popper.run(settle)
    return Passage(flowing, single, reads)


def tabulate(found: dict[str, list[Passage]], flow: Flow) -> list[Table]:
    """Return one table for the flow and one for the idle queue."""
    percentiles = (50.0, 90.0, 99.0, 99.9)
    titles = ("", "messages", *(f"p{each:g}" for each in percentiles), "longest")
    flows, singles = [], []
    for name, passages in found.items():
        flows.append((name, *_cells([each.steady for each in passages], (*percentiles, 100.0))))
        reads = tell_figures(Figures(tuple(each.reads for each in passages)), "/s")
        singles.append((name, *_cells([each.single for each in passages], (50.0, 99.0, 100.0)), reads))
    return [
        Table(f"Push to pop at {flow.rate:g} messages/s, ms: median (range) of the rounds", titles, flows),
        Table(
            "First message into an idle queue, ms; and what an idle popper reads",
            ("", "messages", "p50", "p99", "longest", "reads of an idle popper"),
            singles,
        ),
    ]


def _cells(rounds: Sequence[bytes], percentiles: Sequence[float]) -> list[str]:
    each = [join([encoded]) for encoded in rounds]
    total = sum(latencies.count for latencies in each)
    told = [Figures(tuple(latencies.at_ms(p) for latencies in each)) for p in percentiles]
    return [str(total), *(tell_figures(figures) for figures in told)]


def _raw(encoded: bytes) -> dict[str, float]:
    latencies: Latencies = join([encoded])
    return {f"p{p:g}": latencies.at_ms(p) for p in (50, 90, 99, 99.9, 100)} | {"messages": latencies.count}


def _contestants(options: argparse.Namespace) -> tuple[CassandraServer | None, list[Contestant]]:
    server = None
    contestants: list[Contestant] = []
    if options.store in ("both", "cassandra", "ring"):
        server = CassandraServer(
            options.url, is_ring=options.store == "ring", commitlog_sync=options.commitlog_sync
        )
        contestants.append(CassqOnCassandra(server))
    if options.store in ("both", "sqlite"):
        contestants.append(CassqOnSqlite())
    return server, contestants


def _run_all(contestants: Sequence[Contestant], flow: Flow, rounds: int) -> dict[str, list[Passage]]:
    found: dict[str, list[Passage]] = {each.name: [] for each in contestants}
    with progress(rounds * len(contestants), "latency") as bar:
        for _ in range(rounds):
            for each in contestants:
                bar.set_postfix_str(each.name)
                found[each.name].append(measure(each, flow))
                bar.update()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("latency", "How long a message takes from push to pop.")
    add = made.add_argument
    add(
        "--store", choices=("both", "cassandra", "ring", "sqlite"), default="both", help="which (%(default)s)"
    )
    add("--rate", type=float, default=1000.0, metavar="N", help="messages/s (%(default)g)")
    add("--seconds", type=int, metavar="S", help="of steady flow, each round (20)")
    add("--singles", type=int, metavar="N", help="messages into an idle queue, each round (40)")
    add("--warm-up", type=int, metavar="S", help="of steady flow before the first round, on Cassandra (60)")
    add("--body", type=int, default=256, metavar="B", help="bytes (%(default)s)")
    options = made.parse_args(arguments)
    rounds = choose(options.rounds, 5, 1, is_short=options.short)
    flow = Flow(
        options.rate,
        choose(options.seconds, 20, 2, is_short=options.short),
        choose(options.singles, 40, 3, is_short=options.short),
        10.0 if not options.short else 2.0,
        options.body,
    )
    warm_up_s = choose(options.warm_up, 60, 0, is_short=options.short)
    with folder_of(options) as folder:
        server, contestants = _contestants(options)
        try:
            found, settings = _staged(contestants, server, folder, flow, rounds=rounds, warm_up_s=warm_up_s)
        finally:
            for each in contestants:
                each.stop()
    raw = {
        name: [{"steady": _raw(p.steady), "single": _raw(p.single), "idle_reads": p.reads} for p in passages]
        for name, passages in found.items()
    }
    Report("latency", settings, tabulate(found, flow), raw).tell(options.json)
    return 0


def _staged(  # noqa: PLR0913 - one call, from main
    contestants: Sequence[Contestant],
    server: CassandraServer | None,
    folder: Path,
    flow: Flow,
    *,
    rounds: int,
    warm_up_s: float,
) -> tuple[dict[str, list[Passage]], dict[str, str]]:
    told: dict[str, str] = {}
    for each in contestants:
        each.start(folder)
        told.update(each.versions())
    told.update(server.settings() if server else {})
    settings = tell_settings(
        told,
        {
            "clients": "one process pushes by push_soon, one pops and commits in groups",
            "rate": f"{flow.rate:g}/s",
            "body": f"{flow.body_bytes} B",
        },
        {
            "rounds": str(rounds),
            "seconds a round": f"{flow.seconds:g}",
            "single messages a round": str(flow.singles),
            "seconds before the first": f"{warm_up_s:g}",
        },
    )
    if warm_up_s and server:
        # A server that just started compiles its code for a while; no queue in use meets it like that.
        with progress(1, "warm-up"):
            measure(contestants[0], replace(flow, seconds=warm_up_s, singles=1, idle_s=0.1))
    return _run_all(contestants, flow, rounds), settings


if __name__ == "__main__":
    sys.exit(run(main))
