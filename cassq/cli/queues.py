"""`cassq queue …`: declare queues, look at them, steer them, end them.

Owns nothing but words; what a setting may be is in `cassq.QueueSettings`, and its options are made from it.
"""

import dataclasses
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import click

import cassq
from cassq.cli.output import count_of, print_figures, print_json, print_table, say
from cassq.cli.session import Session, common_options, find_queue, pass_session
from cassq.cli.signals import Wish
from cassq.cli.values import to_bytes, to_duration, to_pause
from cassq.model.settings import QueueOptions

#: How soon a watching command notices a signal.
TICK_S = 0.2


@click.group("queue")
def queues() -> None:
    """Declare queues, look at them, steer them, end them."""


def setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for every setting of a queue."""
    for setting in reversed(dataclasses.fields(cassq.QueueSettings)):
        is_duration = isinstance(setting.default, timedelta)
        kind: Any = to_duration if is_duration else to_bytes if "_bytes_" in setting.name else click.INT
        shown = f"{setting.default.total_seconds():g}s" if is_duration else setting.default
        command = click.option(
            f"--{setting.name.replace('_', '-')}",
            setting.name,
            type=kind,
            metavar="DURATION" if is_duration else "NUMBER",
            help=f"{setting.metadata['meaning']}  [default: {shown}]",
        )(command)
    return command


@queues.command()
@click.argument("name")
@setting_options
@common_options
@pass_session
def create(session: Session, /, name: str, **settings: object) -> None:
    """Create a queue; fine if it is there already with the settings that are named."""
    named = {setting: value for setting, value in settings.items() if value is not None}
    with session.store() as store:
        queue = store.queue(name, **cast(QueueOptions, named))
        if session.is_json:
            print_json({"queue": queue.name, "settings": queue.settings.to_stored()})
        else:
            say(f"queue {queue.name} stands in {store.url}")


@queues.command("list")
@common_options
@pass_session
def list_queues(session: Session) -> None:
    """List the queues of a store."""
    with session.store() as store:
        names = store.queues()
    if session.is_json:
        print_json([{"queue": name} for name in names])
    for name in () if session.is_json else names:
        click.echo(name)


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
@common_options
@pass_session
def stats(session: Session, name: str, watch: timedelta | None) -> None:
    """Tell what a queue holds and what went through it; the cost does not grow with the backlog."""
    with session.queue(name) as queue:
        show = _print_json_stats if session.is_json else _print_stats
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


def _print_stats(found: cassq.QueueStats) -> None:
    print_figures(found.to_json())


def _print_json_stats(found: cassq.QueueStats) -> None:
    print_json(found.to_json())


def _tell_done(session: Session, told: dict[str, Any], words: str) -> None:
    if session.is_json:
        print_json(told)
    else:
        say(words)
