"""What the journal keeps of a pipe: how all that was in it ended, and what its messages were.

Owns the event's text, which people and programs read for as long as the journal keeps it, and where a pipe is
cut of which more is kept than one event tells. Refuses to know where events are kept. What must not break: an
event says of a message what its pipe said last, and nothing of a message of which nobody knows; and whoever
cuts a pipe, and whenever, cuts it at the same numbers.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from cassq.errors import DecodeError
from cassq.model.fates import Stretch, stretches_of
from cassq.model.ids import MessageId, shorten
from cassq.model.message import Batch, Headers, to_datetime
from cassq.model.past import past_from_list
from cassq.model.pipe import End, PipeEntry, PipeState

#: An event tells of so many stretches and so many earlier attempts, each with so much of its reason: so it
#: fits into one write, whatever became of its pipe. Of what lies behind them it says nothing.
STRETCHES_MAX = 10_000
ATTEMPTS_MAX = 4_000

#: A pipe is cut before the batch whose headers would make a part weigh more: in characters, and some for each
#: message. Where it is cut decides what one event is: the numbers stand for as long as kind "headers" does.
PART_WEIGHT = 512 * 1024
MESSAGE_WEIGHT = 8

_VERSION = 1


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


class PushedBatch(NamedTuple):
    """What was pushed together.

    Attributes:
        headers: one mapping for each message; None where none has any.
        keys: the key of each message; None where none has one.
    """

    first: int
    size: int
    pushed_at_ms: int
    headers: tuple[Headers, ...] | None = None
    keys: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PipeEvent:
    """How everything in a pipe, or in a part of it, ended.

    Attributes:
        messages: how many the pipe had: numbers 1 to this.
        retired_at: when its end was seen, by the database's clock.
        stretches: in order. A message in none of them is one of which nothing is known.
        origins: the first ids of messages that were moved here.
        first, last: the part that it tells of; None: up to the end.
        batches: what was pushed, where the journal keeps headers.
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
    first: int = 1
    last: int | None = None
    batches: tuple[PushedBatch, ...] = ()

    @property
    def key(self) -> str:
        """What says in the log whose event it is."""
        return str(self.pipe)

    @property
    def is_last(self) -> bool:
        """Whether no part follows it."""
        return self.last is None or self.last >= self.messages

    def covers(self, seq: int) -> bool:
        """Tell whether it is the one that tells of a message."""
        return self.first <= seq <= (self.messages if self.last is None else self.last)

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
            **_beside(self.stretches),
        }
        if self.last is not None:
            told |= {"first": self.first, "last": self.last, "batches": [*map(_batch_to_list, self.batches)]}
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
                tuple(_stretches(told)),
                *(int(told["priority"]), str(told["type"])),
                tuple(Origins(int(a), int(n), UUID(pipe), int(seq)) for a, n, pipe, seq in told["origins"]),
                *(int(told.get("first", 1)), int(told["last"]) if "last" in told else None),
                tuple(map(_to_batch, told.get("batches", ()))),
            )
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise DecodeError(
                f"a message of the journal is no event of cassq's: {shorten(body)} ({error})"
            ) from error


def event_of(queue: str, entry: PipeEntry, state: PipeState, batches: Iterable[Batch] = ()) -> PipeEvent:
    """Return the one event of a pipe that is over.

    Args:
        state: all of it, also what is below the floor.
        batches: outlines, where its messages were moved here.
    """
    return PipeEvent(
        *(queue, entry.pipe, entry.pusher, state.head.last, to_datetime(state.now_ms)),
        tuple(stretches_of(state))[:STRETCHES_MAX],
        *(entry.priority, entry.type, tuple(_origins_of(batches))[:STRETCHES_MAX]),
    )


