"""`cassq queue create`, `alter` and `show`: the settings of a queue.

Owns nothing but words; what a setting may be is in `cassq.QueueSettings`, and the options are made from it.
"""

from typing import cast

import click

import cassq
from cassq.cli.output import print_json, print_table, say
from cassq.cli.session import Session, common_options, find_queue, pass_session
from cassq.cli.setting_options import describe_settings, say_altered, setting_options, settings_named
from cassq.model.options import AlterOptions, QueueOptions
from cassq.model.settings import settings_known

SETTINGS = settings_known()


@click.command()
@click.argument("name")
@setting_options(SETTINGS, is_new=True)
@common_options
@pass_session
def create(session: Session, /, name: str, **settings: object) -> None:
    """Create a queue; fine if it is there already with the settings that are named."""
    with session.store() as store:
        queue = store.queue(name, **cast(QueueOptions, settings_named(settings)))
        if session.is_json:
            _print_settings(name, queue.settings)
        else:
            say(f"queue {queue.name} stands in {store.url}")


@click.command()
@click.argument("name")
@setting_options(SETTINGS, is_new=False)
@common_options
@pass_session
def alter(session: Session, /, name: str, **settings: object) -> None:
    """Give a queue other settings while it is in use; those that are not named stay."""
    named = settings_named(settings)
    if not named:
        raise click.UsageError(
            "name what to alter, for example --lease 1m; `cassq queue show` tells what stands"
        )
    with session.store() as store:
        before = find_queue(store, name).settings
        after = store.alter_queue(name, **cast(AlterOptions, named))
    if session.is_json:
        _print_settings(name, after)
        return
    say_altered(f"queue {name}", named, before, after)


@click.command()
@click.argument("name")
@common_options
@pass_session
def show(session: Session, name: str) -> None:
    """Show the settings of a queue, what each means, and whether it can be altered."""
    with session.queue(name) as queue:
        settings = queue.settings
    if session.is_json:
        _print_settings(name, settings)
        return
    print_table(describe_settings(SETTINGS, settings))


def _print_settings(name: str, settings: cassq.QueueSettings) -> None:
    print_json({"queue": name, "settings": settings.to_json()})
