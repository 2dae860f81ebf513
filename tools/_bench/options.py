"""The words that the commands of tools/bench share.

Owns the options, what they mean for a short run, and the exit codes. Refuses to start anything.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from _bench.errors import BenchError

EXIT_FAILED = 1


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every command has."""
    made = argparse.ArgumentParser(
        prog=f"tools/bench/{command}",
        description=description,
        epilog="The settings line and the tables go to stdout, words and the progress bar to stderr.",
    )
    add = made.add_argument
    add("--short", action="store_true", help="a few seconds: does it still run? Its figures mean little")
    add("--rounds", type=_count, metavar="N", help="how often everything is measured, in turn")
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