def events_with_headers(
    queue: str, entry: PipeEntry, state: PipeState, batches: Iterable[Batch]
) -> Iterator[PipeEvent]:
    """Yield the events of a pipe that is over, part by part.

    Args:
        state: all of it, also what is below the floor.
        batches: all of them, with their headers.
    """
    last = state.head.last
    place = queue, entry.pipe, entry.pusher, last, to_datetime(state.now_ms)
    stretches = [*stretches_of(state)]
    for begin, end, part in _parts_of(batches, last):
        own = (
            each._replace(first=max(each.first, begin), last=min(each.last, end))
            for each in stretches
            if each.first <= end and each.last >= begin
        )
        yield PipeEvent(
            *(*place, tuple(own)[:STRETCHES_MAX], entry.priority, entry.type),
            *(tuple(_origins_of(part)), begin, end),
            tuple(PushedBatch(b.first, b.count, b.pushed_at_ms or 0, b.headers, b.keys) for b in part),
        )


def _parts_of(batches: Iterable[Batch], last: int) -> Iterator[tuple[int, int, list[Batch]]]:
    """Cut a pipe between its batches; these never change, so neither do the cuts."""
    first, weight, part = 1, 0, list[Batch]()
    for batch in batches:
        own = _weight_of(batch)
        if part and weight + own > PART_WEIGHT:
            yield first, batch.first - 1, part
            first, weight, part = batch.first, 0, []
        part.append(batch.part(batch.first, min(batch.last, last)))
        weight += own
    yield first, last, part


def _weight_of(batch: Batch) -> int:
    texts = sum(len(name) + len(value) for each in batch.headers or () for name, value in each.items())
    return MESSAGE_WEIGHT * batch.count + texts + sum(map(len, batch.keys or ()))


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
    told = [*stretch[:6]]
    told[2], told[5] = stretch.end.value, stretch.target and str(stretch.target)
    while not told[-1]:
        told.pop()
    return [*told, 0][: max(4, len(told))]


def _beside(stretches: Sequence[Stretch]) -> Mapping[str, Any]:
    """Return what `ends` does not tell, which an older version reads, too: by the stretch's place there."""
    holders = {name: place for place, name in enumerate(dict.fromkeys(each.holder for each in stretches))}
    left, past = ATTEMPTS_MAX, dict[str, list[list[Any]]]()
    for place, each in enumerate(stretches):
        if each.past and len(each.past) <= left:
            left -= len(each.past)
            past[str(place)] = [*map(list, each.past)]
    told: dict[str, Any] = {"past": past} if past else {}
    if any(each.ended_at_s is not None for each in stretches):
        told["ended_at"] = [each.ended_at_s for each in stretches]
    return told | {"holders": [*holders], "held_by": [holders[each.holder] for each in stretches]}


def _stretches(told: Mapping[str, Any]) -> Iterator[Stretch]:
    ends, past, holders = told["ends"], told.get("past", {}), told.get("holders", ("",))
    count = len(ends)
    beside = zip(ends, told.get("ended_at", [None] * count), told.get("held_by", [0] * count), strict=True)
    for place, (each, ended_at_s, holder) in enumerate(beside):
        first, last, end, attempts, *rest = each
        yield Stretch(
            *(int(first), int(last), End(end), int(attempts), str(rest[0]) if rest else ""),
            UUID(rest[1]) if rest[1:] else None,
            None if ended_at_s is None else int(ended_at_s),
            str(holders[holder]),
            past_from_list(past.get(str(place), [])),
        )


def _batch_to_list(batch: PushedBatch) -> list[Any]:
    headers = batch.headers and [*map(dict, batch.headers)]
    return [batch.first, batch.size, batch.pushed_at_ms, headers, batch.keys]


def _to_batch(told: Sequence[Any]) -> PushedBatch:
    first, size, pushed_at_ms, headers, keys = told
    named = headers and tuple({str(name): str(text) for name, text in each.items()} for each in headers)
    return PushedBatch(int(first), int(size), int(pushed_at_ms), named, keys and tuple(map(str, keys)))
