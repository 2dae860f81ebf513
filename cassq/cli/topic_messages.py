"""`cassq topic read`, `follow` and `consume`: messages of a topic to stdout.

Owns the order of printing and ending. What must not break: a message is done for its group only after the
operating system took all of it; one that was cut comes again.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

import click

import cassq
from cassq.cli.bench.arrivals import TICK_S
from cassq.cli.opened_topic import opened_topic, partition_in, start_in
from cassq.cli.output import MessageWriter, body_to_json, print_json, say
from cassq.cli.session import Session, common_options
from cassq.cli.signals import Wish
from cassq.cli.values import to_duration, to_start
from cassq.runtime.clock import SystemClock
from cassq.topics.topic_reader import Start

Kind = TypeVar("Kind", cassq.TopicMessage, cassq.GroupMessage)

Order = Literal["ascending", "descending"]

#: Messages that are taken and printed together.
CHUNK = 200


class PageOptions(TypedDict):
    """What `cassq topic read` is asked for."""

    since: int | None
    limit: int
    order: Order


class ArrivingOptions(TypedDict):
    """Which messages a command prints as they come, and how many."""

    types: tuple[str, ...]
    count: int | None
    timeout: timedelta | None
    skip_gone: bool


START = "earliest, latest, a time in ISO 8601 with its zone, OFFSET, or PARTITION:OFFSET[,…]."


@click.command()
@click.argument("name")
@click.option("--partition", type=int, metavar="N", help="From 0 on; needed where there are several.")
@click.option("--since", type=int, metavar="OFFSET", help="Where to begin.  [default: the oldest, or newest]")
@click.option("--limit", type=int, default=100, show_default=True, help="At most so many.")
@click.option("--order", type=click.Choice(["ascending", "descending"]), default="ascending")
@common_options
@click.make_pass_decorator(Session)
def read(session: Session, name: str, partition: int | None, **options: Unpack[PageOptions]) -> None:
    """Print messages of one partition, once; bare bodies, each with a newline.

    --json prints one document: the messages, where to read on (next), the oldest offset that is left, and
    the one that the next message gets (latest).
    """
    session.ending.begin(is_endless=False)
    with opened_topic(session, name) as topic:
        chosen = partition_in(topic, partition)
        page = topic.read(chosen, **options)
    if session.is_json:
        messages = [message_to_json(each) for each in page.messages]
        print_json({"topic": name, "partition": chosen, **page._asdict(), "messages": messages})
        return
    _print([to_line(each, is_json=False) for each in page.messages], Wish(), lambda _: None)
    if page.next is not None:
        say(f"cassq: there are more: --since {page.next}")
    if not page.messages:
        has = (
            f"has the offsets {page.oldest} to {page.latest - 1}" if page.oldest < page.latest else "is empty"
        )
        say(f"cassq: no message; partition {chosen} {has}")


def on_gone(*, is_skipping: bool) -> Literal["oldest", "error"]:
    """Return what `--skip-gone` means to the library."""
    return "oldest" if is_skipping else "error"


def _arriving_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--timeout", type=to_duration, metavar="DURATION", help="End when none comes for so long."
        ),
        click.option(
            "--skip-gone", is_flag=True, help="Go on at the oldest message where retention was faster."
        ),
        click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many."),
        click.option(
            "--type", "types", metavar="PATTERN", multiple=True, help="As 'order.*'; may be repeated."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("name")
@click.option(
    "--start", type=to_start, metavar="PLACE", default="earliest", show_default=True, help=f"Begin at {START}"
)
@_arriving_options
@common_options
@click.make_pass_decorator(Session)
def follow(session: Session, name: str, start: Start | int, **options: Unpack[ArrivingOptions]) -> None:
    """Print messages as they come, until Ctrl-C; bare bodies, or one line of JSON each.

    Stores nothing: the next call begins at --start, too. `cassq topic consume` goes on where its group was.
    """
    types, gone = options["types"] or None, on_gone(is_skipping=options["skip_gone"])
    count, timeout = options["count"], options["timeout"]
    session.ending.begin(is_endless=count is None and timeout is None)
    with (
        opened_topic(session, name) as topic,
        topic.reader(start_in(topic, start), types=types, on_gone=gone) as reader,
        session.ending.politely() as wish,
    ):
        arrivals = _Arrivals(reader.read_many, wish, timeout)
        for found in arrivals.lots(count):
            _print([to_line(each, is_json=session.is_json) for each in found], wish, lambda _: None)


@click.command()
@click.argument("name")
@click.argument("group")
@click.option(
    "--start",
    type=to_start,
    metavar="PLACE",
    default="earliest",
    show_default=True,
    help=f"A group that is new begins at {START}",
)
@_arriving_options
@common_options
@click.make_pass_decorator(Session)
def consume(
    session: Session, name: str, group: str, start: Start | int, **options: Unpack[ArrivingOptions]
) -> None:
    """Print messages as a member of GROUP, until Ctrl-C; bare bodies, or one line of JSON each.

    The members of a group share the partitions. A message is done once it is written out: in a file, or in
    the pipe to the next program. What was printed and not committed when the command was killed comes again.
    """
    types, gone = options["types"] or None, on_gone(is_skipping=options["skip_gone"])
    count, timeout = options["count"], options["timeout"]
    session.ending.begin(is_endless=count is None and timeout is None)
    with (
        opened_topic(session, name) as topic,
        session.ending.politely() as wish,
        topic.consumer(group, start=start_in(topic, start), types=types, on_gone=gone) as consumer,
    ):
        arrivals = _Arrivals(consumer.poll, wish, timeout)
        try:
            for found in arrivals.lots(count):
                lines = [to_line(each, is_json=session.is_json) for each in found]
                _print(lines, wish, _Ending(found).note)
        except cassq.OffsetGoneError as error:
            way_out = (
                f"{error}; `cassq topic reset {name} {group} --to earliest` does so for the group, and "
                "--skip-gone for this member"
            )
            raise cassq.OffsetGoneError(way_out, error.partition, error.wanted, error.oldest) from error
        finally:
            consumer.commit()


@dataclass(frozen=True, slots=True)
class _Arrivals(Generic[Kind]):
    """The messages that a command gets, one lot after the other.

    Attributes:
        take: returns up to so many, and waits for so many seconds.
        patience: how long to wait for the next; None waits for ever, and through outages.
    """

    take: Callable[[int, float], Sequence[Kind]]
    wish: Wish
    patience: timedelta | None

    def lots(self, count: int | None) -> Iterator[Sequence[Kind]]:
        """Yield lots, until there were so many messages, or none came in time, or a signal did."""
        wanted = left = float("inf") if count is None else count
        while left > 0 and (found := self._next(int(min(left, CHUNK)))):
            yield found
            left -= len(found)
        if left == wanted and self.patience is not None and not self.wish:
            say(f"cassq: no message came within {self.patience.total_seconds():g} s")

    def _next(self, count: int) -> Sequence[Kind]:
        told = ""
        clock = SystemClock()
        until = float("inf") if self.patience is None else clock.now() + self.patience.total_seconds()
        while not self.wish:
            try:
                found = self.take(count, min(TICK_S, max(0.0, until - clock.now())))
            except cassq.UnavailableError as error:
                if clock.now() >= until:
                    raise
                if self.patience is None and str(error) != told:
                    told = str(error)
                    say(f"cassq: {told}")
            else:
                if found or clock.now() >= until:
                    return found
        return []


class _Ending:
    """Says of each message that it is done, once it is written out."""

    def __init__(self, messages: Sequence[cassq.GroupMessage]) -> None:
        self._messages = messages
        self._done = 0
        self._told = ""

    def note(self, written: int) -> None:
        """Hear how many were written out whole."""
        for message in self._messages[self._done : written]:
            try:
                message.done()
            except cassq.PartitionLostError as error:
                if str(error) != self._told:  # others of the partition are told the same
                    self._told = str(error)
                    say(f"cassq: {error}")
        self._done = written


def _print(lines: Sequence[bytes], wish: Wish, note: Callable[[int], None]) -> None:
    """Write lines to stdout; tell again and again how many were written out whole."""
    writer = MessageWriter(lines)
    try:
        while not writer.is_done and (writer.go_on(TICK_S) or not wish):
            note(writer.written)
    finally:
        note(writer.written)
    if writer.trouble:
        raise writer.trouble


def message_to_json(message: cassq.TopicMessage | cassq.GroupMessage) -> dict[str, Any]:
    """Return a message as JSON values; a body that is not UTF-8 in base64."""
    return {
        "partition": message.partition,
        "offset": message.offset,
        **body_to_json(message.body),
        "headers": dict(message.headers),
        "published_at": message.published_at.isoformat(),
        "type": message.type,
        "key": message.key,
    }


def to_line(message: cassq.TopicMessage | cassq.GroupMessage, *, is_json: bool) -> bytes:
    """Return what is printed of a message: JSON, or the bare body; with a newline."""
    if is_json:
        return json.dumps(message_to_json(message), ensure_ascii=False).encode() + b"\n"
    return message.body + b"\n"
