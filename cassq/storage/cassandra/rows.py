"""Rows of Cassandra's tables to values of the model, and back.

Owns the order of the columns (as `statements.py` selects and binds them) and the check that a row is one of
ours. What must not break: a row that is not ours raises `DecodeError`; it is never skipped and never guessed.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from cassandra.query import UNSET_VALUE

from cassq.errors import DecodeError
from cassq.model.consistency import check_head, check_mark
from cassq.model.ids import LogPlace, MessageId
from cassq.model.key import NO_SLOT
from cassq.model.message import Batch, Origin
from cassq.model.past import past_from_text, past_to_text
from cassq.model.pipe import End, Head, Mark, Phase, PipeEntry, Run, RunState
from cassq.model.queue_record import QueueRecord, QueueState, Sample, Written
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.tally import Tally
from cassq.storage.cassandra.statements import HEAD_KIND, HEAD_SEQ, MARK_KIND, RUN_KIND, SET_MARK_KIND
from cassq.storage.cassandra.values import (
    Row,
    Values,
    decoding,
    to_count,
    to_first,
    to_last,
    to_message_number,
    to_ms,
    to_number,
    to_text,
    to_uuid,
)
from cassq.storage.forms import DeadLetter


def record_values(record: QueueRecord) -> Values:
    """Return the columns of a queue, without its key."""
    totals = record.totals
    return (
        *(record.op, record.incarnation, record.state.value, record.settings.to_stored()),
        *(totals.pushed, totals.popped, totals.committed, totals.dead, totals.purged, totals.rolled_back),
        sorted(record.counted),
        [(sample.at_ms, sample.pushed, sample.popped, sample.committed) for sample in record.samples],
        {name: (written.batch, written.manifest) for name, written in record.writers.items()},
        *(record.publications, totals.expired),
    )


def to_record(row: Row) -> QueueRecord:
    """Read a row of `queues`."""
    with decoding("a queue", row):
        name, op, incarnation, state, settings, *totals, counted, samples, writers, publications = row[:-1]
        return QueueRecord(
            name=name,
            incarnation=to_uuid(incarnation),
            settings=QueueSettings.from_stored(dict(settings)),
            op=to_uuid(op),
            state=QueueState(state),
            totals=Tally(*map(to_count, (*totals, row[-1] or 0))),
            counted=frozenset(counted),
            samples=tuple(Sample(to_ms(at), *map(to_count, counts)) for at, *counts in samples),
            writers={  # null in a row that is older than the column
                to_text(writer): Written(to_count(batch), None if manifest is None else to_uuid(manifest))
                for writer, (batch, manifest) in dict(writers or {}).items()
            },
            publications=0 if publications is None else to_count(publications),
        )


def to_entry(row: Row, shelf: Shelf) -> PipeEntry:
    """Read a row of `pipes` or `staged`."""
    with decoding("a pipe's entry", row):
        pipe, pusher, priority, lane, kind, due_class, moved_from, slot, created_at = row
        return PipeEntry(
            *(
                pipe,
                to_text(pusher),
                to_number(priority),
                to_count(lane),
                to_text(kind or ""),
                to_ms(created_at),
            ),
            due_class=to_count(due_class or 0),
            moved_from=None if moved_from is None else to_uuid(moved_from),
            slot=NO_SLOT if slot is None else to_count(slot),
            shelf=shelf,
        )


def entry_values(entry: PipeEntry) -> Values:
    """Return the columns of an entry after queue and shard, without `created_at`."""
    steering = entry.type or UNSET_VALUE, entry.due_class or UNSET_VALUE, entry.moved_from or UNSET_VALUE
    slot = entry.slot if entry.is_keyed else UNSET_VALUE
    return entry.pipe, entry.pusher, entry.priority, entry.lane, *steering, slot


def batch_values(pipe: UUID, batch: Batch) -> Values:
    """Return the columns of a batch; what it does not have stays unset: a null would be a tombstone."""
    headers = UNSET_VALUE if batch.headers is None else batch.headers
    place = pipe, batch.first, batch.count, batch.bodies, headers, batch.ttl_ms or UNSET_VALUE
    origins = [(*each.message_id, each.pushed_at_ms) for each in batch.origins or ()]
    return *place, batch.dues or UNSET_VALUE, origins or UNSET_VALUE, batch.keys or UNSET_VALUE


def is_batch_there(row: Row) -> bool:
    """Tell whether a row of `waiting`, or an outline, has its bodies; a repaired one of no push has none."""
    return row[3] is not None


def to_batch(row: Row) -> Batch:
    """Read a row of `waiting`."""
    with decoding("a batch", row):
        first, count, pushed_at, stored_bodies, stored_headers, *rest = row
        bodies = tuple(stored_bodies)
        headers = None if stored_headers is None else tuple(map(dict, stored_headers))
        if len(bodies) != count or (headers is not None and len(headers) != count):
            raise ValueError(f"it says it has {count} messages, and has {len(bodies)} bodies")
        if None in bodies:
            raise ValueError("a body is null")
        place = to_message_number(first), bodies, headers, to_message_number(count), to_ms(pushed_at)
        return Batch(*place, *_steering(count, *rest))


def to_outline(row: Row) -> Batch:
    """Read a row of `waiting` without its bodies."""
    with decoding("a batch", row):
        first, count, pushed_at, _, _, *rest = row
        place = to_message_number(first), (), None, to_message_number(count), to_ms(pushed_at)
        return Batch(*place, *_steering(count, *rest))


def to_headers(row: Row) -> Batch:
    """Read a row of `waiting` without its bodies, and with its headers."""
    outline, stored = to_outline(row), row[4]
    with decoding("a batch", row):
        headers = None if stored is None else tuple(map(dict, stored))
        if headers is not None and len(headers) != outline.count:
            raise ValueError(f"it says it has {outline.count} messages, and has {len(headers)} headers")
        return replace(outline, headers=headers)


def _steering(
    count: int,
    ttl_ms: object,
    dues: Sequence[int] | None,
    origins: Sequence[Row] | None,
    stored_keys: Sequence[object] | None,
) -> tuple[int, tuple[int, ...] | None, tuple[Origin, ...] | None, tuple[str, ...] | None]:
    """Read what steers the messages of a batch: time-to-live, when each is due, and was first, its key."""
    ttl = to_count(ttl_ms or 0)
    if dues is None and origins is None and stored_keys is None:
        return ttl, None, None, None
    for what, each in (("due times", dues), ("first ids", origins), ("keys", stored_keys)):
        if each is not None and len(each) != count:
            raise ValueError(f"it says it has {count} messages, and has {len(each)} {what}")
    read = None if dues is None else tuple(map(to_count, dues))
    keys = None if stored_keys is None else tuple(map(to_text, stored_keys))
    if origins is None:
        return ttl, read, None, keys
    first = ((MessageId(to_uuid(pipe), to_message_number(seq)), to_ms(at)) for pipe, seq, at in origins)
    return ttl, read, tuple(Origin(*each) for each in first), keys


def head_values(head: Head) -> Values:
    """Return the columns of a new head."""
    return (
        *(head.op, head.cursor, head.read_from, head.floor, head.phase.value, head.last),
        *(head.skipped, head.dead, head.purged, head.rolled_back),
    )


def find_head(rows: Sequence[Row]) -> Head | None:
    """Return the head when `rows`, in their order, begin with it: no head means that the pipe is gone."""
    if not rows or rows[0][:2] > (HEAD_SEQ, HEAD_KIND):
        return None
    with decoding("a head", rows[0]):
        if rows[0][:2] < (HEAD_SEQ, HEAD_KIND):
            raise ValueError("it stands before the head")
        op, cursor, read_from, floor, phase, last, *counts = (*rows[0][2:12], rows[0][22] or 0)
        journal = None
        if rows[0][24:27] != (None, None, None):
            kept = () if rows[0][26] is None else (rows[0][26],)
            journal = LogPlace(to_uuid(rows[0][24]), to_message_number(rows[0][25]), *kept)
        numbers = to_count(cursor), to_count(read_from), to_count(floor)
        head = Head(to_uuid(op), *numbers, Phase(phase), to_count(last), *map(to_count, counts))
        return check_head(replace(head, journal=journal) if journal else head)


def to_runs_and_marks(rows: Sequence[Row], floor: int) -> tuple[tuple[Run, ...], tuple[Mark, ...]]:
    """Read the rows of `pending` that begin above the floor.

    A mark that tells where messages were moved stands beside a commit that landed later.
    """
    runs: list[Run] = []
    marks: dict[tuple[int, bool], Mark] = {}
    for row in rows:
        seq, kind = row[:2]
        if kind == HEAD_KIND and seq == HEAD_SEQ:
            continue
        if kind not in (RUN_KIND, MARK_KIND, SET_MARK_KIND) or seq < 1:
            raise DecodeError(f"a row of pending has number {seq} and kind {kind}, which cassq never writes")
        if seq <= floor:
            continue
        if kind == RUN_KIND:
            run = _to_run(row)
            if not run.is_empty:
                runs.append(run)
            continue
        mark = _to_mark(row)
        place = seq, mark.end is End.MOVED
        if place not in marks or (marks[place].last, marks[place].attempt) < (mark.last, mark.attempt):
            marks[place] = mark
    return tuple(runs), tuple(marks.values())


def run_values(run: Run) -> Values:
    """Return the columns of a run, without its key and without `leased_at`."""
    return (
        *(run.last, run.read_from, run.state.value, run.attempt, run.lease_id, run.lease_ms),
        *(run.not_before_ms, run.holder, run.rolled_back, run.window_ms),
        run.reason or UNSET_VALUE,  # a reason is never taken back, and a null would be a tombstone
        past_to_text(run.past) or UNSET_VALUE,
    )


def _to_run(row: Row) -> Run:
    with decoding("a run", row):
        seq, _, _, _, read_from, _, _, last, _, _, _, rolled_back = row[:12]
        state, attempt, lease_id, leased_at, lease_ms, not_before, holder, _, window_ms, reason = row[12:22]
        return Run(
            first=seq,
            last=to_last(seq - 1, last),
            read_from=to_first(seq, read_from),
            state=RunState(state),
            attempt=to_count(attempt),
            lease_id=to_uuid(lease_id),
            leased_at_ms=to_ms(leased_at),
            lease_ms=to_count(lease_ms),
            not_before_ms=to_ms(not_before),
            holder=to_text(holder),
            rolled_back=to_count(rolled_back),
            window_ms=0 if window_ms is None else to_count(window_ms),  # older than the column
            reason="" if reason is None else to_text(reason),
            past=() if row[27] is None else past_from_text(to_text(row[27])),
        )


def _to_mark(row: Row) -> Mark:
    with decoding("a mark", row):
        target = None if row[23] is None else to_uuid(row[23])
        place, attempt = (row[0], to_last(row[0], row[7]), End(row[19]), target), to_count(row[13] or 0)
        return check_mark(Mark(*place, attempt, None if row[28] is None else to_ms(row[28])))


def mark_values(pipe: UUID, mark: Mark) -> Values:
    """Return the columns of a mark that a transaction sets."""
    ending = mark.end.value, mark.target or UNSET_VALUE, mark.attempt or UNSET_VALUE
    return pipe, mark.first, mark.last, *ending


def plain_mark_values(pipe: UUID, mark: Mark) -> Values:
    """Return the columns of a mark that is a plain insert, and its timestamp."""
    return pipe, mark.first, mark.last, mark.end.value, mark.attempt or UNSET_VALUE, mark.last


def letter_values(letter: DeadLetter) -> Values:
    """Return the columns of a dead letter."""
    return (
        *(letter.message_id.pipe, letter.message_id.seq, letter.body, dict(letter.headers)),
        *(letter.pushed_at_ms, letter.attempts, letter.reason, letter.priority),
        letter.type or UNSET_VALUE,
        letter.key or UNSET_VALUE,
    )


def to_letter(row: Row) -> DeadLetter:
    """Read a row of `dead`."""
    with decoding("a dead letter", row):
        pipe, seq, body, headers, pushed_at, attempts, reason, priority, kind, key, died_at = row
        if not isinstance(body, bytes):
            raise TypeError("it has no body")
        return DeadLetter(
            message_id=MessageId(pipe, to_message_number(seq)),
            body=body,
            headers=dict(headers),
            pushed_at_ms=to_ms(pushed_at),
            attempts=to_count(attempts),
            reason=to_text(reason),
            died_at_ms=to_ms(died_at),
            priority=to_count(priority or 0),
            type=to_text(kind or ""),
            key=to_text(key or ""),
        )
