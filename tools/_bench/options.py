"""The words that the commands of tools/bench share.

Owns the options, what they mean for a short run, and the exit codes. Refuses to start anything.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from _bench.errors import BenchError

EXIT_FAILED = 1


class Amount(NamedTuple):
    """An option that is a whole number.

    Attributes:
        name: of the option.
        unit: stands for the number in the help.
        words: what it is.
        usual: its value where none is given.
        short: likewise, in a short run.
    """

    name: str
    unit: str
    words: str
    usual: int
    short: int


ROUNDS = Amount("rounds", "N", "how often everything is measured, in turn", 5, 1)


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every command has."""
    made = argparse.ArgumentParser(
        prog=f"tools/bench/{command}",
        description=description,
        epilog="The settings line and the tables go to stdout, words and the progress bar to stderr.",
    )
    add = made.add_argument
    add("--short", action="store_true", help="a few seconds: does it still run? Its figures mean little")
    add(f"--{ROUNDS.name}", type=_count, metavar=ROUNDS.unit, help=ROUNDS.words)
    add("--json", type=Path, metavar="FILE", help="write settings, tables and raw figures there")
    add("--url", metavar="URL", help="measure this store on Cassandra instead of servers started for it")
    add("--folder", type=Path, metavar="DIR", help="where servers and files are put (a temporary folder)")
    add(
        "--commitlog-sync",
        choices=("periodic", "group"),
        default="periodic",
        help="of Cassandra, where it is started for this",
    )
    return made


def add_store(made: argparse.ArgumentParser, *, default: str = "cassandra", has_sqlite: bool = True) -> None:
    """Add the choice of the store."""
    stores = ("cassandra", "ring", "sqlite") if has_sqlite else ("cassandra", "ring")
    words = "one node, three nodes with replication 3" + (", or one file" if has_sqlite else "")
    made.add_argument("--store", choices=stores, default=default, help=f"{words} (%(default)s)")


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return count


def counts(text: str) -> list[int]:
    """Read "256,1024"."""
    return [_count(part) for part in text.split(",")]


def choose(given: int | None, usual: int, short: int, *, is_short: bool) -> int:
    """Return what was given, else what is usual, or usual for a short run."""
    if given is not None:
        return given
    return short if is_short else usual


def read_amounts(
    made: argparse.ArgumentParser, amounts: Sequence[Amount], arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Read a command line that has amounts; what is not given, also of the rounds, is as usual, or short."""
    for each in amounts:
        made.add_argument(
            f"--{each.name}", type=_count, metavar=each.unit, help=f"{each.words} ({each.usual})"
        )
    options = made.parse_args(arguments)
    for name, _, _, usual, short in (*amounts, ROUNDS):
        given = getattr(options, name)
        setattr(options, name, choose(given, usual, short, is_short=options.short))
    return options


def run(command: Callable[[Sequence[str] | None], int], arguments: Sequence[str] | None = None) -> int:
    """Run a command; what went wrong with it is told in words."""
    try:
        return command(arguments)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
