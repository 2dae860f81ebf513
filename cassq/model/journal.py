"""What the journal keeps of a pipe: how all that was in it ended.

Owns the event's text, which people and programs read for as long as the journal keeps it, and how it follows
from the rows of a pipe. Refuses to know where events are kept. What must not break: an event says of a
message what its pipe said last, and nothing of a message of which nobody knows.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from cassq.errors import DecodeError
from cassq.model.ids import MessageId, shorten
from cassq.model.message import Batch, to_datetime
from cassq.model.pipe import End, Mark, PipeEntry, PipeState, Run
from cassq.model.ranges import Ranges

#: An event tells of so many stretches, each with so much of its reason: so it fits into one write, whatever
#: became of its pipe. Of what lies behind them it says nothing.
STRETCHES_MAX = 10_000
REASON_MAX = 100

#: What counts where several marks cover one message, first.
_ORDER = (End.DEAD, End.PURGED, End.MOVED, End.EXPIRED, End.COMMITTED)

_VERSION = 1


class Stretch(NamedTuple):
    """Messages of a pipe with one fate.

    Attributes:
        attempts: how often the run was handed out that they lay in; 0: they were in none. A message that was
            cancelled before may lie in a run, too.
        reason: why they came back last.
        target: the pipe that they were moved to.
    """

    first: int
    last: int
    end: End
    attempts: int = 0
    reason: str = ""
    target: UUID | None = None


class Origins(NamedTuple):
    """Messages that were moved here: the first has this id, each other one the next number."""

    first: int
    size: int
    pipe: UUID
    seq: int

    @property
    def following(self) -> MessageId:
        """The id behind those."""
        return MessageId(self.pipe, self.seq + self.size)


@dataclass(frozen=True, slots=True)
class PipeEvent:
    """How everything in a pipe ended.

    Attributes:
        messages: how many it had: numbers 1 to this.
        retired_at: when its end was seen, by the database's clock.
        stretches: in order. A message in none of them is one of which nothing is known.
        origins: the first ids of messages that were moved here.
    """

    queue: str
    pipe: UUID
    pusher: str
    messages: int
    retired_at: datetime
    stretches: tuple[Stretch, ...]
    priority: int = 0
    type: str = ""
    origins: tuple[Origins, ...] = ()

    @classmethod
    def of(cls, queue: str, entry: PipeEntry, state: PipeState, batches: Iterable[Batch] = ()) -> "PipeEvent":
        """Return the event of a pipe that is over.

        Args:
            state: all of it, also what is below the floor.
            batches: outlines, where its messages were moved here.
        """
        return cls(
            queue,
            entry.pipe,
            entry.pusher,
            state.head.last,
            to_datetime(state.now_ms),
            tuple(stretches_of(state))[:STRETCHES_MAX],
            entry.priority,
            entry.type,
            tuple(_origins_of(batches))[:STRETCHES_MAX],
        )

    def find(self, seq: int) -> Stretch | None:
        """Return what became of a message; None where the event does not tell."""
        return next((each for each in self.stretches if each.first <= seq <= each.last), None)

    def number_of(self, first_id: MessageId) -> int | None:
        """Return the number that a message has here that was moved, by its first id; None: it was not."""
        for each in self.origins:
            if each.pipe == first_id.pipe and 0 <= first_id.seq - each.seq < each.size:
                return each.first + first_id.seq - each.seq
        return None

    def to_body(self) -> bytes:
        """Return it as it is published."""
        told = {
            "version": _VERSION,
            "queue": self.queue,
            "pipe": str(self.pipe),
            "pusher": self.pusher,
            "priority": self.priority,
            "type": self.type,
            "messages": self.messages,
            "retired_at": self.retired_at.isoformat(timespec="milliseconds"),
            "ends": [_to_list(each) for each in self.stretches],
            "origins": [[each.first, each.size, str(each.pipe), each.seq] for each in self.origins],
        }
        return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_body(cls, body: bytes) -> "PipeEvent":
        """Read what was published; what a newer version tells besides is left out.

        Raises: DecodeError: it is no event.
        """
        try:
            told = json.loads(body)
            return cls(
                *(str(told["queue"]), UUID(told["pipe"]), str(told["pusher"]), int(told["messages"])),
                datetime.fromisoformat(told["retired_at"]),
                tuple(map(_to_stretch, told["ends"])),
                *(int(told["priority"]), str(told["type"])),
                tuple(Origins(int(a), int(n), UUID(pipe), int(seq)) for a, n, pipe, seq in told["origins"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DecodeError(
                f"a message of the journal is no event of cassq's: {shorten(body)} ({error})"
            ) from error


def stretches_of(state: PipeState) -> Iterator[Stretch]:
    """Yield how the messages of a pipe ended, as far as its rows tell; neighbours with one fate are one."""
    before: Stretch | None = None
    for each in _cut_by_runs(_ended(state.marks, state.head.last), state.runs):
        if before and before.last + 1 == each.first and before[2:] == each[2:]:
            before = before._replace(last=each.last)
            continue
        if before:
            yield before
        before = each
    if before:
        yield before


def _ended(marks: Iterable[Mark], last: int) -> list[Stretch]:
    """Return the stretches that marks cover, each message once."""
    covered, found = Ranges(), []
    for mark in sorted(marks, key=lambda mark: (_ORDER.index(mark.end), mark.first)):
        end = min(mark.last, last)
        parts = covered.missing(mark.first, end) if mark.first <= end else ()
        found += [Stretch(*part, mark.end, target=mark.target) for part in parts]
        covered.add(mark.first, mark.last)
    return sorted(found, key=lambda each: each.first)


def _cut_by_runs(ended: Sequence[Stretch], runs: Iterable[Run]) -> Iterator[Stretch]:
    """Cut stretches at the edges of the runs in which they were handed out, and tell what those know."""
    known, place = sorted(runs, key=lambda run: run.first), 0
    for each in ended:
        at = each.first
        while place < len(known) and known[place].last < at:
            place += 1
        following = place
        while following < len(known) and known[following].first <= each.last:
            run, following = known[following], following + 1
            if run.last < at:
                continue
            if at < run.first:
                yield each._replace(first=at, last=run.first - 1)
            at, end = max(at, run.first), min(run.last, each.last)
            reason = run.reason if len(run.reason) <= REASON_MAX else f"{run.reason[: REASON_MAX - 1]}…"
            yield each._replace(first=at, last=end, attempts=run.attempts, reason=reason)
            at = end + 1
        if at <= each.last:
            yield each._replace(first=at)


def _origins_of(batches: Iterable[Batch]) -> Iterator[Origins]:
    before: Origins | None = None
    for batch in batches:
        for number, (first_id, _) in enumerate(batch.origins or (), batch.first):
            if before and (number, first_id) == (before.first + before.size, before.following):
                before = before._replace(size=before.size + 1)
                continue
            if before:
                yield before
            before = Origins(number, 1, *first_id)
    if before:
        yield before


def _to_list(stretch: Stretch) -> list[Any]:
    told = [*stretch]
    told[2], told[5] = stretch.end.value, stretch.target and str(stretch.target)
    while not told[-1]:
        told.pop()
    return [*told, 0][: max(4, len(told))]


def _to_stretch(told: Sequence[Any]) -> Stretch:
    first, last, end, attempts, *rest = told
    reason, target = str(rest[0]) if rest else "", UUID(rest[1]) if rest[1:] else None
    return Stretch(int(first), int(last), End(end), int(attempts), reason, target)
