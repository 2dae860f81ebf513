"""Whether one message of a key is worked on at a time while poppers are killed and frozen; what keys cost.

    tools/bench/keys             100 000 messages with 10 000 keys, 16 popper processes

Owns the load: every consumer is a process with a popper of its own; in turn one of them is frozen, for longer
than its lease and its session, and one is killed. Each writes down, before it works on a message, until when
its lease runs, and after it, before the commit, that it is done. What that tells, `key_order` judges.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial

from _bench.clients.bodies import make_bodies
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import ClientProcess, Spent, timed
from _bench.measuring.compare import progress
from _bench.measuring.key_order import Verdict, judge, read_attempts
from _bench.measuring.settings_line import tell_settings
from _bench.options import EXIT_FAILED, Amount, add_store, parser, read_amounts, run
from _bench.page.table import Report, Table, raw_figures
from _bench.scenarios.costs import AMOUNTS, load_of, measure_costs, tabulate_costs
from _bench.scenarios.crew import Crew, is_enough
from _bench.stage import Stage, staged
from cassq import CassqError, Delivery

_LOOK_S = 0.5

#: So many pushers, each with a sequence of its own.
_PUSHERS = 2

#: For so long after the last blow what is late may come.
_REST_S = 180.0

_AMOUNTS = (
    Amount("keyed", "N", "messages with keys", 100_000, 2_000),
    Amount("keys", "N", "so many keys", 10_000, 100),
    Amount("work", "MS", "each is worked on for so long", 2, 2),
    Amount("poppers", "N", "processes", 16, 2),
    Amount("seconds", "S", "poppers are killed and frozen for so long", 120, 3),
    Amount("blow", "S", "between two blows", 10, 100),
    Amount("frozen", "S", "one is frozen for so long", 40, 40),
    *AMOUNTS,
)


def push_keyed(client: CassqClient, pusher: int, count: int, keys: int) -> Spent:
    """Push messages with random keys; a body tells pusher, number and key."""
    dice = random.Random(pusher)

    def push() -> None:
        futures = []
        for number in range(count):
            key = dice.randrange(keys)
            futures.append(client.queue.push_soon(b"%d %d %d" % (pusher, number, key), key=f"key-{key}"))
        for future in futures:
            future.result()

    return timed(count, push)


def work_and_note(client: CassqClient, path: str, work_s: float) -> None:
    """Pop, note, work, note, commit, until it is enough."""
    notes = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with client.queue.popper() as popper:
        while not is_enough(path):
            with suppress(CassqError):  # so many processes at once may keep a look from its end
                for delivery in popper.pop_many(100, timeout=_LOOK_S):
                    with suppress(CassqError):  # who was frozen hears of it
                        _work_on(notes, delivery, work_s)
    os.close(notes)


def _work_on(notes: int, delivery: Delivery, work_s: float) -> None:
    begun_ns, left_ns = time.monotonic_ns(), round(delivery.run.left_s * 1e9)
    if left_ns > 0:
        os.write(notes, b"begin %s %d %d\n" % (delivery.body, begun_ns, begun_ns + left_ns))
        time.sleep(work_s)
        os.write(notes, b"done %s %d %d\n" % (delivery.body, begun_ns, time.monotonic_ns()))
    delivery.commit()


def push_many_keys(client: CassqClient, count: int, body_bytes: int, keys: int) -> Spent:
    """Push one by one from one thread, each with the next key, and wait for the last; 0 keys: none."""
    bodies = make_bodies(count, body_bytes)
    named = [f"key-{number % keys}" if keys else None for number in range(count)]

    def push() -> None:
        push_soon = client.queue.push_soon
        for future in [push_soon(body, key=key) for body, key in zip(bodies, named, strict=True)]:
            future.result()

    return timed(count, push)


def watch(stage: Stage, options: argparse.Namespace) -> tuple[Verdict, dict[str, float]]:
    """Return what the notes of all processes tell, and the raw figures."""
    with ExitStack() as openers:
        work = partial(work_and_note, work_s=options.work / 1000)
        crew = Crew(openers, stage, work, options.poppers)
        pushers = [openers.enter_context(ClientProcess(stage.opener, f"pusher-{n}")) for n in range(_PUSHERS)]
        for each in pushers:
            each.wait_ready(180)
        crew.begin()
        begun = time.monotonic()
        share = options.keyed // _PUSHERS
        for place, each in enumerate(pushers):
            each.begin(push_keyed, place, share, options.keys)
        with progress(options.seconds, "killing and freezing") as bar:
            for _ in range(options.seconds // options.blow):
                time.sleep(options.blow)
                crew.thaw(options.frozen)
                _strike(crew)
                bar.update(options.blow)
        for each in pushers:
            each.result()
        crew.thaw()
        crew.wait(_REST_S, lambda: _count_done(crew) >= share * _PUSHERS)
        seconds = time.monotonic() - begun
        crew.end()
        verdict = judge(read_attempts(crew.notes(6)), share * _PUSHERS)
    raw = {
        "pushed": float(share * _PUSHERS),
        "lost": float(verdict.lost),
        "overlaps": float(len(verdict.overlaps)),
        "inversions": float(len(verdict.inversions)),
        "again": float(verdict.again),
        "late": float(verdict.late),
        "struck": float(crew.struck),
        "seconds": seconds,
    }
    return verdict, raw


def _strike(crew: Crew) -> None:
    """Freeze one, or kill one, in turn; the last one that is up is killed: another one starts."""
    if crew.struck % 2 or crew.up == 1:
        crew.kill()
    else:
        crew.freeze()


def _count_done(crew: Crew) -> int:
    return len({attempt.message for attempt in read_attempts(crew.notes(6)) if attempt.is_done})


def tabulate(raw: dict[str, float], options: argparse.Namespace) -> Table:
    """Return what became of the messages as a table."""
    columns = {
        "pushed": "pushed",
        "lost": "lost",
        "overlaps": "two of a key at once",
        "inversions": "out of order",
        "again": "worked on again",
        "late": "done after the lease",
        "struck": "killed or frozen",
        "seconds": "seconds until all were done",
    }
    row = [f"{raw[name]:.0f}" for name in columns]
    poppers = f"{options.poppers}, a blow each {options.blow} s"
    return Table("One at a time", ("poppers", *columns.values()), [(poppers, *row)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("keys", "Is one message of a key worked on at a time, and what do keys cost?")
    add_store(made)
    options = read_amounts(made, _AMOUNTS, arguments)
    with staged(options) as stage:
        load = {
            "keyed": f"{options.keyed} messages with {options.keys} keys, {options.work} ms of work each",
            "poppers": f"{options.poppers} processes",
            "blows": f"each {options.blow} s; frozen for {options.frozen} s, or killed, in turn",
        }
        settings = tell_settings(stage.told, load, load_of(options))
        verdict, raw = watch(stage, options)
        wrong = {"two of a key at once": verdict.overlaps, "out of order": verdict.inversions}
        for words, found in wrong.items():
            for each in found:
                print(f"{words}: {each}", file=sys.stderr)
        told = tabulate(raw, options)
        print(f"{told.text()}\n", file=sys.stderr, flush=True)  # whatever becomes of the rates
        rates = measure_costs(
            stage, options, push_many_keys, {"no keys": 0, f"{options.keys} keys": options.keys}
        )
    tables = [told, tabulate_costs("Keys", rates)]
    Report("keys", settings, tables, {"keys": raw, "wrong": wrong} | raw_figures(rates)).tell(options.json)
    return EXIT_FAILED if verdict.lost or any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(run(main))
