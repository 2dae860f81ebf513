"""How late scheduled messages are, also while poppers are killed, and what due times cost.

    tools/bench/schedule         100 000 messages with random delays of up to 2 minutes, 4 popper processes

Owns the crew: every consumer is a process with a popper of its own, which keeps the schedule, too; one of
them is killed now and then, and another one started. What each has popped it writes down before it commits.
Early is by the clock of this machine, from before the call that pushed; lost is what nobody had.
"""

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta

from _bench.clients.bodies import make_bodies
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import ClientProcess, Spent, timed
from _bench.measuring.compare import progress
from _bench.measuring.percentiles import Latencies
from _bench.measuring.settings_line import tell_settings
from _bench.options import Amount, add_store, parser, read_amounts, run
from _bench.page.table import Report, Table, raw_figures, tell_number
from _bench.scenarios.costs import AMOUNTS, load_of, measure_costs, tabulate_costs
from _bench.scenarios.crew import Crew, is_enough
from _bench.stage import Stage, staged
from cassq import UnavailableError

_LOOK_S = 0.5
_PUSHERS = 2

#: Delays in seconds that are compared.
_WAYS = {"at once": 0.0, "a delay of 3 s": 3.0}

#: Poppers have so long to begin: what is due before they do tells how late they were, not the messages.
_BEGIN_S = 3.0

#: For so long after the last is due nobody is killed, and what is late may come.
_REST_S = 60.0

_AMOUNTS = (
    Amount("scheduled", "N", "messages with random delays", 100_000, 2_000),
    Amount("most", "S", "the longest delay", 120, 3),
    Amount("poppers", "N", "processes", 4, 2),
    Amount("kill", "S", "between two that are killed", 10, 100),
    *AMOUNTS,
)


def push_scheduled(client: CassqClient, first: int, count: int, most_s: float) -> Spent:
    """Push messages with random delays; a body tells its number, and from when on it may come."""
    dice = random.Random(first)

    def push() -> None:
        futures = []
        for number in range(first, first + count):
            delay = timedelta(microseconds=dice.randrange(round(most_s * 1e6)))
            due_ns = time.monotonic_ns() + delay // timedelta(microseconds=1) * 1000
            futures.append(client.queue.push_soon(b"%d %d" % (number, due_ns), delay=delay))
        for future in futures:
            future.result()

    return timed(count, push)


def note_lateness(client: CassqClient, path: str) -> None:
    """Pop, write down what came and how late, commit; until a file beside the notes says: enough."""
    notes = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with client.queue.popper() as popper:
        while not is_enough(path):
            with suppress(UnavailableError):  # so many processes at once may keep a look from its end
                deliveries = popper.pop_many(100, timeout=_LOOK_S)
                now_ns = time.monotonic_ns()
                found = (each.body.split() for each in deliveries)
                lines = [b"%s %d\n" % (number, now_ns - int(due_ns)) for number, due_ns in found]
                os.write(notes, b"".join(lines))
                popper.commit_many(deliveries)
    os.close(notes)


def push_constant(client: CassqClient, count: int, body_bytes: int, delay_s: float) -> Spent:
    """Push one by one from one thread, with one delay or none, and wait for the last."""
    bodies = make_bodies(count, body_bytes)
    delay = timedelta(seconds=delay_s) if delay_s else None

    def push() -> None:
        for future in [client.queue.push_soon(body, delay=delay) for body in bodies]:
            future.result()

    spent = timed(count, push)
    time.sleep(delay_s)
    return spent


def lateness(stage: Stage, options: argparse.Namespace) -> tuple[Counter[int], list[float]]:
    """Return how often each message was popped, and how late each was, in seconds."""
    popped, lates = Counter[int](), []
    with ExitStack() as openers:
        crew = Crew(openers, stage, note_lateness, options.poppers)
        pushers = [openers.enter_context(ClientProcess(stage.opener, f"pusher-{n}")) for n in range(_PUSHERS)]
        for each in pushers:
            each.wait_ready(180)
        crew.begin()
        share = options.scheduled // _PUSHERS
        time.sleep(_BEGIN_S)
        begun = time.monotonic()
        for place, each in enumerate(pushers):
            each.begin(push_scheduled, place * share, share, options.most)
        with progress(options.most, "killing") as bar:
            while (passed_s := time.monotonic() - begun) < options.most:
                time.sleep(min(options.kill, options.most - passed_s + 0.1))
                bar.update(round(min(options.kill, options.most - passed_s)))
                if options.kill < options.most:
                    crew.kill()
        for each in pushers:
            each.result()
        crew.wait(_REST_S, lambda: len({number for number, _ in _notes(crew)}) >= share * _PUSHERS)
        crew.end()
        for number, late_ns in _notes(crew):
            popped[number] += 1
            lates.append(late_ns / 1e9)
    return popped, lates


def _notes(crew: Crew) -> list[tuple[int, int]]:
    return [(int(number), int(late_ns)) for _, (number, late_ns) in crew.notes(2)]


def tabulate(
    options: argparse.Namespace, popped: Counter[int], lates: list[float]
) -> tuple[Table, dict[str, float]]:
    """Return how late messages were as a table, and raw."""
    waits = Latencies()
    for each in lates:
        waits.note_ns(round(max(0.0, each) * 1e9))
    wanted = options.scheduled // _PUSHERS * _PUSHERS
    raw = {
        "pushed": float(wanted),
        "lost": float(wanted - len(popped)),
        "early": float(sum(each < 0 for each in lates)),
        "more_than_once": float(sum(times > 1 for times in popped.values())),
        **{f"late_p{percentile}_ms": waits.at_ms(percentile) for percentile in (50, 90, 99, 100)},
    }
    told = [f"{raw[name]:.0f}" for name in ("pushed", "lost", "early", "more_than_once")]
    told += [f"{tell_number(raw[f'late_p{percentile}_ms'])} ms" for percentile in (50, 90, 99, 100)]
    names = ("pushed", "lost", "early", "popped again", "late p50", "p90", "p99", "most")
    killed = f"one of {options.poppers} poppers killed each {options.kill:g} s"
    return Table("How late", ("poppers", *names), [(killed, *told)]), raw


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("schedule", "How late are scheduled messages, and what do due times cost?")
    add_store(made)
    options = read_amounts(made, _AMOUNTS, arguments)
    with staged(options) as stage:
        load = {
            "scheduled": f"{options.scheduled}, delays of 0 to {options.most:g} s",
            "poppers": f"{options.poppers} processes, one is killed each {options.kill:g} s",
        }
        settings = tell_settings(stage.told, load, load_of(options))
        rates = measure_costs(stage, options, push_constant, _WAYS)
        popped, lates = lateness(stage, options)
    late, raw = tabulate(options, popped, lates)
    cost = tabulate_costs("One constant delay", rates)
    Report("schedule", settings, [late, cost], {"lateness": raw} | raw_figures(rates)).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
