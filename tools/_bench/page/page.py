"""Puts what was measured into docs/benchmarks.md, from the JSON files that the commands wrote.

    tools/bench/page                             every docs/benchmarks/*.json into its place
    tools/bench/page --check                     change nothing; fail where the page is behind

Owns the places of the page: a line `<!-- bench NAME: begin -->` and one `<!-- bench NAME: end -->` for each
NAME.json. Refuses to write anything between them that is not in the file; words are the page's own.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from _bench.errors import BenchError
from _bench.options import EXIT_FAILED, run
from _bench.page.table import Report, read_report

_DOCS = Path(__file__).parents[3] / "docs"


def render(report: Report) -> str:
    """Return what stands in a report's place: its settings, then its tables."""
    return f"{report.settings_line()}\n\n{report.text()}"


def filled(page: str, reports: Mapping[str, Report]) -> str:
    """Return the page with each report in its place.

    Raises:
        BenchError: the page has no place for one of them.
    """
    for name, report in reports.items():
        begin, end = f"<!-- bench {name}: begin -->\n", f"<!-- bench {name}: end -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise BenchError(f"the page has no place for {name}, between {begin.strip()} and {end}")
        page = f"{before}{begin}\n{render(report)}\n\n{end}{after}"
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    made = argparse.ArgumentParser(
        prog="tools/bench/page",
        description="Put the tables of docs/benchmarks/*.json into docs/benchmarks.md.",
    )
    made.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 where the page is behind"
    )
    made.add_argument("--docs", type=Path, default=_DOCS, metavar="DIR", help="where page and files are")
    options = made.parse_args(arguments)
    page = options.docs / "benchmarks.md"
    if not page.exists():
        raise BenchError(f"there is no {page}")
    reports = {each.stem: read_report(each) for each in sorted((options.docs / "benchmarks").glob("*.json"))}
    before = page.read_text("utf-8")
    after = filled(before, reports)
    if before == after:
        return 0
    if options.check:
        print(f"bench: {page} is behind its files: tools/bench/page", file=sys.stderr)
        return EXIT_FAILED
    page.write_text(after, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
