"""`cassq queue create`, `alter` and `show`: the settings of a queue.

Owns nothing but words; what a setting may be is in `cassq.QueueSettings`, and the options are made from it.
"""

from collections.abc import Callable
from dataclasses import Field
from datetime import timedelta
from typing import Any, cast

import click

import cassq
from cassq.cli.output import print_json, print_table, say
from cassq.cli.session import Session, common_options, find_queue, pass_session
from cassq.cli.values import to_bytes, to_duration
from cassq.model.options import AlterOptions, QueueOptions
from cassq.model.settings import settings_known, tell_setting

SETTINGS = settings_known()


def setting_options(*, is_new: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what adds an option for every setting.

    Args:
        is_new: the queue is about to be created, so what is not named gets its default.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for setting in reversed(SETTINGS):
            kind, metavar = _kind(setting)
            shown = f"  [default: {_tell(setting.default)}]" if is_new else ""
            if not is_new and setting.metadata["is_fixed"]:
                shown = "  [cannot be altered]"
            command = click.option(
                f"--{setting.name.replace('_', '-')}",
                setting.name,
                type=kind,
                metavar=metavar,
                help=f"{setting.metadata['meaning']}{shown}",
            )(command)
        return command

    return add


def _kind(setting: Field[Any]) -> tuple[Any, str | None]:
    """Return what parses a value of a setting, and what stands for it in the help."""
    if choices := setting.metadata.get("choices"):
        return click.Choice(choices), None
    if isinstance(setting.default, timedelta):
        return to_duration, "DURATION"
    return to_bytes if "_bytes_" in setting.name else click.INT, "NUMBER"


def _tell(value: object) -> str:
    """Return a value as an option takes it: words without quotes."""
    return value if isinstance(value, str) else tell_setting(value)


@click.command()
@click.argument("name")
@setting_options(is_new=True)
@common_options
@pass_session
def create(session: Session, /, name: str, **settings: object) -> None:
    """Create a queue; fine if it is there already with the settings that are named."""
    with session.store() as store:
        queue = store.queue(name, **cast(QueueOptions, _named(settings)))
        if session.is_json:
            _print_settings(name, queue.settings)
        else:
            say(f"queue {queue.name} stands in {store.url}")


@click.command()
@click.argument("name")
@setting_options(is_new=False)
@common_options
@pass_session
def alter(session: Session, /, name: str, **settings: object) -> None:
    """Give a queue other settings while it is in use; those that are not named stay."""
    named = _named(settings)
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
    for setting in named:
        old, new = (_tell(getattr(settings, setting)) for settings in (before, after))
        say(f"queue {name}: {setting} is {new}" + (f", and was {old}" if old != new else " already"))


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
    print_table(
        [
            {
                "setting": setting.name,
                "value": _tell(getattr(settings, setting.name)),
                "default": _tell(setting.default),
                "can be altered": "no" if setting.metadata["is_fixed"] else "yes",
                "meaning": setting.metadata["meaning"],
            }
            for setting in SETTINGS
        ]
    )


def _print_settings(name: str, settings: cassq.QueueSettings) -> None:
    print_json({"queue": name, "settings": settings.to_json()})


def _named(settings: dict[str, object]) -> dict[str, object]:
    return {setting: value for setting, value in settings.items() if value is not None}
