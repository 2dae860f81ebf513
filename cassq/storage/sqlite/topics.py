"""Topics in the tables of a file.

Owns their statements and rows. Here head and line of a segment are one row, and a link costs what an insert
costs. What must not break: no segment that was deleted is created again, by who has not heard of it.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from cassq.limits import SEQ_MAX
from cassq.model.ids import time_key
from cassq.model.message import Batch
from cassq.model.subscription import Subscription
from cassq.model.topic import (
    GONE,
    LogBatch,
    LogHead,
    PartitionKey,
    Progress,
    ProgressKey,
    Segment,
    SegmentKey,
    SegmentList,
    SegmentState,
    TopicRecord,
    TopicState,
    WriterRow,
)
from cassq.model.topic_settings import TopicSettings
from cassq.storage.sqlite import rows
from cassq.storage.sqlite.file import SqliteFile
from cassq.storage.sqlite.offers import SqliteOffers
from cassq.storage.sqlite.values import blob, decoding, number, text, time_ms
from cassq.storage.topic_port import LogQuery

_TOPIC = "name, incarnation, op, state, settings, groups, subscriptions"
_OF_PARTITION = "incarnation = ? AND partition = ?"
_OF_SEGMENT = f"{_OF_PARTITION} AND segment = ?"
_HEAD = "op, first, next, size, state"
# Nor is one made for a partition that has none before it: all of them were deleted, or it is the first.
_CREATE = (
    f"INSERT OR IGNORE INTO segments (incarnation, partition, segment, created_at_ms, {_HEAD})"  # noqa: S608
    " SELECT ?,?,?,?,?,?,?,?,?"
    f" WHERE NOT EXISTS (SELECT 1 FROM segments WHERE {_OF_PARTITION} AND segment > ?)"
    f" AND (? = 1 OR EXISTS (SELECT 1 FROM segments WHERE {_OF_PARTITION} AND segment = ? - 1))"
)
_WRITER = "INSERT OR REPLACE INTO topic_writers VALUES (?,?,?,?,?,?)"
_LINK = (
    "INSERT INTO links (incarnation, partition, segment, first, count, published_at_ms, link_id, lengths,"
    " headers, bodies) VALUES (?,?,?,?,?,?,?,?,?,?)"
)


class SqliteTopics(SqliteOffers):
    """The part of the port that is about topics."""

    _file: SqliteFile

    def read_topics(self, name: str | None = None) -> Sequence[TopicRecord]:
        """See `TopicStorage.read_topics`."""
        where, values = ("", ()) if name is None else ("WHERE name = ?", (name,))
        with self._file.reading() as db:
            found = db.execute(f"SELECT {_TOPIC} FROM topics {where} ORDER BY name", values).fetchall()  # noqa: S608
        return list(map(_to_record, found))

    def list_topics(self) -> Sequence[str]:
        """See `TopicStorage.list_topics`."""
        living = "SELECT name FROM topics WHERE state NOT IN (?, ?) ORDER BY name"
        with self._file.reading() as db:
            return [name for (name,) in db.execute(living, GONE)]

    def glance_topic(self, name: str) -> TopicRecord | None:
        """See `TopicStorage.glance_topic`; nothing is ever under way here."""
        found = next(iter(self.read_topics(name)), None)
        return found and replace(found, read_at_ms=self._file.now_ms())

    def change_topic(self, seen: TopicRecord | None, wanted: TopicRecord) -> bool:
        """See `TopicStorage.change_topic`."""
        row = _record_row(wanted)
        with self._file.writing() as db:
            if seen is not None:
                columns = ", ".join(f"{column} = ?" for column in _TOPIC.split(", ")[1:])
                change = f"UPDATE topics SET {columns} WHERE name = ? AND op = ?"  # noqa: S608
                return db.execute(change, (*row, wanted.name, seen.op.bytes)).rowcount == 1
            insert = f"INSERT OR IGNORE INTO topics ({_TOPIC}) VALUES (?,?,?,?,?,?,?)"  # noqa: S608
            return db.execute(insert, (wanted.name, *row)).rowcount == 1

    def create_segment(self, place: SegmentKey, head: LogHead, writers: Sequence[WriterRow] = ()) -> None:
        """See `TopicStorage.create_segment`; here it is one step."""
        row = _place(place)
        with self._file.writing() as db:
            created = db.execute(
                _CREATE,
                (
                    *(*row, self._file.now_ms(), *_head_row(head), *row),
                    *(place.number, *row[:2], place.number),
                ),
            )
            if created.rowcount == 1:
                db.executemany(_WRITER, [(*row, *each) for each in writers])

    def list_segments(self, key: PartitionKey) -> SegmentList:
        """See `TopicStorage.list_segments`."""
        with self._file.reading() as db:
            now_ms = self._file.now_ms()
            found = db.execute(
                f"SELECT segment, first, created_at_ms FROM segments WHERE {_OF_PARTITION} ORDER BY segment",  # noqa: S608
                _partition(key),
            ).fetchall()
        with decoding("segments"):
            listed = (Segment(number(n, 1), number(first, 1), time_ms(at)) for n, first, at in found)
            return SegmentList(tuple(listed), now_ms)

    def delete_segment(self, place: SegmentKey) -> None:
        """See `TopicStorage.delete_segment`; here it is one step."""
        with self._file.writing() as db:
            for table in ("links", "topic_writers", "segments"):
                db.execute(f"DELETE FROM {table} WHERE {_OF_SEGMENT}", _place(place))  # noqa: S608

    def load_head(self, place: SegmentKey) -> LogHead | None:
        """See `TopicStorage.load_head`."""
        with self._file.reading() as db:
            row = db.execute(
                f"SELECT {_HEAD} FROM segments WHERE {_OF_SEGMENT}",  # noqa: S608
                _place(place),
            ).fetchone()
        return row and _to_head(row)

    def glance_head(self, place: SegmentKey) -> LogHead | None:
        """See `TopicStorage.glance_head`; nothing is ever under way here."""
        return self.load_head(place)

    def link(
        self,
        place: SegmentKey,
        seen: LogHead,
        wanted: LogHead,
        batches: Sequence[LogBatch] = (),
        writers: Sequence[WriterRow] = (),
    ) -> bool:
        """See `TopicStorage.link`."""
        row = _place(place)
        columns = ", ".join(f"{column} = ?" for column in _HEAD.split(", "))
        change = f"UPDATE segments SET {columns} WHERE {_OF_SEGMENT} AND op = ?"  # noqa: S608
        with self._file.writing() as db:
            if db.execute(change, (*_head_row(wanted), *row, seen.op.bytes)).rowcount != 1:
                return False
            now_ms = self._file.now_ms()
            db.executemany(_LINK, [(*row, *_batch_row(batch, now_ms)) for batch in batches])
            db.executemany(_WRITER, [(*row, *each) for each in writers])
        return True

    def read_log(self, place: SegmentKey, query: LogQuery) -> Sequence[LogBatch]:
        """See `TopicStorage.read_log`."""
        row = _place(place)
        columns = "first, count, published_at_ms, link_id"
        columns += "" if query.is_outline else ", lengths, headers, bodies"
        with self._file.reading() as db:
            holder = db.execute(
                f"SELECT max(first) FROM links WHERE {_OF_SEGMENT} AND first <= ?",  # noqa: S608
                (*row, query.since),
            ).fetchone()[0]
            found = db.execute(
                f"SELECT {columns} FROM links WHERE {_OF_SEGMENT} AND first >= ? ORDER BY first LIMIT ?",  # noqa: S608
                (*row, holder or query.since, query.limit + 1),
            ).fetchall()
        batches = [_to_batch(row, is_outline=query.is_outline) for row in found]
        return [batch for batch in batches if batch.next > query.since][: query.limit]

    def read_writers(self, place: SegmentKey) -> Sequence[WriterRow]:
        """See `TopicStorage.read_writers`."""
        with self._file.reading() as db:
            found = db.execute(
                f"SELECT writer, number, last_offset FROM topic_writers WHERE {_OF_SEGMENT}",  # noqa: S608
                _place(place),
            ).fetchall()
        with decoding("topic_writers"):
            return [WriterRow(text(name), number(last), number(offset, 1)) for name, last, offset in found]

    def read_progress(self, group: UUID, partition: int) -> Progress | None:
        """See `TopicStorage.read_progress`."""
        return next((each for each in self._progress(group) if each.partition == partition), None)

    def list_progress(self, group: UUID, partitions: int) -> Sequence[Progress]:
        """See `TopicStorage.list_progress`."""
        return [each for each in self._progress(group) if each.partition < partitions]

    def _progress(self, group: UUID) -> list[Progress]:
        with self._file.reading() as db:
            found = db.execute(
                "SELECT partition, epoch, owner, next, pipe, before FROM progress WHERE group_id = ?"
                " ORDER BY partition",
                (group.bytes,),
            ).fetchall()
        with decoding("progress"):
            return [
                Progress(
                    *(number(each), number(epoch, 1), text(owner), number(after, 1)),
                    *(None if pipe is None else UUID(bytes=blob(pipe)) for pipe in pipes),
                )
                for each, epoch, owner, after, *pipes in found
            ]

    def change_progress(self, group: UUID, seen: Progress | None, wanted: Progress) -> bool:
        """See `TopicStorage.change_progress`."""
        key = group.bytes, wanted.partition
        pipes = (pipe and pipe.bytes for pipe in (wanted.pipe, wanted.before))
        row = wanted.epoch, wanted.owner, wanted.next, *pipes
        with self._file.writing() as db:
            if seen is None:
                insert = (
                    "INSERT OR IGNORE INTO progress (group_id, partition, epoch, owner, next, pipe, before)"
                    " VALUES (?,?,?,?,?,?,?)"
                )
                return db.execute(insert, (*key, *row)).rowcount == 1
            change = (
                "UPDATE progress SET epoch = ?, owner = ?, next = ?, pipe = ?, before = ?"
                " WHERE group_id = ? AND partition = ? AND epoch = ? AND next = ?"
            )
            return db.execute(change, (*row, *key, seen.epoch, seen.next)).rowcount == 1

    def delete_progress(self, group: UUID, partitions: int) -> None:
        """See `TopicStorage.delete_progress`."""
        with self._file.writing() as db:
            db.execute("DELETE FROM progress WHERE group_id = ? AND partition < ?", (group.bytes, partitions))


def may_create(db: sqlite3.Connection, pipe: UUID, named_by: ProgressKey) -> bool:
    """Tell whether a relay's pipe may be created: its progress names it, and it is not there."""
    named = db.execute(
        "SELECT 1 FROM progress WHERE group_id = ? AND partition = ? AND pipe = ?",
        (named_by.group.bytes, named_by.partition, pipe.bytes),
    ).fetchone()
    return bool(named) and not db.execute("SELECT 1 FROM heads WHERE pipe = ?", (time_key(pipe),)).fetchone()


