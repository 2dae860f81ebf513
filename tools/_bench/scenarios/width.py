"""How the rate holds when many poppers share one queue, and what poppers cost that have nothing to do.

    tools/bench/width                            1 to 256 threads, 1 to 16 processes; 1000 queues at rest

Owns the crowd: each popper is one of its own, in a thread or in a process. A rate counts from when all were
let go until the last commit.
"""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

from _bench.clients import cassq_work
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import ClientFailedError, ClientProcess
from _bench.measuring.compare import Figures, interleave, ratio
from _bench.measuring.settings_line import tell_settings
from _bench.options import add_store, choose, counts, parser, run
from _bench.page.table import Report, Table, raw_figures, tell_figures, tell_number, tell_ratio
from _bench.stage import Stage, staged
from cassq.errors import ClosedError

_LEAD_S = 0.5
#: A popper that gets nothing for so long is done.
_DONE_S = 1.5
#: A thousand poppers that begin at once need a while; then they are looked at as long.
_CALM_S = 120.0
_REST_S = 60.0


def pop_together(client: CassqClient, poppers: int, batch: int, begin_ns: int) -> tuple[int, float]:
    """Pop and commit with so many poppers, a thread each; return how many messages, and when it ended."""

    def pop(_: int) -> tuple[int, float]:
        popped, ended = 0, 0.0
        with client.queue.popper() as popper:
            time.sleep(max(0.0, (begin_ns - time.monotonic_ns()) / 1e9))
            while deliveries := popper.pop_many(batch, timeout=_DONE_S):
                popper.commit_many(deliveries)
                popped += len(deliveries)
                ended = time.monotonic()
        return popped, ended

    with ThreadPoolExecutor(poppers) as pool:
        found = list(pool.map(pop, range(poppers)))
    return sum(popped for popped, _ in found), max(ended for _, ended in found)


