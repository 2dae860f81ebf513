"""Rows of the embedded store, to and from the model.

Refuses, with `DecodeError`, every row that cassq did not write; nothing is skipped or repaired silently.
"""

import json
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields
from itertools import accumulate, pairwise
from sys import byteorder
from typing import Any
from uuid import UUID

from cassq.errors import DecodeError
from cassq.model.ids import MessageId, from_time_key, time_key
from cassq.model.message import Batch
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry, Run, RunState, Tally
from cassq.model.queue_record import QueueRecord, QueueState, Sample
from cassq.model.settings import QueueSettings
from cassq.storage.port import DeadLetter

Row = tuple[Any, ...]


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Turn every surprise in a stored row into a `DecodeError` that names the row."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise DecodeError(f"{what} holds a row that cassq did not write: {error}") from error


def batch_row(batch: Batch, pushed_at_ms: int) -> Row:
    """Return (first, count, pushed_at_ms, lengths, headers, bodies)."""
    lengths = array("I", map(len, batch.bodies))
    if byteorder == "big":
        lengths.byteswap()
    headers = json.dumps([dict(h) for h in batch.headers]) if batch.headers else None
    return batch.first, batch.count, pushed_at_ms, lengths.tobytes(), headers, b"".join(batch.bodies)


def to_batch(row: Row) -> Batch:
    """Read a full row back."""
    first, count, pushed_at_ms, packed, headers, joined = row
    with decoding("waiting"):
        lengths = array("I", packed)
        if byteorder == "big":
            lengths.byteswap()
        if len(lengths) != count or count < 1 or sum(lengths) != len(joined):
            raise ValueError(f"batch {first} says {count} messages, its bodies do not")
        bodies = tuple(joined[a:b] for a, b in pairwise(accumulate(lengths, initial=0)))
        unpacked = tuple(json.loads(headers)) if headers is not None else None
        if unpacked is not None and len(unpacked) != count:
            raise ValueError(f"batch {first} says {count} messages, its headers do not")
        return Batch(first, bodies, unpacked, count, pushed_at_ms)


def to_outline(row: Row) -> Batch:
    """Read (first, count, pushed_at_ms) back."""
    return Batch(row[0], (), None, row[1], row[2])


def head_row(head: Head) -> Row:
    """Return the columns of `heads` after the pipe."""
    return (
        *(head.op.bytes, head.cursor, head.read_from, head.floor, head.phase.value, head.last),
        *(head.skipped, head.dead, head.purged, head.rolled_back),
    )


def to_head(row: Row) -> Head:
    """Read them back."""
    with decoding("heads"):
        op, cursor, read_from, floor, phase, last, *counts = row
        return Head(UUID(bytes=op), cursor, read_from, floor, Phase(phase), last, *counts)


def run_row(run: Run, leased_at_ms: int) -> Row:
    """Return the columns of `runs` after the pipe."""
    return (
        *(run.first, run.last, run.read_from, run.state.value, run.attempt, run.lease_id.bytes),
        *(leased_at_ms, run.lease_ms, run.not_before_ms, run.holder, run.rolled_back),
    )


def to_run(row: Row) -> Run:
    """Read them back."""
    with decoding("runs"):
        first, last, read_from, state, attempt, lease_id, *rest = row
        return Run(first, last, read_from, RunState(state), attempt, UUID(bytes=lease_id), *rest)


def to_mark(row: Row) -> Mark:
    """Read (first, last, ending) back."""
    with decoding("marks"):
        return Mark(row[0], row[1], End(row[2]))


def to_entry(row: Row) -> PipeEntry:
    """Read (pipe, pusher, priority, lane, created_at_ms) back."""
    with decoding("pipes"):
        return PipeEntry(from_time_key(row[0]), *row[1:])


def record_row(record: QueueRecord) -> Row:
    """Return (incarnation, op, state, settings, totals, counted, samples)."""
    totals = {each.name: getattr(record.totals, each.name) for each in fields(Tally)}
    return (
        record.incarnation.bytes,
        record.op.bytes,
        record.state.value,
        json.dumps(record.settings.to_stored()),
        json.dumps(totals),
        json.dumps(sorted(str(pipe) for pipe in record.counted)),
        json.dumps([astuple(sample) for sample in record.samples]),
    )


def to_record(row: Row) -> QueueRecord:
    """Read (name, *record_row) back."""
    with decoding("queues"):
        name, incarnation, op, state, settings, totals, counted, samples = row
        return QueueRecord(
            name,
            UUID(bytes=incarnation),
            QueueSettings.from_stored(json.loads(settings)),
            UUID(bytes=op),
            QueueState(state),
            Tally(**json.loads(totals)),
            frozenset(UUID(pipe) for pipe in json.loads(counted)),
            tuple(Sample(*sample) for sample in json.loads(samples)),
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
    )


def to_letter(row: Row) -> DeadLetter:
    """Read them back."""
    with decoding("dead"):
        pipe, seq, body, headers, *rest = row
        return DeadLetter(
            MessageId(from_time_key(pipe), seq), bytes(body), json.loads(headers), *_letter_rest(rest)
        )


def _letter_rest(rest: list[Any]) -> tuple[int, int, str, int]:
    pushed_at_ms, attempts, reason, died_at_ms = rest
    return pushed_at_ms, attempts, reason, died_at_ms
