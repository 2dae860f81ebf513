"""The storage port on Cassandra.

Owns the translation of each of the port's methods into statements, and the order in which they are sent. It
refuses to decide: conditions are the database's to judge, and what an unknown outcome means is the caller's.

What must not break: the clock is read before a pipe's runs and marks are, and head, runs and marks belong
together.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from uuid import UUID

from cassq.limits import SLOTS_MAX
from cassq.model.consistency import check_state
from cassq.model.ids import MessageId
from cassq.model.message import Batch
from cassq.model.pipe import Head, Mark, PipeEntry, PipeState
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.recurrence import ScheduleRecord
from cassq.model.rollup import Rollup
from cassq.model.shelf import Shelf
from cassq.model.topic import ProgressKey
from cassq.model.transaction import Answer, Transaction
from cassq.storage.cassandra import lists, rows, schedules
from cassq.storage.cassandra import rollups as rollups_of
from cassq.storage.cassandra import row_statements as row_cql
from cassq.storage.cassandra import statements as cql
from cassq.storage.cassandra.documents import CassandraDocuments
from cassq.storage.cassandra.letters import count_letters, read_letters, removals
from cassq.storage.cassandra.session import CassandraSession, Work
from cassq.storage.cassandra.statement import Statement
from cassq.storage.cassandra.topics import CassandraTopics
from cassq.storage.cassandra.transactions import timed, to_answer, to_work
from cassq.storage.cassandra.values import Values, decoding, to_ms, to_uuid
from cassq.storage.forms import BatchQuery, DeadLetter, Listing, PipeStretch

_MARKS_PER_WRITE = 1000
_ENTRIES_PER_WRITE = 100
_LARGE_MAX = 1000


class CassandraStorage(CassandraTopics, CassandraDocuments):
    """Keeps queues in one keyspace of a Cassandra cluster.

    Args:
        session: the connections; closed together with the storage.
    """

    def __init__(self, session: CassandraSession) -> None:
        self._session = session
        # Pipes that had more rows than one read shows; who is forgotten costs such a read again.
        self._large: set[UUID] = set()

    def close(self) -> None:
        """Close the connections; nothing happens when they are closed already."""
        self._session.close()

    def read_queues(self, name: str | None = None) -> Sequence[QueueRecord]:
        """See `Storage.read_queues`."""
        if name is None:
            found = self._session.execute(cql.READ_QUEUES)
        else:
            found = self._session.execute(cql.READ_QUEUE, (name, cql.SHARD))
        return sorted(map(rows.to_record, found), key=lambda record: record.name)

    def list_queues(self) -> Sequence[str]:
        """See `Storage.list_queues`."""
        found = self._session.execute(cql.READ_QUEUES)  # all columns, so that read repair heals them all
        return sorted(name for name, _, _, state, *_ in found if state != QueueState.DELETED.value)

    def glance_queue(self, name: str) -> QueueRecord | None:
        """See `Storage.glance_queue`."""
        for *columns, now in self._session.execute(cql.GLANCE_QUEUE, (name, cql.SHARD)):
            return replace(rows.to_record(tuple(columns)), read_at_ms=to_ms(now))
        return None

    def change_queue(self, seen: QueueRecord | None, wanted: QueueRecord) -> bool:
        """See `Storage.change_queue`."""
        values = (*rows.record_values(wanted), wanted.name, cql.SHARD)
        if seen is not None:
            return self._is_applied(cql.CHANGE_QUEUE, (*values, seen.op))
        if self._is_applied(cql.INSERT_QUEUE, values):
            return True
        return self._is_applied(cql.REPLACE_QUEUE, (*values, QueueState.DELETED.value))

    def _is_applied(self, statement: Statement, values: Values) -> bool:
        return bool(self._session.execute(statement, values)[0][0])

    def create_pipe(
        self, queue: str, entry: PipeEntry, head: Head, *, named_by: ProgressKey | None = None
    ) -> None:
        """See `Storage.create_pipe`; a pipe that is there, or was deleted, no such row changes."""
        del named_by
        born: Work = (cql.INSERT_HEAD, (entry.pipe, *rows.head_values(head)))
        self._session.execute_in_turn([[born], *lists.listing(queue, [entry], entry.shelf)])

    def list_pipes(
        self, queue: str, since: UUID | None = None, *, until: UUID | None = None, shelf: Shelf = Shelf.READY
    ) -> Listing:
        """See `Storage.list_pipes`."""
        found, entries = lists.read(self._session, queue, shelf, since, until)
        now = found[0][-1] if found else self._session.execute(cql.READ_CLOCK)[0][0]
        return Listing(entries, to_ms(now))

    def publish_pipes(self, queue: str, entries: Sequence[PipeEntry], to: Shelf = Shelf.READY) -> None:
        """See `Storage.publish_pipes`."""
        steps: list[list[Work]] = []
        for begin in range(0, len(entries), _ENTRIES_PER_WRITE):
            moved = entries[begin : begin + _ENTRIES_PER_WRITE]
            steps += lists.listing(queue, moved, to)
            steps += lists.unlisting(queue, [entry.pipe for entry in moved], entries[0].shelf)
        self._session.execute_in_turn(steps)

    def delete_pipe(self, queue: str, pipe: UUID, shelf: Shelf = Shelf.READY) -> None:
        """See `Storage.delete_pipe`."""
        self._session.execute_in_turn(
            [
                [(cql.DELETE_WAITING, (pipe,))],
                [(cql.DELETE_PENDING, (pipe,))],
                *lists.unlisting(queue, [pipe], shelf),
            ]
        )

    def delete_batches(self, pipe: UUID) -> None:
        """See `Storage.delete_batches`."""
        self._session.execute(cql.DELETE_WAITING, (pipe,))

    def append(self, pipe: UUID, batch: Batch) -> None:
        """See `Storage.append`."""
        self._session.execute(cql.APPEND, rows.batch_values(pipe, batch))

    def read_batches(self, pipe: UUID, query: BatchQuery) -> Sequence[Batch]:
        """See `Storage.read_batches`."""
        statement = cql.READ_BATCHES[query.is_newest_first, query.is_outline]
        read = rows.to_outline if query.is_outline else rows.to_batch
        if query.has_headers:
            statement, read = cql.READ_HEADERS, rows.to_headers
        found = self._session.execute(statement, (pipe, query.first, query.last, query.limit))
        there = list(filter(rows.is_batch_there, found))
        batches = list(map(read, there))
        left = len(found) - len(there)
        if left and query.is_newest_first:  # others may be there before it
            batches += self.read_batches(pipe, replace(query, last=found[-1][0] - 1, limit=left))
        return batches

    def load_pipe(self, pipe: UUID, *, is_whole: bool = False) -> PipeState | None:
        """See `Storage.load_pipe`.

        One read shows all of a small pipe. Of a large one only what is above the floor is read, which takes a
        look at the head first; when the head's op is the same before and after, no owner came in between:

            this reader                  an owner
            | head: op 1, floor 40
            |                            | take: op 2, inserts run 90
            | rows above 40, with 90
            | head: op 2 -> not one state: read everything at once
        """
        if is_whole:
            now_ms = to_ms(self._session.execute(cql.READ_CLOCK)[0][0])
            found = self._session.execute(cql.READ_STATE, (pipe,))
            head = rows.find_head(found)
            return PipeState(head, *rows.to_runs_and_marks(found, 0), now_ms) if head else None
        if pipe in self._large:
            # The head tells nothing of leases, so it may be read beside the clock.
            clock = self._session.start(cql.READ_CLOCK)
            found = self._session.execute(cql.READ_HEAD, (pipe,))
            now_ms = to_ms(self._session.finish(cql.READ_CLOCK, clock)[0][0])
            is_large = bool(found)
        else:
            now_ms = to_ms(self._session.execute(cql.READ_CLOCK)[0][0])
            found = self._session.execute(cql.READ_STATE_BEGINNING, (pipe,))
            is_large = len(found) == cql.STATE_ROWS_MAX
        head = rows.find_head(found)
        if head is not None and is_large:
            self._note_large(pipe)
            found = self._session.execute(cql.READ_STATE_ABOVE, (pipe, head.floor))
            settled = rows.find_head(self._session.execute(cql.READ_HEAD, (pipe,)))
            if settled is None or settled.op != head.op:
                found = self._session.execute(cql.READ_STATE, (pipe,))
                settled = rows.find_head(found)
            head = settled
        if head is None:
            return None
        runs, marks = rows.to_runs_and_marks(found, head.floor)
        state = PipeState(head, runs, marks, now_ms)
        # Rows of several pages are not one state: a run may have been split between two of them.
        return check_state(pipe, state) if len(found) <= cql.PAGE_OF_STATE else state

    def _note_large(self, pipe: UUID) -> None:
        if len(self._large) >= _LARGE_MAX:
            self._large = set()
        self._large.add(pipe)

    def read_stretch(self, pipe: UUID, first: int, last: int) -> PipeStretch:
        """See `Storage.read_stretch`."""
        found = self._session.execute(cql.READ_STRETCH, (pipe, first, last))
        return PipeStretch(*rows.to_runs_and_marks(found, 0), to_ms(found[-1][-1]) if found else 0)

    def transact(self, pipe: UUID, transaction: Transaction) -> Answer:
        """See `Storage.transact`."""
        reply = self._session.execute_conditional(to_work(pipe, transaction))
        return to_answer(transaction, reply)

    def mark(self, pipe: UUID, marks: Sequence[Mark]) -> None:
        """See `Storage.mark`."""
        work = [(timed(cql.MARK, mark), rows.plain_mark_values(pipe, mark)) for mark in marks]
        self._session.execute_in_turn(
            [work[begin : begin + _MARKS_PER_WRITE] for begin in range(0, len(work), _MARKS_PER_WRITE)]
        )

    def read_dead(
        self, queue: str, after: MessageId | None = None, limit: int = 100, *, until: MessageId | None = None
    ) -> Sequence[DeadLetter]:
        """See `Storage.read_dead`."""
        return list(map(rows.to_letter, read_letters(self._session, queue, after, until, limit)))

    def count_dead(self, queue: str, limit: int) -> int:
        """See `Storage.count_dead`."""
        return count_letters(self._session, queue, limit)

    def change_dead(
        self,
        queue: str,
        added: Sequence[DeadLetter] = (),
        removed: Sequence[MessageId] = (),
        *,
        pipes: Sequence[UUID] = (),
    ) -> None:
        """See `Storage.change_dead`."""
        work: list[Work] = [
            (cql.INSERT_DEAD, (queue, cql.SHARD, *rows.letter_values(letter))) for letter in added
        ]
        work.extend(removals(queue, removed, pipes))
        self._session.execute_each(work)

    def write_rollups(self, queue: str, rollups: Sequence[Rollup]) -> None:
        """See `Storage.write_rollups`."""
        self._session.execute_each(
            (cql.INSERT_ROLLUP, (queue, cql.SHARD, *rollups_of.rollup_values(rollup))) for rollup in rollups
        )

    def read_rollups(self, queue: str, day: date) -> Sequence[Rollup]:
        """See `Storage.read_rollups`."""
        found = self._session.execute(cql.READ_ROLLUPS, (queue, cql.SHARD, day))
        return list(map(rollups_of.to_rollup, found))

    def read_schedules(self, incarnation: UUID, name: str | None = None) -> Sequence[ScheduleRecord]:
        """See `Storage.read_schedules`."""
        if name is None:
            found = self._session.execute(row_cql.READ_SCHEDULES, (incarnation,))
        else:
            found = self._session.execute(row_cql.READ_SCHEDULE, (incarnation, name))
        return [schedules.to_schedule(row) for row in found if schedules.op_of_deleted(row) is None]

    def change_schedule(
        self, incarnation: UUID, name: str, seen: ScheduleRecord | None, wanted: ScheduleRecord | None
    ) -> bool:
        """See `Storage.change_schedule`."""
        key = incarnation, name
        # One that is deleted leaves its row, with an op: an insertion that lands late is refused by it.
        values = *(schedules.to_values(wanted) if wanted else schedules.deleted_values()), *key
        if seen is not None:
            return self._is_applied(row_cql.CHANGE_SCHEDULE, (*values, seen.op))
        if wanted is None:
            return False
        found = self._session.execute(row_cql.READ_SCHEDULE, key)
        if not found:
            return self._is_applied(row_cql.INSERT_SCHEDULE, values)
        left = schedules.op_of_deleted(found[0])
        return left is not None and self._is_applied(row_cql.CHANGE_SCHEDULE, (*values, left))

    def delete_schedules(self, incarnation: UUID) -> None:
        """See `Storage.delete_schedules`."""
        self._session.execute(row_cql.DELETE_SCHEDULES, (incarnation,))

    def read_slot(self, incarnation: UUID, slot: int, *, is_settled: bool = True) -> UUID | None:
        """See `Storage.read_slot`."""
        statement = row_cql.READ_SLOT if is_settled else row_cql.GLANCE_SLOT
        for row in self._session.execute(statement, (incarnation, slot)):
            with decoding("a slot", row):
                return to_uuid(row[0])
        return None

    def change_slot(self, incarnation: UUID, slot: int, seen: UUID | None, op: UUID) -> bool:
        """See `Storage.change_slot`."""
        values = op, incarnation, slot
        if seen is None:
            return self._is_applied(row_cql.INSERT_SLOT, values)
        return self._is_applied(row_cql.CHANGE_SLOT, (*values, seen))

    def delete_slots(self, incarnation: UUID) -> None:
        """See `Storage.delete_slots`."""
        self._session.execute_each((row_cql.DELETE_SLOT, (incarnation, slot)) for slot in range(SLOTS_MAX))
