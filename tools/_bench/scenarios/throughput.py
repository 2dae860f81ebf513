"""How many messages a second, beside what the database and the driver do without the library.

    tools/bench/throughput                       Cassandra on one node
    tools/bench/throughput --store ring          three nodes, replication 3
    tools/bench/throughput --store sqlite        one file

Owns which uses of the library are measured, and which ceiling each is held against. What must not break: ours
and theirs of one row run one after the other in the same round, each in a process of its own.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from _bench.clients import cassq_work, raw_work
from _bench.clients.ceiling import RawCassandra, raw_opener
from _bench.clients.ceiling_sqlite import RawSqlite, RawSqliteOpener
from _bench.clients.client_process import ClientProcess
from _bench.measuring.compare import Figures, Measure, interleave, ratio
from _bench.measuring.settings_line import tell_settings
from _bench.options import add_store, choose, counts, parser, run
from _bench.page.table import Report, Table, raw_figures, tell_figures, tell_ratio
from _bench.stage import staged

#: `push_many` writes up to 1000 at a time; which of these is faster differs from machine to machine.
_BATCHES = (500, 1000)
_TOLD = " or ".join(map(str, _BATCHES))
_FILE_BATCH = 1000
_POP = 4000
_LANES = 4
_THREADS = 64
#: These are slower by their nature: so many fewer messages make a run about as long as the others.
_ONE_BY_ONE = 100
_FROM_THREADS = 10


@dataclass(frozen=True, slots=True)
class Row:
    """One use of the library beside its ceiling.

    Attributes:
        key: stays the same, for the guard.
        ours, theirs: each returns messages per second.
        after: done after both, and not measured.
    """

    key: str
    title: str
    ceiling: str
    ours: Measure
    theirs: Measure
    after: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Pair:
    """The two processes whose work is compared."""

    ours: ClientProcess
    theirs: ClientProcess

    def settle(self) -> None:
        """Let cassq clear away what was consumed."""
        self.ours.run(cassq_work.settle)

    def drain(self) -> None:
        """Let cassq pop what is left, and clear it away."""
        self.ours.run(cassq_work.drain)
        self.settle()


def rows_on_cassandra(pair: Pair, count: int, body_bytes: Sequence[int]) -> Iterator[Row]:
    """Yield what is measured on Cassandra; whatever a row pushes, a later one pops."""
    ours, theirs = pair.ours.rate_of, pair.theirs.rate_of
    for size in body_bytes:
        # As many bytes as of the smallest, so that every run takes about as long.
        some = max(_POP, count * body_bytes[0] // size)
        for lanes in (1, _LANES):
            pushed = f"{size} B, {'one pipe' if lanes == 1 else f'{lanes} pipes at once'}"
            yield Row(
                f"push_many/{size}/{lanes}",
                f"push_many, {pushed}",
                f"INSERT of {_TOLD}, {'one' if lanes == 1 else lanes} in flight",
                ours(cassq_work.push_many, some, size, lanes),
                theirs(raw_work.push, some, size, _BATCHES, lanes),
            )
            yield Row(
                f"pop_many/{size}/{lanes}",
                f"pop_many({_POP}) + commit_many, {pushed}",
                f"read, LWT, mark; {raw_work.RUN_MESSAGES} a run",
                ours(cassq_work.pop_many, some, _POP, lanes),
                theirs(raw_work.pop, some),
                pair.settle,
            )
    yield from _rows_one_by_one(pair, count, body_bytes[0])


def _rows_one_by_one(pair: Pair, count: int, size: int) -> Iterator[Row]:
    ours, theirs = pair.ours.rate_of, pair.theirs.rate_of
    few = max(100, count // _ONE_BY_ONE)
    yield Row(
        "push_soon",
        f"push_soon, one thread, {size} B",
        f"INSERT of {_TOLD}, one in flight",
        ours(cassq_work.push_soon, count, size),
        theirs(raw_work.push, count, size, _BATCHES, 1),
    )
    yield Row(
        "iterate_grouped",
        f'for delivery in popper, commit="grouped", {size} B',
        f"read, LWT, mark; {raw_work.RUN_MESSAGES} a run",
        ours(cassq_work.iterate_grouped, count),
        theirs(raw_work.pop, count),
        pair.settle,
    )
    yield Row(
        "push_from_threads",
        f"push() from {_THREADS} threads, {size} B",
        f"INSERT of {_TOLD}, one in flight",
        ours(cassq_work.push_from_threads, count // _FROM_THREADS, size, _THREADS),
        theirs(raw_work.push, count, size, _BATCHES, 1),
        lambda: pair.theirs.run(raw_work.pop, count),
    )
    yield Row(
        "pop_one_by_one",
        f"pop() + commit(), one at a time, {size} B",
        "INSERT of one mark, one in flight",
        ours(cassq_work.pop_one_by_one, min(few, count // _FROM_THREADS - 1)),
        theirs(raw_work.mark_each, few),
        pair.drain,
    )


def rows_on_sqlite(pair: Pair, count: int, body_bytes: Sequence[int]) -> Iterator[Row]:
    """Yield what is measured on a file."""
    ours, theirs = pair.ours.rate_of, pair.theirs.rate_of
    for size in body_bytes:
        some = max(_POP, count * body_bytes[0] // size)
        yield Row(
            f"sqlite/push_many/{size}",
            f"push_many, {size} B",
            f"INSERT of {_FILE_BATCH} messages, COMMIT",
            ours(cassq_work.push_many, some, size, 1),
            theirs(raw_work.push_file, some, size, _FILE_BATCH),
        )
        yield Row(
            f"sqlite/pop_many/{size}",
            f"pop_many({_POP}) + commit_many, {size} B",
            f"read, UPDATE and COMMIT, mark and COMMIT; {raw_work.RUN_MESSAGES} a run",
            ours(cassq_work.pop_many, some, _POP, 1),
            theirs(raw_work.pop, some),
            pair.settle,
        )
    few = max(50, count // _ONE_BY_ONE)
    yield Row(
        "sqlite/push_one_by_one",
        f"push(), one at a time, {body_bytes[0]} B",
        "INSERT of one message, COMMIT",
        ours(cassq_work.push_one_by_one, few, body_bytes[0]),
        theirs(raw_work.push_file_each, few, body_bytes[0]),
        pair.drain,
    )


def compare(rows: Sequence[Row], rounds: int) -> dict[str, Figures]:
    """Measure all rows, ours and theirs in turn; in the same order in every round."""
    measures: dict[str, Measure] = {}
    for row in rows:
        measures[f"{row.key} ours"] = row.ours
        measures[f"{row.key} theirs"] = _then(row.theirs, row.after)
    return interleave(measures, rounds, title="throughput")


def _then(measure: Measure, after: Callable[[], object]) -> Measure:
    def both() -> float:
        figure = measure()
        after()
        return figure

    return both


def tabulate(title: str, rows: Sequence[Row], found: dict[str, Figures]) -> Table:
    """Return the figures as a table."""
    cells = []
    for row in rows:
        ours, theirs = found[f"{row.key} ours"], found[f"{row.key} theirs"]
        told = (
            tell_figures(ours, "/s"),
            row.ceiling,
            tell_figures(theirs, "/s"),
            tell_ratio(ratio(ours, theirs)),
        )
        cells.append((row.title, *told))
    return Table(title, ("cassq", "messages", "without the library", "messages", "ratio"), cells)


@contextmanager
def paired(options: argparse.Namespace) -> Iterator[tuple[Pair, Mapping[str, str]]]:
    """Lend the two processes, and what is to be told of their store."""
    with staged(options) as stage:
        theirs: Callable[[], RawCassandra | RawSqlite] = RawSqliteOpener(stage.folder / "raw.db")
        if stage.server:
            theirs = raw_opener(stage.server)
        with ClientProcess(stage.opener, "cassq") as one, ClientProcess(theirs, "raw") as other:
            yield Pair(one, other), stage.told


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = parser("throughput", "How many messages a second, beside the same statements without the library.")
    add_store(made)
    made.add_argument("--messages", type=int, metavar="N", help="of the smallest body, a run (200000)")
    made.add_argument("--body", type=counts, default=[256, 1024], metavar="B,…", help="bytes (256,1024)")
    options = made.parse_args(arguments)
    rounds = choose(options.rounds, 5, 1, is_short=options.short)
    count = choose(options.messages, 200_000, 12_000, is_short=options.short)
    make = rows_on_sqlite if options.store == "sqlite" else rows_on_cassandra
    with paired(options) as (pair, told):
        load = {"clients": "one process each", "rounds": str(rounds), "messages a run": str(count)}
        settings = tell_settings(told, load)
        compare(list(make(pair, max(_POP, count // 2), options.body[:1])), 1)
        rows = list(make(pair, count, options.body))
        found = compare(rows, rounds)
    title = f"Messages per second, {options.store}: median (range) of {rounds} rounds"
    Report("throughput", settings, [tabulate(title, rows, found)], raw_figures(found)).tell(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
