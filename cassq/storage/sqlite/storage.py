"""The embedded store: the storage port over one SQLite file, or over memory.

Same promises as on Cassandra; comments only where SQLite differs. A transaction of SQLite's carries every
guarantee that Cassandra needs timestamps and Paxos for, with one exception: a row that arrives after its
pipe was deleted is refused here by looking at the head, there by the far-future tombstone.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from uuid import UUID

from cassq.limits import NO_LIMIT
from cassq.model.consistency import check_state
from cassq.model.ids import MessageId, time_key
from cassq.model.message import Batch
from cassq.model.pipe import Head, Mark, PipeEntry, PipeState
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.recurrence import ScheduleRecord
from cassq.model.rollup import Rollup
from cassq.model.shelf import Shelf
from cassq.model.topic import ProgressKey
from cassq.model.transaction import Answer, Seal, Transaction
from cassq.runtime.clock import Clock, SystemClock
from cassq.runtime.files import FILE_MODE
from cassq.storage.forms import BatchQuery, DeadLetter, Listing, PipeStretch
from cassq.storage.sqlite import letters, lists, pending, rows, schedules, slots, topics
from cassq.storage.sqlite import rollups as rollups_of
from cassq.storage.sqlite.documents import SqliteDocuments
from cassq.storage.sqlite.file import SqliteFile
from cassq.storage.sqlite.topics import SqliteTopics
from cassq.storage.sqlite.transactions import MARK, head_update, mark_rows, run_write

_HEAD = (
    "op, cursor, read_from, floor, phase, last, skipped, dead, purged, rolled_back, expired, journal,"
    " journal_from, journal_kind"
)
_RECORD = "name, incarnation, op, state, settings, totals, counted, samples, writers, publications, expired"


class _RefusedError(Exception):
    """Rolls a transaction back whose condition does not hold."""


class SqliteStorage(SqliteTopics, SqliteDocuments):
    """Keeps queues in one SQLite file that many processes of one machine may share.

    Args:
        path: the file; None keeps everything in memory, for the threads of this process.
        is_synced: whether every write waits for the disk.
        clock: the machine's elapsed time.
        mode: who may use the file, if it is made.

    Raises: see `SqliteFile`.
    """

    def __init__(
        self,
        path: str | None,
        *,
        is_synced: bool = True,
        clock: Clock | None = None,
        mode: int = FILE_MODE,
    ) -> None:
        self._file = SqliteFile(path, clock or SystemClock(), is_synced=is_synced, mode=mode)

    def close(self) -> None:
        """Close the file; nothing happens when it is closed already."""
        self._file.close()

    def read_queues(self, name: str | None = None) -> Sequence[QueueRecord]:
        """See `Storage.read_queues`."""
        where = "" if name is None else "WHERE name = ?"
        with self._file.reading() as db:
            found = db.execute(
                f"SELECT {_RECORD} FROM queues {where} ORDER BY name",  # noqa: S608 - our own words
                () if name is None else (name,),
            ).fetchall()
        return [rows.to_record(row) for row in found]

    def list_queues(self) -> Sequence[str]:
        """See `Storage.list_queues`."""
        living = "SELECT name FROM queues WHERE state != ? ORDER BY name"
        with self._file.reading() as db:
            return [name for (name,) in db.execute(living, (QueueState.DELETED.value,))]

    def glance_queue(self, name: str) -> QueueRecord | None:
        """See `Storage.glance_queue`; nothing is ever under way here."""
        found = next(iter(self.read_queues(name)), None)
        return found and replace(found, read_at_ms=self._file.now_ms())

    def change_queue(self, seen: QueueRecord | None, wanted: QueueRecord) -> bool:
        """See `Storage.change_queue`."""
        columns = ", ".join(f"{column} = ?" for column in _RECORD.split(", ")[1:])
        row = rows.record_row(wanted)
        with self._file.writing() as db:
            if seen is not None:
                change = f"UPDATE queues SET {columns} WHERE name = ? AND op = ?"  # noqa: S608
                return db.execute(change, (*row, wanted.name, seen.op.bytes)).rowcount == 1
            db.execute(
                "DELETE FROM queues WHERE name = ? AND state = ?", (wanted.name, QueueState.DELETED.value)
            )
            insert = f"INSERT OR IGNORE INTO queues ({_RECORD}) VALUES (?,?,?,?,?,?,?,?,?,?,?)"  # noqa: S608
            return db.execute(insert, (wanted.name, *row)).rowcount == 1

    def create_pipe(
        self, queue: str, entry: PipeEntry, head: Head, *, named_by: ProgressKey | None = None
    ) -> None:
        """See `Storage.create_pipe`."""
        key = time_key(entry.pipe)
        with self._file.writing() as db:
            if named_by and not topics.may_create(db, entry.pipe, named_by):
                return
            db.execute(
                f"INSERT INTO heads (pipe, {_HEAD}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608
                (key, *rows.head_row(head)),
            )
            lists.add(db, queue, [entry], entry.shelf, self._file.now_ms())

    def list_pipes(
        self, queue: str, since: UUID | None = None, *, until: UUID | None = None, shelf: Shelf = Shelf.READY
    ) -> Listing:
        """See `Storage.list_pipes`."""
        with self._file.reading() as db:
            now_ms = self._file.now_ms()
            found = lists.read(db, queue, shelf, since, until)
        return Listing(tuple(rows.to_entry(row, shelf) for row in found), now_ms)

    def publish_pipes(self, queue: str, entries: Sequence[PipeEntry], to: Shelf = Shelf.READY) -> None:
        """See `Storage.publish_pipes`; here it is one step."""
        with self._file.writing() as db:
            lists.add(db, queue, entries, to, self._file.now_ms())
            lists.remove(db, queue, [entry.pipe for entry in entries], entries[0].shelf)

    def delete_pipe(self, queue: str, pipe: UUID, shelf: Shelf = Shelf.READY) -> None:
        """See `Storage.delete_pipe`; here it is one step."""
        key = time_key(pipe)
        with self._file.writing() as db:
            for table in ("waiting", "marks", "runs", "heads"):
                db.execute(f"DELETE FROM {table} WHERE pipe = ?", (key,))  # noqa: S608
            letters.forget_removed(db, self._file.now_ms())
            lists.remove(db, queue, [pipe], shelf)

    def delete_batches(self, pipe: UUID) -> None:
        """See `Storage.delete_batches`."""
        with self._file.writing() as db:
            db.execute("DELETE FROM waiting WHERE pipe = ?", (time_key(pipe),))

    def append(self, pipe: UUID, batch: Batch) -> None:
        """See `Storage.append`."""
        key = time_key(pipe)
        with self._file.writing() as db:
            db.execute(
                "INSERT OR IGNORE INTO waiting"
                " (pipe, first, count, pushed_at_ms, ttl_ms, dues, origins, keys, lengths, headers, bodies)"
                " SELECT ?,?,?,?,?,?,?,?,?,?,? WHERE EXISTS (SELECT 1 FROM heads WHERE pipe = ?)",
                (key, *rows.batch_row(batch, self._file.now_ms()), key),
            )

    def read_batches(self, pipe: UUID, query: BatchQuery) -> Sequence[Batch]:
        """See `Storage.read_batches`."""
        columns, read = "first, count, pushed_at_ms, ttl_ms, dues, origins, keys", rows.to_outline
        if query.has_headers:
            columns, read = f"{columns}, headers", rows.to_headers
        elif not query.is_outline:
            columns, read = f"{columns}, lengths, headers, bodies", rows.to_batch
        order = "DESC" if query.is_newest_first else "ASC"
        with self._file.reading() as db:
            found = db.execute(
                f"SELECT {columns} FROM waiting"  # noqa: S608 - our own words
                f" WHERE pipe = ? AND first BETWEEN ? AND ? ORDER BY first {order} LIMIT ?",
                (time_key(pipe), query.first, query.last, query.limit),
            ).fetchall()
        return list(map(read, found))

    def load_pipe(self, pipe: UUID, *, is_whole: bool = False) -> PipeState | None:
        """See `Storage.load_pipe`."""
        key = time_key(pipe)
        now_ms = self._file.now_ms()
        with self._file.reading() as db:
            row = db.execute(f"SELECT {_HEAD} FROM heads WHERE pipe = ?", (key,)).fetchone()  # noqa: S608
            if row is None:
                return None
            head = rows.to_head(row)
            runs, marks = pending.read(db, key, 1 if is_whole else head.floor + 1, NO_LIMIT)
        state = PipeState(head, runs, marks, now_ms)
        return state if is_whole else check_state(pipe, state)

    def read_stretch(self, pipe: UUID, first: int, last: int) -> PipeStretch:
        """See `Storage.read_stretch`."""
        now_ms = self._file.now_ms()
        with self._file.reading() as db:
            return PipeStretch(*pending.read(db, time_key(pipe), first, last), now_ms)

    def transact(self, pipe: UUID, transaction: Transaction) -> Answer:
        """See `Storage.transact`."""
        key = time_key(pipe)
        try:
            with self._file.writing() as db:
                if transaction.head:
                    sql, values = head_update(key, transaction.head)
                    if db.execute(f"UPDATE heads SET {sql}", values).rowcount != 1:  # noqa: S608
                        raise _RefusedError
                for change in transaction.runs:
                    sql, values = run_write(key, change, self._file.now_ms())
                    if db.execute(sql, values).rowcount != 1:
                        raise _RefusedError
                db.executemany(MARK, mark_rows(key, transaction.marks, self._file.now_ms()))
        except _RefusedError:
            return self._refusal(key, transaction)
        return Answer(is_applied=True)

    def _refusal(self, key: bytes, transaction: Transaction) -> Answer:
        if not isinstance(transaction.head, Seal):
            return Answer(is_applied=False)
        with self._file.reading() as db:
            row = db.execute("SELECT cursor, last FROM heads WHERE pipe = ?", (key,)).fetchone()
        return Answer(False, *row) if row else Answer(is_applied=False)

    def mark(self, pipe: UUID, marks: Sequence[Mark]) -> None:
        """See `Storage.mark`."""
        key = time_key(pipe)
        with self._file.writing() as db:
            db.executemany(MARK, mark_rows(key, marks, self._file.now_ms()))

    def read_dead(
        self, queue: str, after: MessageId | None = None, limit: int = 100, *, until: MessageId | None = None
    ) -> Sequence[DeadLetter]:
        """See `Storage.read_dead`."""
        with self._file.reading() as db:
            found = letters.read(db, queue, after, until, limit)
        return [rows.to_letter(row) for row in found]

    def count_dead(self, queue: str, limit: int) -> int:
        """See `Storage.count_dead`."""
        with self._file.reading() as db:
            return letters.count(db, queue, limit)

    def change_dead(
        self,
        queue: str,
        added: Sequence[DeadLetter] = (),
        removed: Sequence[MessageId] = (),
        *,
        pipes: Sequence[UUID] = (),
    ) -> None:
        """See `Storage.change_dead`."""
        with self._file.writing() as db:
            now_ms = self._file.now_ms()
            letters.add(db, queue, added, now_ms)
            letters.remove(db, queue, removed, pipes, now_ms)

    def write_rollups(self, queue: str, rollups: Sequence[Rollup]) -> None:
        """See `Storage.write_rollups`; nothing else deletes what is older than thirty days."""
        with self._file.writing() as db:
            rollups_of.write(db, queue, rollups, self._file.now_ms())

    def read_rollups(self, queue: str, day: date) -> Sequence[Rollup]:
        """See `Storage.read_rollups`."""
        with self._file.reading() as db:
            return list(map(rollups_of.to_rollup, rollups_of.read(db, queue, day)))

    def read_schedules(self, incarnation: UUID, name: str | None = None) -> Sequence[ScheduleRecord]:
        """See `Storage.read_schedules`."""
        with self._file.reading() as db:
            found = schedules.read(db, incarnation, name)
        return list(map(schedules.to_schedule, found))

    def change_schedule(
        self, incarnation: UUID, name: str, seen: ScheduleRecord | None, wanted: ScheduleRecord | None
    ) -> bool:
        """See `Storage.change_schedule`."""
        with self._file.writing() as db:
            return schedules.change(db, incarnation, name, seen, wanted)

    def delete_schedules(self, incarnation: UUID) -> None:
        """See `Storage.delete_schedules`."""
        with self._file.writing() as db:
            schedules.delete_all(db, incarnation)

    def read_slot(
        self,
        incarnation: UUID,
        slot: int,
        *,
        is_settled: bool = True,  # noqa: ARG002 - every read is
    ) -> UUID | None:
        """See `Storage.read_slot`."""
        with self._file.reading() as db:
            return slots.read(db, incarnation, slot)

    def change_slot(self, incarnation: UUID, slot: int, seen: UUID | None, op: UUID) -> bool:
        """See `Storage.change_slot`."""
        with self._file.writing() as db:
            return slots.change(db, incarnation, slot, seen, op)

    def delete_slots(self, incarnation: UUID) -> None:
        """See `Storage.delete_slots`."""
        with self._file.writing() as db:
            slots.delete_all(db, incarnation)
