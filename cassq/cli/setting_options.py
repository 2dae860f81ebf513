"""The options that stand for settings, of a queue or of a topic: one for each, made from the settings.

Owns how a setting is named, shown and told. What a setting may be is the library's to check.
"""

from collections.abc import Callable, Sequence
from dataclasses import Field
from datetime import timedelta
from typing import Any

import click

from cassq.cli.output import say
from cassq.cli.values import to_bytes, to_duration
from cassq.model.stored_settings import StoredSettings, tell_setting

Settings = Sequence[Field[Any]]


def setting_options(known: Settings, *, is_new: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what adds an option for every setting.

    Args:
        known: the settings.
        is_new: what they belong to is about to be created, so what is not named gets its default.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for setting in reversed(known):
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


def settings_named(settings: dict[str, object]) -> dict[str, object]:
    """Return the settings that were named."""
    return {setting: value for setting, value in settings.items() if value is not None}


def describe_settings(known: Settings, settings: StoredSettings) -> list[dict[str, object]]:
    """Return a row for each setting, for people."""
    return [
        {
            "setting": setting.name,
            "value": _tell(getattr(settings, setting.name)),
            "default": _tell(setting.default),
            "can be altered": "no" if setting.metadata["is_fixed"] else "yes",
            "meaning": setting.metadata["meaning"],
        }
        for setting in known
    ]


def say_altered(what: str, named: dict[str, object], before: StoredSettings, after: StoredSettings) -> None:
    """Say which values the settings that were named have now, and which they had."""
    for setting in named:
        old, new = (_tell(getattr(settings, setting)) for settings in (before, after))
        say(f"{what}: {setting} is {new}" + (f", and was {old}" if old != new else " already"))


def _kind(setting: Field[Any]) -> tuple[Any, str | None]:
    """Return what parses a value of a setting, and what stands for it in the help."""
    if choices := setting.metadata.get("choices"):
        return click.Choice(choices), None
    if isinstance(setting.default, timedelta):
        return to_duration, "DURATION"
    return to_bytes if "_bytes" in setting.name else click.INT, "NUMBER"


def _tell(value: object) -> str:
    """Return a value as an option takes it: words without quotes."""
    return value if isinstance(value, str) else tell_setting(value)
