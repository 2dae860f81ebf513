"""`cassq topic publish`: files, lines or stdin into a topic.

Owns how messages are numbered. What must not break: the place of a message is printed only when it is
durable; of a writer's messages none is published before the one in front of it stands.
"""

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import TypedDict, Unpack

import click

import cassq
from cassq.cli.opened_topic import opened_topic
from cassq.cli.output import Bar, count_of, print_json, progress_bar, say
from cassq.cli.push import push_all, read_bodies
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.values import to_header
from cassq.model.topic import KEY_HEADER, TYPE_HEADER


class _Options(TypedDict):
    headers: tuple[tuple[str, str], ...]
    key: str | None
    type: str | None
    partition: int | None
    writer: str | None
    number: int | None
    may_be_empty: bool
    quiet: bool


@click.command()
@click.argument("name")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--lines", is_flag=True, help="Every line is a message, instead of every file.")
@click.option(
    "--header",
    "headers",
    type=to_header,
    metavar="NAME=VALUE",
    multiple=True,
    help="For every message; may be repeated.",
)
@click.option("--key", metavar="KEY", help="All with this key are in one partition, in order.")
@click.option("--type", metavar="NAME", help="Readers and groups may ask for some types.")
@click.option("--partition", type=int, metavar="N", help="Into this partition, from 0 on.")
@click.option("--writer", metavar="NAME", help="Who numbers the messages; only with --number.")
@click.option(
    "--number",
    type=int,
    metavar="N",
    help="Of the first message; the others count on. A number that WRITER has used publishes nothing.",
)
@click.option("--allow-empty", "may_be_empty", is_flag=True, help="Accept input without a single byte.")
@click.option("-q", "--quiet", is_flag=True, help="Print the number of messages, not their places.")
@common_options
@pass_session
def publish(
    session: Session, name: str, files: tuple[str, ...], *, lines: bool, **options: Unpack[_Options]
) -> None:
    """Publish each FILE, or standard input, as one message; prints PARTITION:OFFSET once they are durable.

    With --writer and --number the same call may be repeated after a failure: what is published already is not
    published again.
    """
    headers = _headers(options)
    with (
        opened_topic(session, name) as topic,
        progress_bar("publishing", len(files) if files and not lines else None) as bar,
    ):
        bodies = read_bodies(
            files,
            topic.settings.body_bytes_max,
            is_lines=lines,
            may_be_empty=options["may_be_empty"],
            owner="topic",
        )
        printer = _Printer(bar, is_json=session.is_json, is_quiet=options["quiet"])
        push_all(_publishing(topic, headers, options), bodies, printer)


def _headers(options: _Options) -> dict[str, str]:
    headers = dict(options["headers"])
    for header, value in ((KEY_HEADER, options["key"]), (TYPE_HEADER, options["type"])):
        if value is not None and headers.setdefault(header, value) != value:
            raise click.UsageError(f"--{header} and --header {header}=… differ: leave one of them out")
    return headers


def _publishing(
    topic: cassq.Topic, headers: dict[str, str], options: _Options
) -> Callable[[bytes], "Future[cassq.Position]"]:
    partition, writer, number = options["partition"], options["writer"], options["number"]
    if writer is None or number is None:  # where one is missing, the topic says so
        return lambda body: topic.publish_soon(
            body, headers, partition=partition, writer=writer, number=number
        )
    numbers = count(number)

    def publish_next(body: bytes) -> "Future[cassq.Position]":
        # One by one: a number below one that was published is never published any more.
        place: Future[cassq.Position] = Future()
        place.set_result(
            topic.publish(body, headers, partition=partition, writer=writer, number=next(numbers))
        )
        return place

    return publish_next


class _Printer:
    """Prints where messages are, and counts them."""

    done = "published"

    def __init__(self, bar: Bar, *, is_json: bool, is_quiet: bool) -> None:
        self._bar = bar
        self._is_json = is_json
        self._is_quiet = is_quiet
        self._repeats = 0
        self.count = 0

    def note(self, place: cassq.Position) -> None:
        """Print a place."""
        self.count += 1
        self._repeats += place.is_repeat
        self._bar.update(1)
        if self._is_quiet:
            return
        if self._is_json:
            print_json(place._asdict())
        else:
            click.echo(str(place))

    def close(self) -> None:
        """Print the number, and say how many there were already."""
        if self._is_quiet and self._is_json:
            print_json({"published": self.count - self._repeats, "repeats": self._repeats})
        elif self._is_quiet:
            click.echo(self.count - self._repeats)
        if self._repeats:
            say(
                f"cassq: {count_of(self._repeats, 'message')} not published again: the number was used before"
            )
