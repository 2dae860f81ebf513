"""Search histories for broken promises, or replay one.

    tools/simulate                        20 000 histories from seed 0 on
    tools/simulate --hours 8              as many as fit, from a seed of today's
    tools/simulate --seed 4711            one history; if it fails, the smallest like it, line by line
    tools/simulate --topics               histories of a topic, also with --hours, --from and --seed
    tools/simulate --relays               of a topic with a queue that is subscribed
    tools/simulate --journals             of such a queue that keeps a journal
    tools/simulate --mutant NAME          with a bug planted; --mutants lists them

Exit code 1 when a promise was broken.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import explore
import mutants
import rule_table
from fork_server import ForkServer
from planting import FAILED, run_test
from tqdm import tqdm

#: So many histories are tried for a mutant.
RECORD_MAX = 3000


def main() -> int:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(
        prog="tools/simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, help="go on for so long, instead of a number of histories")
    parser.add_argument("--histories", type=int, default=20_000, help="how many (default 20000)")
    parser.add_argument("--from", dest="first", type=int, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--whole", action="store_true", help="replay as it is, and tell all of it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    parser.add_argument("--mutant", default="", metavar="NAME", help="plant this bug first")
    themes = {
        "topics": "of a topic",
        "relays": "of a topic with a queue that is subscribed",
        "journals": "of such a queue that keeps a journal",
    }
    for theme, words in themes.items():
        parser.add_argument(
            f"--{theme}", action="store_const", const=theme, default="", dest="about", help=words
        )
    parser.add_argument("--mutants", action="store_true", help="list the bugs that can be planted")
    parser.add_argument(
        "--record",
        nargs="*",
        metavar="NAME",
        help="find every mutant, or these; writes seeds.json, rules.json and the table of docs/proof.md",
    )
    options = parser.parse_args()
    if options.record is not None:
        return _record(options.record)
    if options.mutants:
        print("\n".join(mutant.name for mutant in mutants.MUTANTS))
        return 0
    names = [mutant.name for mutant in mutants.MUTANTS]
    if options.mutant and options.mutant not in names:
        parser.error(f"--mutant {options.mutant!r} is not one of: {', '.join(names)}")
    if options.seed is not None:
        return _replay(options.seed, options.mutant, options.about, is_whole=options.whole)
    return _search(options)


def _search(options: argparse.Namespace) -> int:
    seconds = options.hours * 3600 if options.hours else None
    first = options.first if options.first is not None else (int(time.time()) * 1000 if seconds else 0)
    print(f"seeds from {first} on, {options.jobs} processes", file=sys.stderr)
    total = round(seconds) if seconds else options.histories
    unit = "s" if seconds else " histories"
    started = time.monotonic()
    with tqdm(total=total, unit=unit, disable=None if sys.stderr.isatty() else False, mininterval=5) as bar:

        def progress(tally: explore.Tally) -> None:
            done = time.monotonic() - started if seconds else tally.histories
            bar.update(min(round(done), total) - bar.n)
            bar.set_postfix_str(
                f"{tally.histories} histories, {tally.virtual_s / 3600:.1f} h simulated, "
                f"{len(tally.failures)} failed"
            )

        tally = explore.explore(
            first,
            None if seconds else options.histories,
            jobs=options.jobs,
            mutant=options.mutant,
            about=options.about,
            seconds=seconds,
            progress=progress,
        )
    took = time.monotonic() - started
    print(
        f"{tally.histories} histories in {took:.0f} s: {tally.virtual_s / 3600:.1f} hours simulated, "
        f"{tally.requests} requests, {len(tally.failures)} failed"
    )
    for failure in tally.failures:
        print(f"seed {failure.seed}: {'; '.join(failure.broken)[:400]}")
        print(
            f"    tools/simulate --seed {failure.seed}"
            + (f" --mutant '{options.mutant}'" if options.mutant else "")
            + (f" --{options.about}" if options.about else "")
        )
    return 1 if tally.failures else 0


def _record(names: Sequence[str]) -> int:
    """Find a seed for every mutant, or for some, and note what finding them takes."""
    path = Path(__file__).parent / "seeds.json"
    known = json.loads(path.read_text())
    wanted = [mutant for mutant in mutants.MUTANTS if not names or mutant.name in names]
    seconds: dict[str, float] = {}
    missed = 0
    for mutant in tqdm(wanted, unit=" mutants", file=sys.stderr):
        began = _processor_s()
        is_found = _fails_its_test(mutant) if mutant.test else _find_seed(mutant.name, known)
        if is_found:
            seconds[mutant.name] = _processor_s() - began
        else:
            missed += 1
            print(f"not found: {mutant.name}")
    seeds = {mutant.name: known[mutant.name] for mutant in mutants.MUTANTS if mutant.name in known}
    path.write_text(json.dumps(seeds, indent=4) + "\n", encoding="utf-8")
    rule_table.write(seconds)
    return 1 if missed else 0


def _fails_its_test(mutant: mutants.Mutant) -> bool:
    with ForkServer() as server:  # for what one takes is counted when it has ended
        return run_test(mutant, server).returncode == FAILED


def _find_seed(name: str, known: dict[str, int]) -> bool:
    for first, count, jobs in ((known.get(name, 0), 1, 1), (0, RECORD_MAX, None)):
        tally = explore.explore(first, count, jobs=jobs, mutant=name, failures_max=1)
        if tally.failures:
            known[name] = tally.failures[0].seed
            return True
    return False


def _processor_s() -> float:
    """Return what the processes that have ended took, whatever else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _replay(seed: int, mutant: str, about: str, *, is_whole: bool) -> int:
    if mutant:
        mutants.plant(mutants.find(mutant))
    from shrink import shrink
    from storyteller import Storyteller

    about = mutants.find(mutant).about if mutant else about
    is_whole = is_whole or about in {"topics", "relays", "journals"}  # nothing makes those smaller
    outcome = explore.runner(about, is_traced=is_whole)(seed)
    if outcome.broken and not is_whole:
        with tqdm(desc="making it smaller", unit=" tries", file=sys.stderr) as bar:
            outcome = shrink(outcome, lambda _count, _plan: bar.update() and None)
    for line in Storyteller().tell(outcome.trace, is_brief=not is_whole):
        print(line)
    print(f"plan of seed {seed}: {outcome.plan}")
    print("\n".join(outcome.broken) if outcome.broken else "every promise was kept")
    return 1 if outcome.broken else 0


if __name__ == "__main__":
    sys.exit(main())
