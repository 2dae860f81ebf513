"""`cassq queue …`: declare queues, look at them, steer them, end them.

Owns nothing but words; those of a queue's settings are in `cassq.cli.queue_settings`.
"""

import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import click

import cassq
from cassq.cli import queue_settings
from cassq.cli.output import count_of, print_figures, print_json, print_table, say
from cassq.cli.session import Session, common_options, find_queue, pass_session
from cassq.cli.signals import Wish
from cassq.cli.values import to_pause

#: How soon a watching command notices a signal.
TICK_S = 0.2

#: What `cassq queue list` tells of each queue.
DEPTH = "queue", "state", "waiting", "pending", "delayed", "oldest_age_s"


@click.group("queue")
def queues() -> None:
    """Declare queues, look at them, steer them, end them."""


for command in (queue_settings.create, queue_settings.alter, queue_settings.show):
    queues.add_command(command)


@queues.command("list")
@click.option("--names", is_flag=True, help="Only the names; reads no pipe.")
@common_options
@pass_session
def list_queues(session: Session, *, names: bool) -> None:
    """List the queues of a store: how many messages each holds, and the age of the oldest."""
    with session.store() as store:
        found = [{"queue": name} if names else _depth_of(store, name) for name in store.queues()]
    if session.is_json:
        print_json(found)
    elif names:
        for each in found:
            click.echo(each["queue"])
    else:
        print_table(found)


def _depth_of(store: cassq.Store, name: str) -> dict[str, Any]:
    told = store.find_queue(name).stats().to_json()
    return {figure: told[figure] for figure in DEPTH}


@queues.command()
@click.argument("name")
@click.option(
    "--watch",
    type=to_pause,
    metavar="DURATION",
    is_flag=False,
    flag_value="2s",
    help="Again and again, this far apart.",
)
@click.option("--by", type=click.Choice(["priority", "type"]), help="A row for each: what it holds.")
@common_options
@pass_session
def stats(session: Session, name: str, watch: timedelta | None, by: str | None) -> None:
    """Tell what a queue holds and what went through it; the cost does not grow with the backlog."""
    with session.queue(name) as queue:
        show = partial(_print_stats, is_json=session.is_json, by=by)
        if watch is None:
            show(queue.stats())
            return
        with session.ending.politely() as wish:
            show(queue.stats())
            while not wait(wish, watch):
                if not session.is_json:
                    click.echo()
                show(queue.stats())


@queues.command()
@click.argument("name")
@click.option(
    "--day", type=click.DateTime(["%Y-%m-%d"]), metavar="YYYY-MM-DD", help="In UTC; today, if not named."
)
@common_options
@pass_session
def rollups(session: Session, name: str, day: datetime | None) -> None:
    """Tell what `cassq pipeline rollup --keep` counted on a day: a row a minute, pusher and holder."""
    with session.queue(name) as queue:
        found = [each.to_json() for each in queue.rollups((day or datetime.now(UTC)).date())]
    if session.is_json:
        print_json(found)
    else:
        print_table(found)


@queues.command()
@click.argument("name")
@common_options
@pass_session
def pipes(session: Session, name: str) -> None:
    """Tell of each live pipe: phase, counts, who holds it, age."""
    with session.queue(name) as queue:
        found = [each.to_json() for each in queue.pipes()]
    if session.is_json:
        print_json(found)
    else:
        print_table(found, optional=("type", "slot"))


@queues.command()
@click.argument("name")
@click.option("--count", type=click.IntRange(1), default=100, show_default=True, help="So many at most.")
@common_options
@pass_session
def runs(session: Session, name: str, count: int) -> None:
    """Tell who has which messages, since when and until when, and what came back and why."""
    with session.queue(name) as queue:
        found = [each.to_json() for each in queue.runs(count)]
    if session.is_json:
        print_json(found)
    else:
        print_table(found)


@queues.command()
@click.argument("name")
@common_options
@pass_session
def pause(session: Session, name: str) -> None:
    """Stop deliveries everywhere, within about a second; pushes go on."""
    with session.queue(name) as queue:
        queue.pause()
    _tell_done(session, {"queue": name, "state": "paused"}, f"queue {name} is paused")


@queues.command()
@click.argument("name")
@common_options
@pass_session
def resume(session: Session, name: str) -> None:
    """Let deliveries go on."""
    with session.queue(name) as queue:
        queue.resume()
    _tell_done(session, {"queue": name, "state": "active"}, f"queue {name} is active")


@queues.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@pass_session
def purge(session: Session, name: str, *, yes: bool) -> None:
    """End every message that is in nobody's hands; dead letters stay."""
    with session.queue(name) as queue:
        session.confirm(f"Purge every waiting message of queue {name!r}?", is_sure=yes)
        count = queue.purge()
    _tell_done(
        session, {"queue": name, "purged": count}, f"purged {count_of(count, 'message')} of queue {name}"
    )


@queues.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@pass_session
def delete(session: Session, name: str, *, yes: bool) -> None:
    """Delete a queue with all its messages and dead letters."""
    with session.store() as store:
        find_queue(store, name)
        session.confirm(f"Delete queue {name!r} with all its messages?", is_sure=yes)
        store.delete_queue(name)
    _tell_done(session, {"queue": name, "state": "deleted"}, f"queue {name} is deleted")


def wait(wish: Wish, seconds: timedelta) -> bool:
    """Wait, but not after a signal; return whether one came."""
    ticks = max(1, round(seconds.total_seconds() / TICK_S))
    pause_s = seconds.total_seconds() / ticks
    never = threading.Event()
    for _ in range(ticks):
        if wish or never.wait(pause_s):
            break
    return bool(wish)


def _print_stats(found: cassq.QueueStats, *, is_json: bool, by: str | None) -> None:
    told = found.to_json()
    parts = {"priority": told["priorities"], "type": told["types"]}
    if is_json:
        print_json(parts[by] if by else told)
    elif by:
        print_table(parts[by])
    else:
        print_figures({name: value for name, value in told.items() if name not in {"priorities", "types"}})


def _tell_done(session: Session, told: dict[str, Any], words: str) -> None:
    if session.is_json:
        print_json(told)
    else:
        say(words)
