"""What each process of the demo writes down: one file per process, one line per event.

Owns the files' form. What must not break: a line is appended whole before the process goes on, so that what
a killed process did up to its last line is known.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cassq.clock import SystemClock

#: begun: about to push. ready: may pop; `of` is the popper's name. pushed: `of` is the id, `what` the
#: body's SHA-256. popped: what arrived. committed: it returned. unsettled: a commit raised. holding: has
#: messages in hand and will never end them.
EVENTS = ("begun", "ready", "pushed", "popped", "committed", "unsettled", "holding")


@dataclass(frozen=True, slots=True)
class Event:
    """One line.

    Attributes:
        at: seconds on the machine's elapsed time, the same for all processes.
        of: the id of a message, or a name.
        what: SHA-256 of the body, where there is one.
        attempt: of a delivery.
    """

    kind: str
    at: float
    of: str = ""
    what: str = ""
    attempt: int = 0


class LedgerWriter:
    """Appends to one ledger."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._clock = SystemClock()

    def note(self, kind: str, lines: Sequence[tuple[str, str, int]] = (("", "", 0),)) -> None:
        """Append one line for each (of, what, attempt), in one write."""
        at = self._clock.now()
        text = "".join(json.dumps([kind, at, *line]) + "\n" for line in lines)
        os.write(self._file, text.encode())


class LedgerReader:
    """Reads a ledger while it grows.

    Attributes:
        events: all that was read so far.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.events: list[Event] = []

    def read_on(self) -> None:
        """Read the lines that came since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._offset += len(whole) + 1
            self.events += [Event(*json.loads(line)) for line in whole.splitlines()]

    def of_kind(self, kind: str) -> Iterator[Event]:
        """Yield the events of one kind."""
        return (event for event in self.events if event.kind == kind)
