"""The command line of `tools/check-model`.

Owns what is printed and the exit code: 0 when all is as it should be, 1 when not, 2 for a wrong argument.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from _check_model import record
from _check_model.rules import RULES
from _check_model.runs import ABLATIONS, VERIFICATIONS, Run, ablation
from _check_model.spin import ModelError, Verdict, find_spin, search, trace
from _check_model.table import write_table

#: Searches side by side: each takes up to a gigabyte.
_WIDTH = min(2, os.cpu_count() or 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what was asked for and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.table:
            write_table()
            return 0
        if options.trace:
            return _show_trace(options.trace)
        started = time.monotonic()
        verifications, ablations = list(VERIFICATIONS), list(ABLATIONS)
        if options.changed:
            verifications = [run for run in verifications if not record.is_known(run)]
            ablations = [run for run in ablations if not record.is_known(run)]
            before = len(VERIFICATIONS) + len(ABLATIONS) - len(verifications) - len(ablations)
            print(f"{before} searches are on record (docs/model/searched.json)")
        if verifications or ablations:
            find_spin()
        verdicts = _verify(verifications)
        if options.without_each_rule or options.changed or options.record:
            verdicts |= _take_away_each_rule(ablations)
        is_good = all(_is_good(run, verdict) for run, verdict in verdicts.items())
        if options.record and is_good:
            record.write(verdicts)
        print(
            f"\n{'as it should be' if is_good else 'NOT as it should be'}, {time.monotonic() - started:.0f} s"
        )
    except ModelError as error:
        print(f"check-model: {error}", file=sys.stderr)
        return 1
    return 0 if is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/check-model",
        description="Search everything that can happen in the model of the pipe protocol, within its bounds.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--without-each-rule",
        action="store_true",
        help="and show for each rule that something goes wrong when it is taken away",
    )
    what.add_argument(
        "--changed",
        action="store_true",
        help="like that, but only what is not in docs/model/searched.json as it is now",
    )
    what.add_argument(
        "--record",
        action="store_true",
        help="like --without-each-rule, and write docs/model/searched.json anew where all is as it should be",
    )
    what.add_argument(
        "--trace", metavar="NO_RULE", help="show the shortest way to what goes wrong without a rule"
    )
    what.add_argument("--table", action="store_true", help="write the table in docs/model/README.md anew")
    return parser


def _verify(runs: Sequence[Run]) -> dict[Run, Verdict]:
    print(f"{'model':8}{'what':43}{'states':>10}{'depth':>7}{'seconds':>9}  verdict")
    verdicts = {}
    with ThreadPoolExecutor(_WIDTH) as pool:
        for run, verdict in zip(runs, pool.map(search, runs), strict=True):
            said = verdict.failure or ("holds, all states seen" if verdict.is_complete else "INCOMPLETE")
            measured = f"{verdict.states:>10}{verdict.depth:>7}{verdict.seconds:>9.1f}"
            print(f"{run.file:8}{run.title:43}{measured}  {said}", flush=True)
            if not verdict.is_complete:
                print(f"        bounds: {' '.join(run.bounds)}")
            verdicts[run] = verdict
    return verdicts


def _take_away_each_rule(runs: Sequence[Run]) -> dict[Run, Verdict]:
    print(f"\n{'without':20}{'model':8}{'states':>10}{'depth':>7}{'seconds':>9}  what goes wrong")
    verdicts = {}
    with ThreadPoolExecutor(_WIDTH) as pool:
        for run, verdict in zip(runs, pool.map(search, runs), strict=True):
            print(_ablation_line(run, verdict), flush=True)
            verdicts[run] = verdict
    return verdicts


def _is_good(run: Run, verdict: Verdict) -> bool:
    return bool(verdict.failure) if run.without else verdict.is_complete


def _ablation_line(run: Run, verdict: Verdict) -> str:
    said = verdict.failure or "NOTHING: it is not needed, or the model does not see it"
    measured = f"{verdict.states:>10}{verdict.at_depth:>7}{verdict.seconds:>9.1f}"
    return f"{'NO_' + run.without.upper():20}{run.file:8}{measured}  {said}"


def _show_trace(macro: str) -> int:
    rule = next((rule for rule in RULES if f"NO_{rule.name.upper()}" == macro.upper()), None)
    if rule is None:
        raise ModelError(
            f"there is no {macro}; there are {', '.join(f'NO_{each.name.upper()}' for each in RULES)}"
        )
    verdict, steps = trace(ablation(rule))
    print(f"without the rule: {rule.text}\n")
    print("\n".join(steps))
    if not verdict.failure:
        print("nothing goes wrong")
        return 1
    print(f"\n{rule.file}.pml: {verdict.failure}")
    return 0
