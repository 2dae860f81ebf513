"""Events of the journal as rows of its index.

Owns the columns of both tables, and what becomes a row of which: `pieces` has one row for each stretch of
messages with one fate, `keyed` one for each message that has a key, or a header that the index keeps. Pure,
but for Arrow. What must not break: each message that an event tells of is in one row of `pieces`, and in
`keyed` where, and only where, that row says so.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from cassq.model.fates import Stretch
from cassq.model.ids import MessageId
from cassq.model.journal import PipeEvent, PushedBatch
from cassq.model.message import Headers
from cassq.model.past import past_to_text
from cassq.model.topic import KEY_HEADER

#: Folders that `pieces` of one day are spread over, by pipe: whoever asks for one message reads one of them.
BUCKETS = 64

_SHARED = (
    "pusher string, priority int, type string, attempts int, holder string, reason string, ending string, "
    "ended_at timestamp, retired_at timestamp, past string, date date"
)
PIECES = (
    "pipe string, first bigint, last bigint, target string, first_pipe string, first_seq bigint, "
    f"is_keyed boolean, queue string, {_SHARED}, bucket int"
)
KEYED = (
    "pipe string, seq bigint, message_id string, key string, headers map<string, string>, "
    f"pushed_at timestamp, {_SHARED}, queue string"
)

#: So many rows are made into one Arrow batch.
_ROWS = 20_000


class Rows(NamedTuple):
    """Rows of one event: so many, what they share, and what each has of its own, by column."""

    size: int
    shared: Mapping[str, Any]
    own: Mapping[str, Sequence[Any]]


class _Kept(NamedTuple):
    """What the index keeps of one message."""

    key: str | None
    headers: Headers
    pushed_at_ms: int


def bucket_of(pipe: UUID) -> int:
    """Return the bucket of a pipe, as Spark's crc32 of its text does."""
    return zlib.crc32(str(pipe).encode()) % BUCKETS


def pieces_of(event: PipeEvent, names: Sequence[str] = ()) -> Iterator[Rows]:
    """Yield the rows of `pieces` of one event.

    Args:
        names: headers that the index keeps.
    """
    kept = _kept_of(event, names)
    shared = _shared_of(event) | {"queue": event.queue, "bucket": bucket_of(event.pipe)}
    edges = {each.first for each in event.origins} | {each.first + each.size for each in event.origins}
    for stretch in event.stretches:
        told = shared | _told_of(stretch, event.retired_at)
        told["target"] = stretch.target and str(stretch.target)
        begin = stretch.first
        for seq in range(stretch.first + 1, stretch.last + 2) if kept or edges else (stretch.last + 1,):
            if seq <= stretch.last and (seq in kept) is (begin in kept) and seq not in edges:
                continue
            own = {"first": begin, "last": seq - 1, "is_keyed": begin in kept}
            yield Rows(1, told | _place_of(event, begin) | own, {})
            begin = seq


def keyed_of(event: PipeEvent, names: Sequence[str] = ()) -> Iterator[Rows]:
    """Yield the rows of `keyed` of one event."""
    kept = _kept_of(event, names)
    if not kept:
        return
    shared = _shared_of(event) | {"queue": event.queue, "pipe": str(event.pipe)}
    for stretch in event.stretches:
        seqs = [seq for seq in range(stretch.first, stretch.last + 1) if seq in kept]
        found = [kept[seq] for seq in seqs]
        own: dict[str, Sequence[Any]] = {
            "seq": seqs,
            "message_id": [_id_of(event, seq) for seq in seqs],
            "key": [each.key for each in found],
            "headers": [[*each.headers.items()] for each in found],
            "pushed_at": [1000 * each.pushed_at_ms for each in found],
        }
        yield Rows(len(seqs), shared | _told_of(stretch, event.retired_at), own)


def rows_of(
    batches: Iterator[pa.RecordBatch], names: Sequence[str], schema: pa.Schema, *, is_keyed: bool
) -> Iterator[pa.RecordBatch]:
    """Make rows of messages of the journal; runs in an executor.

    Args:
        batches: with columns key and body.

    Raises: DecodeError: one is damaged. What has no pipe as its key is none of cassq's, and is left out.
    """
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    count = 0
    for batch in batches:
        for key, body in zip(*(batch.column(name).to_pylist() for name in ("key", "body")), strict=True):
            if not _is_pipe(key):
                continue
            for rows in (keyed_of if is_keyed else pieces_of)(PipeEvent.from_body(body), names):
                for name, column in columns.items():
                    column.extend(rows.own[name] if name in rows.own else [rows.shared[name]] * rows.size)
                count += rows.size
            if count >= _ROWS:
                yield _to_batch(columns, schema)
                columns, count = {name: [] for name in schema.names}, 0
    if count:
        yield _to_batch(columns, schema)


def _to_batch(columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(columns[field.name], type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_pipe(key: str | None) -> bool:
    try:
        return bool(key and UUID(key))
    except ValueError:
        return False


def _kept_of(event: PipeEvent, names: Sequence[str]) -> dict[int, _Kept]:
    return dict(kept for batch in event.batches for kept in _kept_in(batch, names))


def _kept_in(batch: PushedBatch, names: Sequence[str]) -> Iterator[tuple[int, _Kept]]:
    none: Headers = {}
    for place in range(batch.size if batch.headers or batch.keys else 0):
        headers = batch.headers[place] if batch.headers else none
        key = (batch.keys[place] if batch.keys else "") or headers.get(KEY_HEADER)
        own = {name: headers[name] for name in names if name in headers}
        if key or own:
            yield batch.first + place, _Kept(key, own, batch.pushed_at_ms)


def _shared_of(event: PipeEvent) -> dict[str, Any]:
    return {
        "pusher": event.pusher,
        "priority": event.priority,
        "type": event.type or None,
        "retired_at": event.retired_at,
        "date": event.retired_at.date(),
    }


def _told_of(stretch: Stretch, retired_at: datetime) -> dict[str, Any]:
    ended_at = retired_at if stretch.ended_at_s is None else 1_000_000 * stretch.ended_at_s
    return {
        "attempts": stretch.attempts,
        "holder": stretch.holder or None,
        "reason": stretch.reason or None,
        "past": past_to_text(stretch.past) or None,
        "ending": stretch.end.value,
        "ended_at": ended_at,
    }


def _place_of(event: PipeEvent, seq: int) -> dict[str, Any]:
    first = _first_of(event, seq)
    return {"pipe": str(event.pipe), "first_pipe": str(first.pipe), "first_seq": first.seq}


def _id_of(event: PipeEvent, seq: int) -> str:
    return str(_first_of(event, seq)) if event.origins else f"{event.pipe}:{seq}"


def _first_of(event: PipeEvent, seq: int) -> MessageId:
    """Return the id by which people know a message."""
    for each in event.origins:
        if each.first <= seq < each.first + each.size:
            return MessageId(each.pipe, each.seq + seq - each.first)
    return MessageId(event.pipe, seq)
