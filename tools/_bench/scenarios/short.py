"""One short iteration of every benchmark, so that none of them rots, and the guard.

    tools/bench/short                            what continuous integration does
    tools/bench/short --keep                     keep today's ratios as those to compare with

Owns the list of what is run, over one pair of servers. The guard judges ratios to the ceiling, measured by
longer runs than the short ones; what fell is measured once more before it counts.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from _bench.measuring.guard import BASELINE, better, falls, keep, ratios_of, read_baseline, worse
from _bench.options import EXIT_FAILED, run
from _bench.page.table import read_report
from _bench.scenarios import (
    cost,
    doors,
    flat,
    keys,
    latency,
    priority,
    slow_consumers,
    spark,
    throughput,
    width,
)
from _bench.servers import CassandraServer
from _bench.stage import staged

_Command = Callable[[Sequence[str] | None], int]

#: With the words that each gets besides --short.
ITERATIONS: dict[str, tuple[_Command, tuple[str, ...]]] = {
    "latency": (latency.main, ()),
    "flat": (flat.main, ()),
    "width": (width.main, ()),
    "slow-consumers": (slow_consumers.main, ()),
    "priority": (priority.main, ()),
    "keys": (keys.main, ()),
    "cost": (cost.main, ()),
    "doors": (doors.main, ()),
    "spark": (spark.main, ()),
}
_GUARDED = {"cassandra": ("--messages", "40000"), "sqlite": ("--messages", "40000")}
_ROUNDS = ("--rounds", "3", "--body", "256")


def measure_ratios(url: str, folder: Path) -> dict[str, float]:
    """Run `throughput` on both stores and return the ratio of each row."""
    ratios = {}
    for store, words in _GUARDED.items():
        found = folder / f"throughput-{store}.json"
        throughput.main(["--store", store, "--url", url, "--json", str(found), *words, *_ROUNDS])
        ratios.update(ratios_of(read_report(found).raw))
    return ratios


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = argparse.ArgumentParser(
        prog="tools/bench/short",
        description="A short iteration of every benchmark, and a guard on the ratios to the ceiling.",
        epilog="exit codes: 0 all well, 1 a ratio fell by more than a quarter, or a benchmark does not run",
    )
    add = made.add_argument
    add("--keep", action="store_true", help=f"write today's ratios to {BASELINE.name} instead of comparing")
    add("--only", choices=("guard", *ITERATIONS), action="append", help="only this; may be given again")
    add("--url", metavar="URL", help="use this store on Cassandra instead of servers started for it")
    add("--folder", type=Path, metavar="DIR", help="where servers and files are put (a temporary folder)")
    options = made.parse_args(arguments)
    options.commitlog_sync = "periodic"
    with staged(options, "cassandra") as stage, tempfile.TemporaryDirectory(dir=stage.folder) as made_here:
        url = _url_of(stage.server)
        for name, (command, words) in ITERATIONS.items():
            if not options.only or name in options.only:
                print(f"\n# {name}\n", flush=True)
                command(["--short", "--url", url, *words])
        if options.only and "guard" not in options.only:
            return 0
        print("\n# guard\n", flush=True)
        return _guard(url, Path(made_here), is_kept=options.keep)


def _url_of(server: CassandraServer | None) -> str:
    if server is None:
        raise AssertionError("this stage has servers")
    return server.store_url()


def _guard(url: str, folder: Path, *, is_kept: bool) -> int:
    ratios = measure_ratios(url, folder)
    if is_kept:
        keep(worse(ratios, measure_ratios(url, folder)))
        return 0
    kept = read_baseline()
    if not kept:
        print(
            f"bench: there is no {BASELINE.name} to compare with: tools/bench/short --keep", file=sys.stderr
        )
        return EXIT_FAILED
    if falls(kept, ratios):
        print("bench: a ratio fell; measured once more", file=sys.stderr)
        ratios = better(ratios, measure_ratios(url, folder))
    fallen = falls(kept, ratios)
    for words in fallen.values():
        print(f"bench: {words}", file=sys.stderr)
    if not fallen:
        print(f"{len(kept)} ratios, none more than a quarter below what was kept")
    return EXIT_FAILED if fallen else 0


if __name__ == "__main__":
    sys.exit(run(main))
