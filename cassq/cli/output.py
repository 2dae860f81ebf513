"""Data on stdout, words on stderr.

Owns how things are printed. What must not break: what counts as written was taken by the operating system,
message by message, so that a reader who went away never costs a message.
"""

import json
import os
import select
import stat
import sys
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import Any, Protocol, TextIO

import click
from tqdm import tqdm

from cassq import DeadMessage, Delivery, Message
from cassq.runtime.clock import SystemClock


def replace_closed_streams() -> None:
    """Put something in the place of standard streams that this process was started without.

    Else the next file that is opened gets the number of one. What is read from them or printed to stdout
    fails, as it would have; words on stderr go nowhere.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # the lowest number that is free: this one
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def say(words: str) -> None:
    """Print words for people, on stderr; where that cannot be written they go nowhere."""
    try:
        click.echo(words, err=True)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Let what is left in the buffer of a standard stream go nowhere: it must not fail once more at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def count_of(count: int, what: str) -> str:
    """Return a number of things in words: 1 message, 2 messages."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_figures(figures: Mapping[str, object]) -> None:
    """Print names and values, one a line."""
    width = max(map(len, figures))
    for name, value in figures.items():
        click.echo(f"{name:<{width}}  {_tell(value)}")


def print_table(rows: Sequence[Mapping[str, object]], optional: Collection[str] = ()) -> None:
    """Print rows under the names of their columns; nothing where there are none.

    Args:
        optional: columns that are left out where no row has a value.
    """
    if not rows:
        return
    names = [name for name in rows[0] if name not in optional or any(row[name] is not None for row in rows)]
    texts = [names, *([_tell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        cells = (f"{cell:<{width}}" for cell, width in zip(text, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def to_json(message: Message | Delivery) -> dict[str, Any]:
    """Return a message as JSON values; a body that is not UTF-8 in base64."""
    told: dict[str, Any] = {
        "id": str(message.message_id),
        **body_to_json(message.body),
        "headers": dict(message.headers),
        "pushed_at": message.pushed_at.isoformat(),
        "priority": message.priority,
        "type": message.type,
        "key": message.key,
    }
    if isinstance(message, Delivery):
        told["attempt"] = message.attempt
    if isinstance(message, DeadMessage):
        told |= {
            "attempts": message.attempts,
            "reason": message.reason,
            "died_at": message.died_at.isoformat(),
        }
    return told


def body_to_json(body: bytes) -> dict[str, str]:
    """Return a body as a JSON value, and how that is to be read."""
    try:
        return {"body": body.decode("utf-8"), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body": b64encode(body).decode("ascii"), "encoding": "base64"}


def to_line(message: Message | Delivery, *, is_json: bool) -> bytes:
    """Return what is printed of a message: JSON, or the bare body; with a newline."""
    if is_json:
        return json.dumps(to_json(message), ensure_ascii=False).encode() + b"\n"
    return message.body + b"\n"


class MessageWriter:
    """Writes messages to stdout, as fast as it takes them, and knows which of them were written out.

    A pipe gets parts that it takes whole or not at all, and messages that fit into one are not cut: no reader
    of a pipe, however slow or stuck, holds the caller up or gets half of a small message. A terminal that is
    stopped, and a socket, may hold it up.

    Attributes:
        trouble: why nothing more can be written: `BrokenPipeError` when the reader closed the pipe.
    """

    def __init__(self, lines: Sequence[bytes]) -> None:
        sys.stdout.flush()
        self._target = sys.stdout.fileno()
        self._data = memoryview(b"".join(lines))
        self._ends = list(accumulate(map(len, lines)))
        is_file = stat.S_ISREG(os.fstat(self._target).st_mode)
        self._part_max = max(1, len(self._data)) if is_file else select.PIPE_BUF
        self._out = 0
        self.trouble: OSError | None = None

    @property
    def is_done(self) -> bool:
        """Whether all is written, or nothing more can be."""
        return self._out == len(self._data) or self.trouble is not None

    @property
    def written(self) -> int:
        """How many messages were written out whole."""
        return bisect_right(self._ends, self._out)

    @property
    def begun(self) -> int:
        """How many messages were written out whole or in part."""
        written = self.written
        is_cut = self._out > (self._ends[written - 1] if written else 0)
        return written + is_cut

    def go_on(self, seconds: float | None = None) -> bool:
        """Write for so long at most, without a limit for None; False when the target is full at the end."""
        clock = SystemClock()
        until = None if seconds is None else clock.now() + seconds
        while not self.is_done:
            left = None if until is None else max(0.0, until - clock.now())
            if not select.select([], [self._target], [], left)[1]:
                return False
            try:
                self._out += os.write(self._target, self._part())
            except BlockingIOError:
                pass  # others filled it meanwhile
            except OSError as error:
                self.trouble = error
            if until is not None and clock.now() >= until:
                break
        return True

    def _part(self) -> memoryview:
        end = self._out + self._part_max
        whole = bisect_right(self._ends, end)
        last = self._ends[whole - 1] if whole else 0
        return self._data[self._out : last if last > self._out else end]


class Bar(Protocol):
    """A progress bar, or nothing in its place."""

    def update(self, count: int) -> object:
        """Move on by `count`."""
        ...


class _NoBar:
    def update(self, count: int) -> None:
        pass


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[Bar]:
    """Show a progress bar on stderr while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield _NoBar()
        return
    with tqdm(total=total, desc=what, unit=" messages", file=sys.stderr, leave=False) as bar:
        yield bar


def _tell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
