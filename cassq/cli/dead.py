"""`cassq dead …`: the messages of a queue that were given up.

Owns nothing but words.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypedDict, Unpack

import click

import cassq
from cassq.cli.output import Bar, count_of, print_json, print_table, progress_bar, say, to_json
from cassq.cli.session import Session, common_options, find_queue, pass_session
from cassq.cli.values import to_duration, to_header
from cassq.model.retrying import in_one_line
from cassq.observing.dead_letters import LETTERS_MAX
from cassq.observing.letter_choice import LetterChoice


class RedriveOptions(TypedDict):
    """Which dead letters are pushed again, and how."""

    reason: str | None
    headers: tuple[tuple[str, str], ...]
    older: timedelta | None
    limit: int | None
    rate: float | None
    dry_run: bool


@click.group()
def dead() -> None:
    """Look at dead letters, put them back, discard them."""


@dead.command("list")
@click.argument("queue")
@click.option("-n", "count", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@common_options
@pass_session
def list_dead(session: Session, queue: str, count: int) -> None:
    """List dead letters, and say how many there are; --json shows their bodies too."""
    with session.queue(queue) as opened:
        found = [to_json(message) for message in opened.dead.peek(count)]
        all_of_them = len(found) if len(found) < count else opened.dead.count()
    if session.is_json:
        print_json(found)
        return
    if all_of_them > len(found):
        more = " or more" if all_of_them >= LETTERS_MAX else ""
        say(f"the first {len(found)} of {count_of(all_of_them, 'dead letter')}{more}")
    shown = ("id", "type", "key", "attempts", "died_at", "pushed_at", "reason")
    print_table(
        [{name: each[name] for name in shown} | {"reason": in_one_line(each["reason"])} for each in found],
        optional=("type", "key"),
    )


@dead.command("put-back")
@click.argument("queue")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@common_options
@pass_session
def put_back(session: Session, queue: str, ids: tuple[str, ...], *, is_all: bool) -> None:
    """Push dead letters again, as new messages."""
    wanted = _wanted(ids, is_all=is_all)
    with session.queue(queue) as opened, progress_bar("putting back", len(wanted) if wanted else None) as bar:
        count, failed = _deal(lambda: opened.dead.put_back(wanted, _following(bar)))
    if session.is_json:
        print_json({"queue": queue, "put_back": count})
    else:
        say(f"pushed {count_of(count, 'dead letter')} again")
    if failed:
        raise failed


@dead.command()
@click.argument("queue")
@click.option("--to", metavar="QUEUE", help="Push them into another queue, which exists.")
@click.option("--reason", metavar="GLOB", help="Those whose reason matches: 'timeout*'.")
@click.option(
    "--header", "headers", type=to_header, multiple=True, metavar="NAME=VALUE", help="Those with it."
)
@click.option("--older", type=to_duration, metavar="DURATION", help="Those that died so long ago: 1h.")
@click.option("--limit", type=click.IntRange(1), help="At most so many, the oldest first.")
@click.option("--rate", type=float, help="At most so many a second.")
@click.option("--dry-run", is_flag=True, help="Push nothing, only tell what would be.")
@common_options
@pass_session
def redrive(session: Session, queue: str, to: str | None, **options: Unpack[RedriveOptions]) -> None:
    """Push chosen dead letters again, here or into another queue; all where nothing is chosen."""
    reason, headers, dry_run = options["reason"], options["headers"], options["dry_run"]
    died_by = datetime.now(UTC) - options["older"] if options["older"] else None

    is_meant = LetterChoice(reason, dict(headers), died_by)
    with session.store() as store, progress_bar("redriving", options["limit"]) as bar:
        done = find_queue(store, queue).dead.redrive(
            find_queue(store, to) if to else None,
            where=is_meant,
            limit=options["limit"],
            rate=options["rate"],
            dry_run=dry_run,
            progress=_following(bar),
        )
    if session.is_json:
        print_json({"queue": queue, "to": to or queue, "redriven": done.count, "reasons": done.reasons})
        return
    say(f"{'would push' if dry_run else 'pushed'} {count_of(done.count, 'dead letter')} again")
    print_table([{"letters": count, "reason": in_one_line(each)} for each, count in done.reasons.items()])


@dead.command()
@click.argument("queue")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@pass_session
def discard(session: Session, queue: str, ids: tuple[str, ...], *, is_all: bool, yes: bool) -> None:
    """Remove dead letters for ever."""
    wanted = _wanted(ids, is_all=is_all)
    with session.queue(queue) as opened:
        session.confirm(f"Discard dead letters of queue {queue!r} for ever?", is_sure=yes)
        count, failed = _deal(lambda: opened.dead.discard(wanted))
    if session.is_json:
        print_json({"queue": queue, "discarded": count})
    else:
        say(f"discarded {count_of(count, 'dead letter')}")
    if failed:
        raise failed


def _deal(deal: Callable[[], int]) -> tuple[int, cassq.CassqError | None]:
    """Return how many letters were dealt with, and what there is to say of the others."""
    try:
        return deal(), None
    except cassq.DeadLetterNotFoundError as error:
        return error.count, error


def _following(bar: Bar) -> Callable[[int], None]:
    """Return what has a bar follow a count."""
    shown = 0

    def follow(count: int) -> None:
        nonlocal shown
        bar.update(count - shown)
        shown = count

    return follow


def _wanted(ids: tuple[str, ...], *, is_all: bool) -> list[cassq.MessageId] | None:
    if bool(ids) == is_all:
        raise click.UsageError("name the ids of the dead letters, or --all")
    return None if is_all else [cassq.MessageId.parse(each) for each in ids]