class _Counted(logging.Handler):
    """Counts warnings instead of telling a thousand of them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.levelno >= logging.WARNING


def rest(client: CassqClient, queues: int, calm_s: float, seconds: float) -> tuple[float, float, int]:
    """Wait for nothing on many queues, a popper each.

    Returns: processor time and reads, both a second, and how many warnings were logged from the beginning.
    """
    warnings = _Counted()
    logging.getLogger("cassq").addHandler(warnings)
    poppers = [client.store.queue(f"rest-{number}").popper() for number in range(queues)]

    def wait(number: int) -> None:
        with suppress(ClosedError):
            poppers[number].pop()

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(queues)]
    for thread in threads:
        thread.start()
    time.sleep(calm_s)
    cpu, begun, calls = time.process_time(), time.monotonic(), cassq_work.reads_of(client)
    time.sleep(seconds)
    passed = time.monotonic() - begun
    found = (
        (time.process_time() - cpu) / passed,
        (cassq_work.reads_of(client) - calls) / passed,
        warnings.count,
    )
    for popper in poppers:
        popper.close()
    for thread in threads:
        thread.join()
    return found


def rate_of(
    pusher: ClientProcess, crew: Sequence[ClientProcess], threads: int, options: argparse.Namespace
) -> float:
    """Fill the queue, let everybody pop, and return messages per second."""
    pusher.run(cassq_work.push_many, options.messages, options.body, 1)
    pusher.run(cassq_work.settle)
    begin_ns = time.monotonic_ns() + round(_LEAD_S * 1e9)
    for each in crew:
        each.begin(pop_together, threads, options.batch, begin_ns)
    found: list[tuple[int, float]] = [each.result() for each in crew]
    popped = sum(count for count, _ in found)
    if popped != options.messages:
        raise RuntimeError(f"{options.messages} messages were pushed, {popped} came")
    crew[0].run(cassq_work.settle)
    return popped / (max(ended for _, ended in found) - begin_ns / 1e9)


def measure(stage: Stage, options: argparse.Namespace, rounds: int) -> dict[str, Figures]:
    """Measure every crowd, round by round."""
    with ExitStack() as openers:
        pusher = openers.enter_context(ClientProcess(stage.opener, "pusher"))
        most = max([1, *options.processes])
        crew = [openers.enter_context(ClientProcess(stage.opener, f"popper-{n}")) for n in range(most)]
        for each in (pusher, *crew):
            each.wait_ready(180)
        crowds = {f"{n} thread{'s' * (n > 1)}": (crew[:1], n) for n in options.threads}
        crowds |= {f"{n} process{'es' * (n > 1)}": (crew[:n], 1) for n in options.processes}
        measures = {
            name: lambda some=some, threads=threads: rate_of(pusher, some, threads, options)
            for name, (some, threads) in crowds.items()
        }
        rate_of(pusher, crew[:1], 1, options)
        return interleave(measures, rounds, title="width")


def measure_rest(stage: Stage, queues: int, calm_s: float, seconds: float) -> dict[str, float]:
    """Measure what rest costs; nothing where so many poppers in one process never came to rest."""
    try:
        with ClientProcess(stage.opener, "resting") as resting:
            cpu, reads, warnings = resting.run(rest, queues, calm_s, seconds)
    except ClientFailedError as error:
        print(f"bench: {queues} poppers did not come to rest: {error}", file=sys.stderr)
        return {}
    return {"cpu_share": cpu, "reads_per_s": reads, "warnings": warnings}


def tabulate_rest(queues: int, resting: dict[str, float]) -> Table:
    """Return what rest costs as a table."""
    titles = ("queues, a popper each", "processor time of the client, share of a core", "reads", "warnings")
    row = [str(queues), "did not come to rest", "", ""]
    if resting:
        row[1:] = [
            f"{100 * resting['cpu_share']:.2f} %",
            f"{tell_number(resting['reads_per_s'])}/s",
            f"{resting['warnings']:.0f}",
        ]
    return Table("At rest", titles, [row])


def tabulate(found: dict[str, Figures]) -> Table:
    """Return the rates as a table, each against the best of its round."""
    best = Figures(tuple(max(values) for values in zip(*(f.values for f in found.values()), strict=True)))
    rows = [(name, tell_figures(f, "/s"), tell_ratio(ratio(f, best))) for name, f in found.items()]
    return Table("Poppers on one queue", ("poppers", "messages", "share of the round's best"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("width", "Many poppers on one queue, and many queues at rest.")
    add_store(made)
    add = made.add_argument
    add("--messages", type=int, metavar="N", help="that wait when the poppers begin (400000)")
    add("--threads", type=counts, metavar="N,…", help="poppers in one process (1,4,16,64,256)")
    add("--processes", type=counts, metavar="N,…", help="processes with one popper each (1,4,16)")
    add("--queues", type=int, metavar="N", help="with one popper each, at rest (1000)")
    add("--batch", type=int, default=200, metavar="N", help="messages a pop_many (%(default)s)")
    add("--body", type=int, default=256, metavar="B", help="bytes (%(default)s)")
    options = made.parse_args(arguments)
    options.messages = choose(options.messages, 400_000, 8000, is_short=options.short)
    options.threads = options.threads or ([1, 4] if options.short else [1, 4, 16, 64, 256])
    options.processes = options.processes or ([2] if options.short else [1, 4, 16])
    queues = choose(options.queues, 1000, 20, is_short=options.short)
    rounds = choose(options.rounds, 5, 1, is_short=options.short)
    with staged(options) as stage:
        load = {"messages": str(options.messages), "batch": str(options.batch), "body": f"{options.body} B"}
        settings = tell_settings(stage.told, load, {"rounds": str(rounds)})
        found = measure(stage, options, rounds)
        calm_s, seconds = (2.0, 2.0) if options.short else (_CALM_S, _REST_S)
        resting = measure_rest(stage, queues, calm_s, seconds)
    raw = raw_figures(found) | {"rest": {"queues": queues, **resting}}
    Report("width", settings, [tabulate(found), tabulate_rest(queues, resting)], raw).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
