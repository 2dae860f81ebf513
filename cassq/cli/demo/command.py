"""`cassq demo`: shows on real input that nothing is lost and nothing comes twice.

Owns the options, the progress line and the closing table; `cassq.cli.demo.run` does it.
"""

import dataclasses
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import click
from tqdm import tqdm

import cassq
from cassq import installation
from cassq.cli.demo.run import PIPE_MESSAGES, DemoRun, Plan, Result, Watcher, crew_of, find_files
from cassq.cli.exit_codes import NOT_DONE
from cassq.cli.output import print_figures, print_json, say
from cassq.cli.session import Session, common_options, pass_session
from cassq.limits import MIB
from cassq.runtime.clock import SystemClock

#: Short, so that one can wait for the killed popper's messages.
LEASE = timedelta(seconds=3)

#: How often a line tells how far it is, where there is no terminal.
LINE_EVERY_S = 2.0


@click.command()
@click.option(
    "--pushers", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes that push."
)
@click.option(
    "--poppers", type=click.IntRange(2, 64), default=3, show_default=True, help="Processes that pop."
)
@click.option(
    "--copies", type=click.IntRange(1), default=1, show_default=True, help="How often each file is pushed."
)
@common_options
@pass_session
@click.pass_context
def demo(context: click.Context, session: Session, pushers: int, poppers: int, copies: int) -> None:
    """Push every source file of Python's own library, pop them, kill a popper, count.

    Works on an SQLite file in a temporary folder, or on the store that --url (or CASSQ_URL) names, in a
    queue of its own that is deleted at the end. Exits 0 only if every promise held.
    """
    root, files = find_files()
    plan = Plan(pushers, poppers, copies, root, files)
    begun = SystemClock().now()
    with tempfile.TemporaryDirectory(prefix="cassq-demo-") as name:
        result = _run(plan, Path(name), session.url or f"sqlite:///{name}/demo.db")
    seconds = SystemClock().now() - begun
    (_print_json if session.is_json else _print)(plan, result, seconds)
    if result.verdict.broken:
        context.exit(NOT_DONE)


def _run(plan: Plan, folder: Path, url: str) -> Result:
    target = installation.target_of(url)
    if isinstance(target, installation.SqliteTarget) and target.path is None:
        raise cassq.InvalidOptionError(
            "the demo's processes cannot share memory:; leave --url out for a file"
        )
    name = f"demo-{secrets.token_hex(4)}"
    with cassq.connect(url) as store:
        queue = store.queue(
            name,
            lease=LEASE,
            pipe_messages_max=PIPE_MESSAGES,
            push_age_max=timedelta(seconds=5),
            push_grace=timedelta(seconds=5),
            max_attempts=10,
            body_bytes_max=8 * MIB,
        )
        say(f"{plan.expected} messages from {plan.root}, through queue {name} in {store.url}:")
        say(f"{plan.pushers} processes push, {plan.poppers} pop, one of these is killed with SIGKILL")
        try:
            with crew_of(folder, url, name) as crew, _progress(plan.expected) as watch:
                return DemoRun(plan, queue, store, crew, watch).run()
        finally:
            with suppress(cassq.CassqError):
                store.delete_queue(name)


@contextmanager
def _progress(total: int) -> Iterator[Watcher]:
    if sys.stderr.isatty():
        with tqdm(total=total, desc="committed", unit=" messages", file=sys.stderr) as bar:

            def move(pushed: int, committed: int, redelivered: int) -> None:
                bar.set_postfix(pushed=pushed, redelivered=redelivered, refresh=False)
                bar.update(committed - bar.n)

            yield move
        return
    clock = SystemClock()
    told_at = clock.now()

    def tell(pushed: int, committed: int, redelivered: int) -> None:
        nonlocal told_at
        if clock.now() - told_at >= LINE_EVERY_S:
            told_at = clock.now()
            say(f"pushed {pushed} of {total}, committed {committed}, redelivered {redelivered}")

    yield tell


def _print(plan: Plan, result: Result, seconds: float) -> None:
    verdict = result.verdict
    size = result.bytes_pushed / MIB
    push_mib = result.push_rate * size / verdict.pushed
    figures: dict[str, object] = {
        "files": f"{len(plan.files)} x {plan.copies}, {size:.1f} MiB",
        "pushed": f"{verdict.pushed} by {plan.pushers} processes",
        "committed": f"{verdict.committed} by {plan.poppers} processes, one of them killed",
        "lost": verdict.lost,
        "duplicates": f"{verdict.duplicates} outside rollbacks",
        "bodies": f"{verdict.damaged} differ by SHA-256",
        "killed popper held": f"{verdict.held}: {verdict.held_in_hand} in hand, the rest in its buffer",
        "redelivered": f"{verdict.redelivered}, from {result.wait_s:.1f} s after the kill on",
    }
    if verdict.overrun:
        figures["overrun"] = f"{verdict.overrun} more came again: their lease ran out in a popper that lives"
    figures |= {
        "push rate": f"{result.push_rate:,.0f} messages/s, {push_mib:.1f} MiB/s",
        "pop rate": f"{result.commit_rate:,.0f} messages/s, popped, checked and committed",
        "reapers": f"all {result.pipes} pipes retired, {result.report.retired} of them in the last passes",
        "took": f"{seconds:.1f} s",
    }
    print_figures(figures)
    for broken in verdict.broken:
        say(f"cassq: BROKEN: {broken}")
    if not verdict.broken:
        click.echo(
            "every promise held: pushed = committed, lost 0, redelivered = what the killed popper held"
        )


def _print_json(plan: Plan, result: Result, seconds: float) -> None:
    told = {"files": len(plan.files), "copies": plan.copies, **result.verdict.to_json()}
    told |= {
        "bytes": result.bytes_pushed,
        "push_rate": result.push_rate,
        "commit_rate": result.commit_rate,
        "redelivered_after_s": result.wait_s,
        "seconds": seconds,
        "pipes": result.pipes,
        "reaper": dataclasses.asdict(result.report),
        "held_promises": not result.verdict.broken,
    }
    print_json(told)
