"""`cassq push`: files, lines or stdin into a queue.

Owns cutting the input into messages. What must not break: an id is printed only when its message is
durable, in the order of the input; after a failure the ids of everything that was pushed are printed.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from queue import Empty
from typing import BinaryIO, Protocol, TypedDict, TypeVar, Unpack

import click

import cassq
from cassq.cli.exit_codes import NO_INPUT
from cassq.cli.output import Bar, count_of, print_json, progress_bar, say
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.values import to_duration, to_header, to_time
from cassq.model.options import PushOptions
from cassq.runtime.clock import DEAF_S
from cassq.runtime.signal_queue import SignalQueue

Place = TypeVar("Place")
Printed_contra = TypeVar("Printed_contra", contravariant=True)


class Printer(Protocol[Printed_contra]):
    """Prints where messages are, once they are durable.

    Attributes:
        done: what happened to the messages, in one word.
        count: how many were printed.
    """

    done: str
    count: int

    def note(self, place: Printed_contra) -> None:
        """Print one."""
        ...

    def close(self) -> None:
        """Hear that there are no more."""
        ...


class NoInputError(cassq.CassqError):
    """Raised when a file to push cannot be read."""

    code = "no-input"
    exit_code = NO_INPUT


class _Options(TypedDict):
    headers: tuple[tuple[str, str], ...]
    ttl: timedelta | None
    priority: int
    type: str | None
    delay: timedelta | None
    due: datetime | None
    key: str | None
    may_be_empty: bool
    quiet: bool


@click.command()
@click.argument("queue")
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
@click.option(
    "--ttl",
    type=to_duration,
    metavar="DURATION",
    help="How long each may wait, if not as the queue says.",
)
@click.option(
    "--priority", type=int, metavar="0..9", default=0, help="Consumers get the higher first.  [default: 0]"
)
@click.option("--type", metavar="NAME", help="Consumers may ask for messages of some types.")
@click.option("--key", metavar="KEY", help="Of all with this key one is out at a time, of one call in order.")
@click.option("--delay", type=to_duration, metavar="DURATION", help="Consumers get each after so long.")
@click.option("--due", type=to_time, metavar="TIME", help="Or from then on: in ISO 8601, with a time zone.")
@click.option("--allow-empty", "may_be_empty", is_flag=True, help="Accept input without a single byte.")
@click.option("-q", "--quiet", is_flag=True, help="Print the number of messages, not their ids.")
@common_options
@pass_session
def push(
    session: Session, queue: str, files: tuple[str, ...], *, lines: bool, **options: Unpack[_Options]
) -> None:
    """Push each FILE, or standard input, as one message; prints the ids once they are durable.

    Input without a single byte is refused, because it mostly is a slip: --allow-empty pushes an empty message
    of it, or with --lines none.
    """
    with (
        session.queue(queue) as opened,
        progress_bar("pushing", len(files) if files and not lines else None) as bar,
    ):
        bytes_max, may_be_empty = opened.settings.body_bytes_max, options["may_be_empty"]
        bodies = read_bodies(files, bytes_max, is_lines=lines, may_be_empty=may_be_empty)
        printer = _Printer(bar, is_json=session.is_json, is_quiet=options["quiet"])
        label: PushOptions = {
            "ttl": options["ttl"],
            "priority": options["priority"],
            "type": options["type"],
            "delay": options["delay"],
            "due": options["due"],
            "key": options["key"],
        }
        push_soon = partial(opened.push_soon, headers=dict(options["headers"]), **label)
        push_all(push_soon, bodies, printer)


class _Printer:
    """Prints what was pushed, and counts it."""

    done = "pushed"

    def __init__(self, bar: Bar, *, is_json: bool, is_quiet: bool) -> None:
        self._bar = bar
        self._is_json = is_json
        self._is_quiet = is_quiet
        self.count = 0

    def note(self, message_id: cassq.MessageId) -> None:
        """Print an id."""
        self.count += 1
        self._bar.update(1)
        if self._is_quiet:
            return
        if self._is_json:
            print_json({"id": str(message_id)})
        else:
            click.echo(str(message_id))

    def close(self) -> None:
        """Print the number."""
        if self._is_quiet and self._is_json:
            print_json({"pushed": self.count})
        elif self._is_quiet:
            click.echo(self.count)


def push_all(
    push_soon: Callable[[bytes], Future[Place]], bodies: Iterator[bytes], printer: Printer[Place]
) -> None:
    """Push all bodies; have each printed once it is durable, in the order of the input."""
    # The input is read in a thread of its own: a slow input then never keeps an id from being printed.
    flying: SignalQueue[Future[Place] | None] = SignalQueue()
    stop = threading.Event()
    threading.Thread(
        target=_feed, args=(push_soon, bodies, flying, stop), name="cassq-input", daemon=True
    ).start()
    failed: BaseException | None = None
    while (future := _next_of(flying)) is not None:
        try:
            printer.note(future.result())
        except cassq.CassqError as error:
            stop.set()
            failed = failed or error
    printer.close()
    if failed:
        if printer.count:
            say(f"cassq: {printer.done} {count_of(printer.count, 'message')}, and then failed:")
        raise failed


def _next_of(flying: "SignalQueue[Future[Place] | None]") -> "Future[Place] | None":
    # Not for ever at once: a signal may come just before the wait, and is heard after it.
    while True:
        with suppress(Empty):
            return flying.get(timeout=DEAF_S)


def _feed(
    push_soon: Callable[[bytes], Future[Place]],
    bodies: Iterator[bytes],
    flying: "SignalQueue[Future[Place] | None]",
    stop: threading.Event,
) -> None:
    try:
        for body in bodies:
            if stop.is_set():
                break
            flying.put(push_soon(body))
    except BaseException as error:
        future: Future[Place] = Future()
        future.set_exception(error)
        flying.put(future)
    finally:
        flying.put(None)


def read_bodies(
    files: Sequence[str], bytes_max: int, *, is_lines: bool, may_be_empty: bool, owner: str = "queue"
) -> Iterator[bytes]:
    """Yield what is pushed: each file, or standard input, or each line of those.

    Args:
        owner: what takes them, for what is said of one that is too large.
    """
    for name in files or ("-",):
        with _opened(name) as file:
            if is_lines:
                yield from _lines(name, file, bytes_max, owner, may_be_empty=may_be_empty)
            else:
                body = _check_size(name, file.read(bytes_max + 1), bytes_max, owner)
                _check_not_empty(name, body, may_be_empty=may_be_empty)
                yield body


def _lines(name: str, file: BinaryIO, bytes_max: int, owner: str, *, may_be_empty: bool) -> Iterator[bytes]:
    line = file.readline(bytes_max + 2)
    _check_not_empty(name, line, may_be_empty=may_be_empty)
    while line:
        yield _check_size(f"a line of {name}", line.removesuffix(b"\n"), bytes_max, owner)
        line = file.readline(bytes_max + 2)


def _check_not_empty(name: str, begin: bytes, *, may_be_empty: bool) -> None:
    if not begin and not may_be_empty:
        what = "standard input" if name == "-" else repr(name)
        raise cassq.InvalidOptionError(f"{what} is empty: --allow-empty accepts that")


def _check_size(what: str, body: bytes, bytes_max: int, owner: str) -> bytes:
    # No more than one byte too many is read: the library could tell the size of what was read only.
    if len(body) > bytes_max:
        raise cassq.BodyTooLargeError(
            f"{what} is larger than the {bytes_max} bytes that the {owner} takes (body_bytes_max): "
            "store large content elsewhere and push a reference to it"
        )
    return body


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    is_stdin = name == "-"
    if is_stdin and sys.stdin.isatty():
        say("reading the message from the terminal; Ctrl-D ends it")
    try:
        # Not sys.stdin: its lock would be held by the reading thread when the interpreter ends.
        with open(0, "rb", closefd=False) if is_stdin else Path(name).open("rb") as file:
            yield file
    except OSError as error:
        what = "standard input" if is_stdin else repr(name)
        raise NoInputError(f"cannot read {what}: {error.strerror or error}") from error
