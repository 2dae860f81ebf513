"""`--log-format`: in what form a command that stays says what happens.

Owns that with `json` every line on stderr is JSON: its own words, and what the library logs.
"""

import logging
from collections.abc import Callable

import click

from cassq.cli.output import say
from cassq.cli.session import Session
from cassq.logs import JsonFormatter

log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Of what it says on stderr (text).",
)


def begin_log(session: Session, log_format: str) -> Callable[[str], None]:
    """Begin to log in that form; return what says words in it."""
    if log_format == "text":
        return say
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    session.has_log = True
    level = logging.INFO if session.is_debug else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler], force=True)
    words = logging.getLogger("cassq.cli")
    words.setLevel(logging.INFO)
    return lambda told: words.info("%s", told.removeprefix("cassq: "))
