"""`cassq dead …`: the messages of a queue that were given up.

Owns nothing but words.
"""

from collections.abc import Callable

import click

import cassq
from cassq.cli.output import count_of, print_json, print_table, progress_bar, say, to_json
from cassq.cli.session import Session, common_options, pass_session
from cassq.model.retrying import in_one_line


@click.group()
def dead() -> None:
    """Look at dead letters, put them back, discard them."""


@dead.command("list")
@click.argument("queue")
@click.option("-n", "count", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@common_options
@pass_session
def list_dead(session: Session, queue: str, count: int) -> None:
    """List dead letters; --json shows their bodies too."""
    with session.queue(queue) as opened:
        found = [to_json(message) for message in opened.dead.peek(count)]
    if session.is_json:
        print_json(found)
        return
    shown = ("id", "attempts", "died_at", "pushed_at", "reason")
    print_table(
        [{name: each[name] for name in shown} | {"reason": in_one_line(each["reason"])} for each in found]
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

        def note(_count: int) -> None:
            bar.update(1)

        count, failed = _deal(lambda: opened.dead.put_back(wanted, note))
    if session.is_json:
        print_json({"queue": queue, "put_back": count})
    else:
        say(f"pushed {count_of(count, 'dead letter')} again")
    if failed:
        raise failed


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


def _wanted(ids: tuple[str, ...], *, is_all: bool) -> list[cassq.MessageId] | None:
    if bool(ids) == is_all:
        raise click.UsageError("name the ids of the dead letters, or --all")
    return None if is_all else [cassq.MessageId.parse(each) for each in ids]
