"""Whether one message of a key is worked on at a time while poppers are killed and frozen; what keys cost.

    tools/bench/keys             100 000 messages with 10 000 keys, 16 popper processes

Owns the crew: every consumer is a process with a popper of its own; one of them is killed or frozen now and
then. Each writes down, before it works on a message, until when its lease runs, and after it, before the
commit, that it is done. Two of a key overlap where one began while another was worked on: until that was
done, or its lease was over. One is out of order that began before an earlier one of its pusher was done.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from _bench.clients.bodies import make_bodies
from _bench.clients.cassq_clients import CassqClient
from _bench.clients.client_process import ClientProcess, Spent, timed
from _bench.measuring.compare import progress
from _bench.measuring.settings_line import tell_settings
from _bench.options import add_store, choose, parser, run
from _bench.page.table import Report, Table, raw_figures
from _bench.scenarios.costs import measure_costs, tabulate_costs
from _bench.stage import Stage, staged
from cassq import CassqError, Delivery

_LOOK_S = 0.5

#: How many keys the messages have that are compared; 0: none.
_WAYS = {"no keys": 0, "10 000 keys": 10_000}

#: So many pushers, each with a sequence of its own.
_PUSHERS = 2

#: A message is worked on for so long.
_WORK_S = 0.002

#: A popper is frozen for longer than its lease and its session.
_FROZEN_S = 40.0

#: For so long after the last blow what is late may come.
_REST_S = 180.0


@dataclass(slots=True)
class _Work:
    """One attempt at a message, by the clock of this machine.

    Attributes:
        begun_ns: when its consumer began.
        ended_ns: when it was done, or its lease was over.
        is_done: whether it was done.
    """

    begun_ns: int
    ended_ns: int
    is_done: bool = False


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


def work_and_note(client: CassqClient, path: str) -> None:
    """Pop, note, work, note, commit; until a file beside the notes says: enough."""
    notes = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    with client.queue.popper() as popper:
        while not Path(path).with_name("enough").exists():
            with suppress(CassqError):  # who was frozen hears of it
                for delivery in popper.pop_many(100, timeout=_LOOK_S):
                    _work_on(notes, delivery)
    os.close(notes)


def _work_on(notes: int, delivery: Delivery) -> None:
    now_ns, left_ns = time.monotonic_ns(), round(delivery.run.left_s * 1e9)
    os.write(notes, b"begin %s %d %d\n" % (delivery.body, now_ns, now_ns + left_ns))
    time.sleep(_WORK_S)
    os.write(notes, b"done %s %d 0\n" % (delivery.body, time.monotonic_ns()))
    delivery.commit()


def push_many_keys(client: CassqClient, count: int, body_bytes: int, keys: int) -> Spent:
    """Push one by one from one thread, each with the next key, and wait for the last."""
    bodies = make_bodies(count, body_bytes)

    def push() -> None:
        push_soon = client.queue.push_soon
        named = [f"key-{number % keys}" if keys else None for number in range(count)]
        for future in [push_soon(body, key=key) for body, key in zip(bodies, named, strict=True)]:
            future.result()

    return timed(count, push)


def watch(stage: Stage, options: argparse.Namespace) -> dict[str, float]:
    """Return what the notes of all processes tell, as raw figures."""
    with ExitStack() as openers:
        folder = Path(openers.enter_context(tempfile.TemporaryDirectory()))
        crew = _Crew(openers, stage, folder, options.poppers)
        pushers = [openers.enter_context(ClientProcess(stage.opener, f"pusher-{n}")) for n in range(_PUSHERS)]
        for each in pushers:
            each.wait_ready(180)
        crew.begin()
        share = options.keyed // _PUSHERS
        for place, each in enumerate(pushers):
            each.begin(push_keyed, place, share, options.keys)
        with progress(options.seconds, "killing and freezing") as bar:
            for _ in range(options.seconds // options.blow):
                time.sleep(options.blow)
                crew.strike()
                bar.update(options.blow)
        for each in pushers:
            each.result()
        crew.thaw_all()
        until = time.monotonic() + _REST_S
        while time.monotonic() < until and _count_done(folder) < share * _PUSHERS:
            time.sleep(1)
        (folder / "enough").touch()
        crew.end()
        return judge(_notes(folder), share * _PUSHERS) | {"struck": float(crew.struck)}


class _Crew:
    """The popper processes, of which some are killed, and some frozen for a while."""

    def __init__(self, openers: ExitStack, stage: Stage, folder: Path, count: int) -> None:
        self._openers = openers
        self._stage = stage
        self._folder = folder
        self._dice = random.Random(1)
        self._begun = 0
        self._frozen: list[tuple[float, ClientProcess]] = []
        self._crew = [self._start() for _ in range(count)]
        self.struck = 0

    def begin(self) -> None:
        """Let all of them pop."""
        for each in self._crew:
            each.wait_ready(180)
            self._begin(each)

    def strike(self) -> None:
        """Kill one and start another, or freeze one; thaw those that were frozen for long enough."""
        now = time.monotonic()
        for since, each in list(self._frozen):
            if now - since > _FROZEN_S:
                each.thaw()
                self._frozen.remove((since, each))
                self._crew.append(each)
        victim = self._crew.pop(self._dice.randrange(len(self._crew)))
        self.struck += 1
        if self.struck % 2 and len(self._crew) > 1:
            victim.freeze()
            self._frozen.append((now, victim))
            return
        victim.kill()
        self._crew.append(self._start())
        self._begin(self._crew[-1])

    def thaw_all(self) -> None:
        """Let those go on that are frozen."""
        for _, each in self._frozen:
            each.thaw()
        self._crew += [each for _, each in self._frozen]
        self._frozen.clear()

    def end(self) -> None:
        """Wait for all of them."""
        for each in self._crew:
            each.result()

    def _start(self) -> ClientProcess:
        self._begun += 1
        return self._openers.enter_context(ClientProcess(self._stage.opener, f"popper-{self._begun}"))

    def _begin(self, process: ClientProcess) -> None:
        process.begin(work_and_note, str(self._folder / f"notes-{id(process)}-{self._begun}"))


def _notes(folder: Path) -> list[tuple[str, tuple[int, int, int], int, int]]:
    """Return each note: what, the message (pusher, number, key), and two times; a torn line is none."""
    found = []
    for path in folder.glob("notes-*"):
        for line in path.read_bytes().splitlines():
            words = line.split()
            if len(words) == 6:
                pusher, number, key, at_ns, until_ns = map(int, words[1:])
                found.append((words[0].decode(), (pusher, number, key), at_ns, until_ns))
    return sorted(found, key=lambda note: note[2])


def _count_done(folder: Path) -> int:
    return len({message for what, message, _, _ in _notes(folder) if what == "done"})


def judge(notes: Sequence[tuple[str, tuple[int, int, int], int, int]], pushed: int) -> dict[str, float]:
    """Return how many messages were lost, overlapped, and came out of order."""
    works: dict[tuple[int, int, int], list[_Work]] = defaultdict(list)
    for what, message, at_ns, until_ns in notes:
        if what == "begin":
            works[message].append(_Work(at_ns, until_ns))
        elif works[message]:
            last = works[message][-1]
            last.is_done, last.ended_ns = True, min(at_ns, last.ended_ns)
    by_key: dict[int, list[_Work]] = defaultdict(list)
    by_source: dict[tuple[int, int], list[tuple[int, list[_Work]]]] = defaultdict(list)
    for (pusher, number, key), attempts in works.items():
        by_key[key] += attempts
        by_source[pusher, key].append((number, attempts))
    overlaps = inversions = 0
    for attempts in by_key.values():
        ended_ns = 0
        for each in sorted(attempts, key=lambda work: work.begun_ns):
            overlaps += each.begun_ns < ended_ns
            ended_ns = max(ended_ns, each.ended_ns)
    for messages in by_source.values():
        last_ns = 0
        for _, attempts in sorted(messages):
            inversions += attempts[0].begun_ns < last_ns
            last_ns = max(last_ns, attempts[-1].ended_ns)
    done = sum(any(each.is_done for each in attempts) for attempts in works.values())
    return {
        "pushed": float(pushed),
        "lost": float(pushed - done),
        "overlaps": float(overlaps),
        "inversions": float(inversions),
        "more_than_once": float(sum(len(attempts) > 1 for attempts in works.values())),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("keys", "Is one message of a key worked on at a time, and what do keys cost?")
    add_store(made)
    add = made.add_argument
    add("--keyed", type=int, metavar="N", help="messages with keys (100000)")
    add("--keys", type=int, metavar="N", help="so many keys (10000)")
    add("--poppers", type=int, metavar="N", help="processes (16)")
    add("--seconds", type=int, metavar="S", help="poppers are killed and frozen for so long (120)")
    add("--blow", type=int, metavar="S", help="between two blows (10)")
    add("--messages", type=int, metavar="N", help="of the rates, each round (40000)")
    add("--body", type=int, default=256, metavar="B", help="bytes (%(default)s)")
    options = made.parse_args(arguments)
    options.keyed = choose(options.keyed, 100_000, 2_000, is_short=options.short)
    options.keys = choose(options.keys, 10_000, 100, is_short=options.short)
    options.poppers = choose(options.poppers, 16, 2, is_short=options.short)
    options.seconds = choose(options.seconds, 120, 3, is_short=options.short)
    options.blow = choose(options.blow, 10, 100, is_short=options.short)
    options.messages = choose(options.messages, 40_000, 2_000, is_short=options.short)
    rounds = choose(options.rounds, 5, 1, is_short=options.short)
    with staged(options) as stage:
        load = {
            "keyed": f"{options.keyed} messages with {options.keys} keys, 2 ms of work each",
            "poppers": f"{options.poppers} processes, one is killed or frozen each {options.blow:g} s",
            "rates": f"{options.messages} x {options.body} B",
        }
        settings = tell_settings(stage.told, load, {"rounds": str(rounds)})
        rates = measure_costs(stage, options, rounds, push_many_keys, _WAYS)
        raw = watch(stage, options)
    names = ("pushed", "lost", "overlaps", "inversions", "more_than_once", "struck")
    told = Table("One at a time", names, [tuple(f"{raw[name]:.0f}" for name in names)])
    cost = tabulate_costs("Keys", rates)
    Report("keys", settings, [told, cost], {"keys": raw} | raw_figures(rates)).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
