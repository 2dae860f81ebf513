"""What every command shares: the URL, `--json`, `--debug`, and the way to a store or a queue.

Owns the options that all commands take, in front of the command's name or behind it. What must not break:
a store that was opened is closed, however the command ends.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

import click

import cassq
from cassq.cli.signals import Ending

F = TypeVar("F", bound=Callable[..., Any])

#: The options by which a command runs until it is told to end.
ENDLESS = "follow", "watch"

EXAMPLES = "sqlite:///orders.db or cassandra://HOST,HOST/KEYSPACE?zookeeper=HOST,HOST"


@dataclass(slots=True)
class Session:
    """One run of the command line.

    Attributes:
        has_log: whether the command has begun a log of its own.
    """

    url: str | None = None
    is_json: bool = False
    is_debug: bool = False
    has_log: bool = False
    ending: Ending = field(default_factory=Ending)

    def require_url(self) -> str:
        """Return the URL.

        Raises: InvalidOptionError: none was given.
        """
        if not self.url:
            raise cassq.InvalidOptionError(f"no store is named: use --url URL or CASSQ_URL, with {EXAMPLES}")
        return self.url

    @contextmanager
    def store(self) -> Iterator[cassq.Store]:
        """Open the store that the URL names, and close it after the block."""
        if self.is_debug and not self.has_log:
            logging.basicConfig(level=logging.INFO, force=True)
        with cassq.connect(self.require_url()) as store:
            yield store

    @contextmanager
    def queue(self, name: str) -> Iterator[cassq.Queue]:
        """Open a queue that exists, and close its store after the block."""
        with self.store() as store:
            yield find_queue(store, name)

    def confirm(self, question: str, *, is_sure: bool) -> None:
        """Ask on the terminal before something is removed, unless `--yes` was given.

        Raises:
            InvalidOptionError: nobody can be asked.
            click.Abort: the answer was no.
        """
        if is_sure:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise cassq.InvalidOptionError(f"{question} Add --yes: there is no terminal to ask on")
        click.confirm(question, abort=True, err=True)


def find_queue(store: cassq.Store, name: str) -> cassq.Queue:
    """Open a queue that exists; where there is none, say how to make it."""
    try:
        return store.find_queue(name)
    except cassq.QueueNotFoundError as error:
        raise cassq.QueueNotFoundError(f"{error}; `cassq queue create {name}` makes it") from error


def pass_session(command: Callable[..., None]) -> Callable[..., None]:
    """Hand the session to a command, whose signals mean something from here on."""

    @wraps(command)
    def begun(session: Session, *arguments: object, **options: object) -> None:
        session.ending.begin(is_endless=any(options.get(name) not in {None, False} for name in ENDLESS))
        command(session, *arguments, **options)

    return click.make_pass_decorator(Session)(begun)


def common_options(command: F) -> F:
    """Add the options that all commands take."""
    for name, attribute, help_text in (
        ("--debug", "is_debug", "Show tracebacks and logs."),
        ("--json", "is_json", "Print JSON."),
    ):
        command = click.option(
            name, is_flag=True, expose_value=False, callback=_note(attribute), help=help_text
        )(command)
    return click.option(
        "--url", metavar="URL", expose_value=False, callback=_note("url"), help="The store; else CASSQ_URL."
    )(command)


def _note(name: str) -> Callable[[click.Context, click.Parameter, object], None]:
    def note(context: click.Context, _parameter: click.Parameter, value: object) -> None:
        if value:
            setattr(context.find_object(Session), name, value)

    return note
