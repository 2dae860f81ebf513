"""What happened, as each process wrote it down: the words, the lines, the files.

Owns the vocabulary of ledgers and their form: one file per process, one JSON list per line. It refuses to
judge; `cassq.verification.checker` does. What must not break: a line is in the file, whole, before the
process goes on, so that what a killed process did up to its last line is known.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from sys import intern

from cassq.errors import CorruptError
from cassq.runtime.clock import Clock, SystemClock

#: How far back at once the end of a torn ledger is looked for.
_LOOK_BACK_BYTES = 64 * 1024


class Kind(StrEnum):
    """What a line tells. An intention is noted before the call, an outcome only after it."""

    #: A push is about to begin.
    ATTEMPTED = "attempted"
    #: The push returned.
    ACKNOWLEDGED = "acknowledged"
    #: The push raised: it did not happen, and never will.
    REFUSED = "refused"
    #: The push raised: nobody knows.
    UNKNOWN_PUSH = "unknown-push"
    #: A pop returned the message.
    DELIVERED = "delivered"
    #: A commit is about to begin.
    COMMITTING = "committing"
    #: The commit returned.
    COMMITTED = "committed"
    #: The commit raised: the lease had ended, nothing was written, and nothing will be.
    EXPIRED = "expired"
    #: The commit raised: nobody knows.
    UNKNOWN_COMMIT = "unknown-commit"
    #: An extension returned: `until` is when the lease ends now.
    EXTENDED = "extended"
    #: A rollback is about to begin.
    ROLLING_BACK = "rolling-back"
    #: A reject returned, or a rollback after the last attempt: the message is a dead letter, or about to be.
    GIVEN_UP = "given-up"
    #: Somebody found the message among the dead letters.
    DEAD_LETTER = "dead-letter"
    #: A put_back of the letter is about to begin: `pipe` and `seq` are the letter's.
    PUTTING_BACK = "putting-back"
    #: It returned: the letter is gone, and its message was pushed anew, under an id of its own. Nothing tells
    #: so where it raised, or its process died.
    PUT_BACK = "put-back"
    #: A discard of the letter is about to begin.
    DISCARDING = "discarding"
    #: It returned: the letter is gone. Nothing tells so where it raised, or its process died.
    DISCARDED = "discarded"
    #: A purge is about to begin.
    PURGING = "purging"
    #: The purge returned: it ended `count` messages. Nothing tells so where it raised, or its process died.
    PURGED = "purged"
    #: A cancellation of the message is about to begin; `words` may say that a running one is meant.
    CANCELLING = "cancelling"
    #: It returned: the message is cancelled.
    CANCELLED = "cancelled"
    #: It returned: it came to nothing, and always will. Nothing tells so where it raised.
    NOT_CANCELLED = "not-cancelled"
    #: The popper is about to be closed, or left alone for seconds: what is in its buffer goes back. Or the
    #: future of a pop is about to be given back, with what it was given.
    CLOSING = "closing"
    #: The holder has messages in hand, and will neither end them nor pop again.
    HOLDING = "holding"
    #: The process that `who` names is dead. Noted by somebody else, once that is certain.
    DIED = "died"
    #: The process works.
    READY = "ready"
    #: The process has closed everything, in order.
    DONE = "done"
    #: A reaper made a pass.
    REAPED = "reaped"
    #: Something happened that should not; `words` tells what.
    TROUBLE = "trouble"


_KINDS = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened, to one message or to none.

    Attributes:
        at: seconds on the machine's elapsed clock, the same for all its processes.
        who: the process, or the consumer in it, that this happened to.
        message: what identifies the message in all ledgers: its id, or a body that is unique. One that was
            put back keeps its body, and is told from the others of that name by its place.
        attempt: which delivery, 1 at first.
        until: when the delivery's lease ends for its holder; 0 where nobody looked.
        pipe, seq: the message's place; empty and 0 where nobody looked.
        digest: of the body, where bodies are compared.
        words: for people.
        count: of messages that are not named.
    """

    at: float
    who: str
    kind: Kind
    message: str = ""
    attempt: int = 0
    until: float = 0.0
    pipe: str = ""
    seq: int = 0
    digest: str = ""
    words: str = ""
    count: int = 0


class LedgerWriter:
    """Appends to one file; lines are in it before a call returns, whatever becomes of the process.

    Args:
        path: made where it is missing. A last line that a kill cut short is taken off.
        who: whose ledger it is.
    """

    def __init__(self, path: Path, who: str, clock: Clock | None = None) -> None:
        self.who = who
        self._clock = clock or SystemClock()
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        _cut_torn_end(self._file)

    def now(self) -> float:
        """Return the reading that a line of this moment carries."""
        return self._clock.now()

    def note(self, kind: Kind, *messages: str, attempt: int = 0, words: str = "") -> None:
        """Append one line for each message, or one about none."""
        at = self.now()
        self.append(Line(at, self.who, kind, message, attempt, words=words) for message in messages or ("",))

    def append(self, lines: Iterable[Line]) -> None:
        """Append lines in one write.

        Raises: OSError: not all of it could be written; the process must not go on as if it were.
        """
        text = "".join(map(_encode, lines)).encode()
        written = os.write(self._file, text)
        if written < len(text):
            raise OSError(f"{self._path} took {written} of {len(text)} bytes")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class LedgerReader:
    """Reads a ledger while it grows.

    Attributes:
        lines: all that was read so far.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._counts: Counter[Kind] = Counter()
        self.lines: list[Line] = []

    def read_on(self) -> None:
        """Read the lines that came since the last time; one that is still being written waits."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._offset += len(whole) + 1
            new = [_decode(text) for text in whole.split(b"\n")]
            self._counts.update(line.kind for line in new)
            self.lines += new

    def count(self, kind: Kind) -> int:
        """Return how many lines of one kind were read."""
        return self._counts[kind]

    def of_kind(self, kind: Kind) -> Iterator[Line]:
        """Yield the lines of one kind that were read."""
        return (line for line in self.lines if line.kind is kind)


def read_ledger(path: Path) -> Iterator[Line]:
    """Yield the lines of a ledger, without a last one that a kill cut short; none where there is no file.

    Raises: CorruptError: a line is not one that a `LedgerWriter` wrote.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for text in file:
            if text.endswith(b"\n"):
                yield _decode(text)


def _encode(line: Line) -> str:
    fields = [line.at, line.who, line.kind, line.message, line.attempt, line.until, line.pipe, line.seq]
    return json.dumps([*fields, line.digest, line.words, line.count]) + "\n"


def _decode(text: bytes) -> Line:
    try:
        at, who, kind, message, attempt, until, pipe, seq, digest, words, count = json.loads(text)
        # The same few texts come over and over: a million lines shall not hold a copy each.
        texts = (intern(message), attempt, until, intern(pipe), seq, intern(digest), words, count)
        return Line(at, intern(who), _KINDS[kind], *texts)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptError(f"{text[:80]!r} is not a line of a ledger") from error


def _cut_torn_end(file: int) -> None:
    """Take off what stands behind the last line feed: the next line would be glued to it."""
    end = size = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - _LOOK_BACK_BYTES)
        at = os.pread(file, end - start, start).rfind(b"\n")
        if at >= 0:
            end = start + at + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)
