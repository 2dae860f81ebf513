"""`cassq push`: files, lines or stdin into a queue.

Owns cutting the input into messages. What must not break: an id is printed only when its message is
durable, in the order of the input; after a failure the ids of everything that was pushed are printed.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import click

import cassq
from cassq.cli.exit_codes import NO_INPUT
from cassq.cli.output import Bar, count_of, print_json, progress_bar, say
from cassq.cli.session import Session, common_options, pass_session
from cassq.cli.values import to_header

Pushed = Future[cassq.MessageId]


class NoInputError(cassq.CassqError):
    """Raised when a file to push cannot be read."""

    code = "no-input"
    exit_code = NO_INPUT


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
@click.option("-q", "--quiet", is_flag=True, help="Print the number of messages, not their ids.")
@common_options
@pass_session
def push(  # noqa: PLR0913 - one for each option
    session: Session,
    queue: str,
    files: tuple[str, ...],
    headers: tuple[tuple[str, str], ...],
    *,
    lines: bool,
    quiet: bool,
) -> None:
    """Push each FILE, or standard input, as one message; prints the ids once they are durable."""
    with (
        session.queue(queue) as opened,
        progress_bar("pushing", len(files) if files and not lines else None) as bar,
    ):
        bodies = _bodies(files, opened.settings.body_bytes_max, is_lines=lines)
        printer = _Printer(bar, is_json=session.is_json, is_quiet=quiet)
        _push_all(opened, bodies, dict(headers), printer)


class _Printer:
    """Prints what was pushed, and counts it."""

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


def _push_all(
    queue: cassq.Queue, bodies: Iterator[bytes], headers: dict[str, str], printer: _Printer
) -> None:
    # The input is read in a thread of its own: a slow input then never keeps an id from being printed.
    flying: SimpleQueue[Pushed | None] = SimpleQueue()
    stop = threading.Event()
    threading.Thread(
        target=_feed, args=(queue, bodies, headers, flying, stop), name="cassq-input", daemon=True
    ).start()
    failed: BaseException | None = None
    while (future := flying.get()) is not None:
        try:
            printer.note(future.result())
        except cassq.CassqError as error:
            stop.set()
            failed = failed or error
    printer.close()
    if failed:
        if printer.count:
            say(f"cassq: pushed {count_of(printer.count, 'message')}, and then failed:")
        raise failed


def _feed(
    queue: cassq.Queue,
    bodies: Iterator[bytes],
    headers: dict[str, str],
    flying: "SimpleQueue[Pushed | None]",
    stop: threading.Event,
) -> None:
    try:
        for body in bodies:
            if stop.is_set():
                break
            flying.put(queue.push_soon(body, headers))
    except BaseException as error:
        future: Pushed = Future()
        future.set_exception(error)
        flying.put(future)
    finally:
        flying.put(None)


def _bodies(files: Sequence[str], bytes_max: int, *, is_lines: bool) -> Iterator[bytes]:
    for name in files or ("-",):
        with _opened(name) as file:
            if is_lines:
                yield from _lines(name, file, bytes_max)
            else:
                yield _check_size(name, file.read(bytes_max + 1), bytes_max)


def _lines(name: str, file: BinaryIO, bytes_max: int) -> Iterator[bytes]:
    while line := file.readline(bytes_max + 2):
        yield _check_size(f"a line of {name}", line.removesuffix(b"\n"), bytes_max)


def _check_size(what: str, body: bytes, bytes_max: int) -> bytes:
    # No more than one byte too many is read: the library could tell the size of what was read only.
    if len(body) > bytes_max:
        raise cassq.BodyTooLargeError(
            f"{what} is larger than the {bytes_max} bytes that the queue takes (body_bytes_max): "
            "store large content elsewhere and push a reference to it"
        )
    return body


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        if sys.stdin.isatty():
            say("reading the message from the terminal; Ctrl-D ends it")
        # Not sys.stdin: its lock would be held by the reading thread when the interpreter ends.
        with open(0, "rb", closefd=False) as file:
            yield file
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as error:
        raise NoInputError(f"cannot read {name!r}: {error.strerror or error}") from error