def _partition(key: PartitionKey) -> tuple[bytes, int]:
    return key.incarnation.bytes, key.partition


def _place(place: SegmentKey) -> tuple[bytes, int, int]:
    return place.incarnation.bytes, place.partition, place.number


def _record_row(record: TopicRecord) -> tuple[Any, ...]:
    groups = {name: str(found) for name, found in record.groups.items()}
    subscriptions = {name: each.to_text() for name, each in record.subscriptions.items()}
    texts = map(json.dumps, (record.settings.to_stored(), groups, subscriptions))
    return record.incarnation.bytes, record.op.bytes, record.state.value, *texts


def _to_record(row: tuple[Any, ...]) -> TopicRecord:
    with decoding("topics"):
        name, incarnation, op, state, settings, groups, subscriptions = row
        return TopicRecord(
            *(text(name), UUID(bytes=blob(incarnation))),
            TopicSettings.from_stored(json.loads(text(settings))),
            *(UUID(bytes=blob(op)), TopicState(state)),
            {text(group): UUID(text(found)) for group, found in json.loads(text(groups)).items()},
            {
                text(queue): Subscription.from_text(text(found))
                for queue, found in json.loads(text(subscriptions)).items()
            },
        )


def _head_row(head: LogHead) -> tuple[Any, ...]:
    return head.op.bytes, head.first, head.next, head.size, head.state.value


def _to_head(row: tuple[Any, ...]) -> LogHead:
    with decoding("segments"):
        op, first, after, size, state = row
        begins, to = number(first, 1), number(after, number(first, 1))
        return LogHead(UUID(bytes=blob(op)), begins, to, number(size, 0, SEQ_MAX), SegmentState(state))


def _batch_row(batch: LogBatch, now_ms: int) -> tuple[Any, ...]:
    whole = Batch(batch.first, batch.bodies, batch.headers, batch.count)
    *_, lengths, headers, bodies = rows.batch_row(whole, now_ms)
    return batch.first, batch.count, now_ms, batch.link_id.bytes, lengths, headers, bodies


def _to_batch(row: tuple[Any, ...], *, is_outline: bool) -> LogBatch:
    first, count, published_at_ms, link_id, *packed = row
    outline = first, count, published_at_ms, 0, None, None, None
    read = rows.to_outline(outline) if is_outline else rows.to_batch((*outline, *packed))
    with decoding("links"):
        return LogBatch(
            read.first,
            number(count, 1),
            read.bodies,
            read.headers,
            UUID(bytes=blob(link_id)),
            time_ms(published_at_ms),
        )
