"""Rows of the embedded store, to and from the model.

Refuses, with `DecodeError`, every row that cassq did not write; nothing is skipped or repaired silently.
"""

import json
from array import array
from collections.abc import Iterable
from dataclasses import astuple, fields, replace
from itertools import accumulate, pairwise
from sys import byteorder
from typing import Any
from uuid import UUID

from cassq.limits import SEQ_MAX
from cassq.model.consistency import check_head, check_mark
from cassq.model.ids import LogPlace, MessageId, from_time_key, time_key
from cassq.model.key import NO_SLOT
from cassq.model.message import Batch, Origin
from cassq.model.past import past_from_text, past_to_text
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry, Run, RunState
from cassq.model.queue_record import QueueRecord, QueueState, Sample, Written
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.tally import Tally
from cassq.storage.forms import DeadLetter
from cassq.storage.sqlite.values import blob, decoding, json_headers, json_list, number, text, time_ms

Row = tuple[Any, ...]

_Outline = tuple[
    int, int, int, int, tuple[int, ...] | None, tuple[Origin, ...] | None, tuple[str, ...] | None
]

#: What `queues` has in one column of all totals; the others have columns of their own.
_TOTALS = tuple(each.name for each in fields(Tally) if each.name != "expired")


def entry_row(entry: PipeEntry, created_at_ms: int) -> Row:
    """Return the columns of `pipes` after queue and shard."""
    moved_from = None if entry.moved_from is None else time_key(entry.moved_from)
    return (
        *(time_key(entry.pipe), entry.pusher, entry.priority, entry.lane, created_at_ms, entry.type),
        *(entry.due_class, moved_from, entry.slot),
    )


def batch_row(batch: Batch, pushed_at_ms: int) -> Row:
    """Return (first, count, pushed_at_ms, ttl_ms, dues, origins, keys, lengths, headers, bodies)."""
    lengths = _pack("I", map(len, batch.bodies))
    headers = json.dumps([dict(h) for h in batch.headers]) if batch.headers else None
    dues = None if batch.dues is None else _pack("q", batch.dues)
    origins = None
    if batch.origins is not None:
        origins = json.dumps([[*map(str, each.message_id), each.pushed_at_ms] for each in batch.origins])
    keys = json.dumps(batch.keys) if batch.keys else None
    place = batch.first, batch.count, pushed_at_ms, batch.ttl_ms, dues, origins, keys
    return *place, lengths, headers, b"".join(batch.bodies)


def to_batch(row: Row) -> Batch:
    """Read a full row back."""
    *outline, packed, headers, joined = row
    with decoding("waiting"):
        first, count, pushed_at_ms, ttl_ms, dues, origins, keys = _outline(*outline)
        lengths = _unpack("I", packed)
        if len(lengths) != count or sum(lengths) != len(blob(joined)):
            raise ValueError(f"batch {first} says {count} messages, its bodies do not")
        bodies = tuple(joined[a:b] for a, b in pairwise(accumulate(lengths, initial=0)))
        return Batch(
            first, bodies, _headers(headers, first, count), count, pushed_at_ms, ttl_ms, dues, origins, keys
        )


def to_outline(row: Row) -> Batch:
    """Read (first, count, pushed_at_ms, ttl_ms, dues, origins, keys) back."""
    with decoding("waiting"):
        first, count, pushed_at_ms, ttl_ms, dues, origins, keys = _outline(*row)
        return Batch(first, (), None, count, pushed_at_ms, ttl_ms, dues, origins, keys)


def to_headers(row: Row) -> Batch:
    """Read (first, count, pushed_at_ms, ttl_ms, dues, origins, keys, headers) back."""
    outline = to_outline(row[:-1])
    with decoding("waiting"):
        return replace(outline, headers=_headers(row[-1], outline.first, outline.count))


def _headers(stored: object, first: int, count: int) -> tuple[dict[str, str], ...] | None:
    unpacked = None if stored is None else tuple(map(json_headers, json_list(stored)))
    if unpacked is not None and len(unpacked) != count:
        raise ValueError(f"batch {first} says {count} messages, its headers do not")
    return unpacked


def _outline(*row: object) -> _Outline:
    first, count, pushed_at_ms, ttl_ms, packed, stored, stored_keys = row
    place = number(first, 1), number(count, 1), time_ms(pushed_at_ms), number(ttl_ms)
    if packed is None and stored is None and stored_keys is None:
        return *place, None, None, None
    dues = None if packed is None else tuple(map(time_ms, _unpack("q", packed)))
    origins = None if stored is None else tuple(map(_origin, json_list(stored)))
    keys = None if stored_keys is None else tuple(map(text, json_list(stored_keys)))
    if any(each is not None and len(each) != count for each in (dues, origins, keys)):
        raise ValueError(f"batch {first} says {count} messages, its due times, first ids or keys do not")
    return *place, dues, origins, keys


def _origin(stored: tuple[object, ...]) -> Origin:
    pipe, seq, pushed_at_ms = stored
    return Origin(MessageId(UUID(text(pipe)), number(int(text(seq)), 1)), time_ms(pushed_at_ms))


def _pack(kind: str, numbers: Iterable[int]) -> bytes:
    packed = array(kind, numbers)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(kind: str, packed: object) -> "array[int]":
    numbers = array(kind, blob(packed))
    if byteorder == "big":
        numbers.byteswap()
    return numbers


def head_row(head: Head) -> Row:
    """Return the columns of `heads` after the pipe."""
    return (
        *(head.op.bytes, head.cursor, head.read_from, head.floor, head.phase.value, head.last),
        *(head.skipped, head.dead, head.purged, head.rolled_back, head.expired),
        *journal_row(head.journal),
    )


def journal_row(place: LogPlace | None) -> Row:
    """Return (journal, journal_from, journal_kind)."""
    return (place.incarnation.bytes, place.offset, place.kind) if place else (None, None, None)


def to_head(row: Row) -> Head:
    """Read them back."""
    with decoding("heads"):
        op, cursor, read_from, floor, phase, last, *counts, journal, journal_from, kind = row
        numbers = number(cursor), number(read_from), number(floor)
        head = Head(UUID(bytes=op), *numbers, Phase(phase), number(last), *map(number, counts))
        if (journal, journal_from, kind) != (None, None, None):
            place = UUID(bytes=blob(journal)), number(journal_from, 1)
            head = replace(head, journal=LogPlace(*place, *(() if kind is None else (kind,))))
        return check_head(head)


def run_row(run: Run, leased_at_ms: int) -> Row:
    """Return the columns of `runs` after the pipe."""
    return (
        *(run.first, run.last, run.read_from, run.state.value, run.attempt, run.lease_id.bytes),
        *(leased_at_ms, run.lease_ms, run.not_before_ms, run.holder, run.rolled_back, run.window_ms),
        run.reason,
        past_to_text(run.past),
    )


def to_run(row: Row) -> Run:
    """Read them back."""
    with decoding("runs"):
        first, last, read_from, state, attempt, lease_id, *rest = row
        leased_at_ms, lease_ms, not_before_ms, holder, rolled_back, window_ms, reason, past = rest
        return Run(
            first=number(first, 1),
            last=number(last, first - 1, SEQ_MAX - 1),
            read_from=number(read_from, 1, first),
            state=RunState(state),
            attempt=number(attempt),
            lease_id=UUID(bytes=lease_id),
            leased_at_ms=time_ms(leased_at_ms),
            lease_ms=time_ms(lease_ms),
            not_before_ms=time_ms(not_before_ms),
            holder=text(holder),
            rolled_back=number(rolled_back),
            window_ms=time_ms(window_ms),
            reason=text(reason),
            past=past_from_text(text(past)),
        )


def to_mark(row: Row) -> Mark:
    """Read (first, last, ending, target, attempt, ended_at_ms) back."""
    first, last, ending, target, attempt, ended_at_ms = row
    with decoding("marks"):
        to = None if target is None else from_time_key(blob(target))
        place = number(first, 1), number(last, first, SEQ_MAX - 1)
        at_ms = None if ended_at_ms is None else time_ms(ended_at_ms)
        return check_mark(Mark(*place, End(ending), to, number(attempt), at_ms))


def to_entry(row: Row, shelf: Shelf) -> PipeEntry:
    """Read (pipe, pusher, priority, lane, created_at_ms, type, due_class, moved_from, slot) back."""
    with decoding("pipes"):
        pipe, pusher, priority, lane, created_at_ms, kind, due_class, moved_from, slot = row
        return PipeEntry(
            from_time_key(blob(pipe)),
            text(pusher),
            number(priority, -SEQ_MAX),
            number(lane),
            text(kind),
            time_ms(created_at_ms),
            due_class=number(due_class),
            moved_from=None if moved_from is None else from_time_key(blob(moved_from)),
            slot=number(slot, NO_SLOT),
            shelf=shelf,
        )


def record_row(record: QueueRecord) -> Row:
    """Return (incarnation, op, state, settings, totals, counted, samples, writers, publications, expired)."""
    totals = {name: getattr(record.totals, name) for name in _TOTALS}
    return (
        record.incarnation.bytes,
        record.op.bytes,
        record.state.value,
        json.dumps(record.settings.to_stored()),
        json.dumps(totals),
        json.dumps(sorted(str(pipe) for pipe in record.counted)),
        json.dumps([astuple(sample) for sample in record.samples]),
        json.dumps(
            {
                name: [written.batch, str(written.manifest) if written.manifest else None]
                for name, written in record.writers.items()
            }
        ),
        record.publications,
        record.totals.expired,
    )


def to_record(row: Row) -> QueueRecord:
    """Read (name, *record_row) back."""
    with decoding("queues"):
        name, incarnation, op, state, settings, totals, *others, expired = row
        counted, samples, writers, publications = others
        tally = json.loads(text(totals))
        return QueueRecord(
            name,
            UUID(bytes=incarnation),
            QueueSettings.from_stored(json.loads(text(settings))),
            UUID(bytes=op),
            QueueState(state),
            Tally(**{name: number(tally.pop(name)) for name in _TOTALS}, **tally, expired=number(expired)),
            frozenset(UUID(pipe) for pipe in json_list(counted)),
            tuple(Sample(time_ms(at_ms), *map(number, counts)) for at_ms, *counts in json_list(samples)),
            {
                writer: Written(number(batch), UUID(manifest) if manifest else None)
                for writer, (batch, manifest) in json.loads(text(writers)).items()
            },
            number(publications),
        )


def letter_row(letter: DeadLetter, died_at_ms: int) -> Row:
    """Return the columns of `dead` after queue and shard."""
    return (
        time_key(letter.message_id.pipe),
        letter.message_id.seq,
        letter.body,
        json.dumps(dict(letter.headers)),
        letter.pushed_at_ms,
        letter.attempts,
        letter.reason,
        died_at_ms,
        letter.priority,
        letter.type,
        letter.key,
    )


def to_letter(row: Row) -> DeadLetter:
    """Read them back."""
    with decoding("dead"):
        pipe, seq, body, headers, pushed_at_ms, attempts, reason, died_at_ms, priority, kind, key = row
        return DeadLetter(
            message_id=MessageId(from_time_key(blob(pipe)), number(seq, 1)),
            body=blob(body),
            headers=json_headers(json.loads(text(headers))),
            pushed_at_ms=time_ms(pushed_at_ms),
            attempts=number(attempts),
            reason=text(reason),
            died_at_ms=time_ms(died_at_ms),
            priority=number(priority),
            type=text(kind),
            key=text(key),
        )
