"""The contract between the protocol and a database.

Everything cassq asks of a database is one of these methods, in eight parts, of which those for schedules and
slots are in `cassq.storage.row_port`, that for topics in `cassq.storage.topic_port`, and that for documents
in `cassq.storage.document_port`; `tests/contract` holds every adapter to every sentence of all of them. An
adapter decides nothing: it retries no write, and judges no state.

Three rules hold for all of them:

- **Errors.** `StorageUnavailableError`: nothing was written, and nothing will be. `AccessDeniedError`: the
  same, and waiting will not help. `OutcomeUnknownError`: a write may have happened, or may still happen
  later. `DecodeError`: a stored row is not one of ours, which is never skipped. Nothing else leaves an
  adapter except `ClosedError` after it was closed and `SchemaMismatchError` where a table is missing.
- **Time.** Every `*_ms` that an adapter fills in is the database's clock, in milliseconds since 1970.
- **Threads.** Every method may be called from many threads at once. After a fork only the parent may call;
  the child gets `ClosedError`. Whoever made an adapter opens and closes it.
"""

from collections.abc import Sequence
from datetime import date
from typing import Protocol
from uuid import UUID

from cassq.model.ids import MessageId
from cassq.model.message import Batch
from cassq.model.pipe import Head, Mark, PipeEntry, PipeState
from cassq.model.queue_record import QueueRecord
from cassq.model.rollup import Rollup
from cassq.model.shelf import Shelf
from cassq.model.topic import ProgressKey
from cassq.model.transaction import Answer, Transaction
from cassq.storage.document_port import DocumentStorage
from cassq.storage.forms import BatchQuery, DeadLetter, Listing, PipeStretch
from cassq.storage.row_port import ScheduleStorage, SlotStorage
from cassq.storage.topic_port import TopicStorage


class RecordStorage(Protocol):
    """The records of queues, each changed by compare-and-set."""

    def read_queues(self, name: str | None = None) -> Sequence[QueueRecord]:
        """Return the record of one queue (or nothing), or of all queues ordered by name.

        Guarantees: linearizable for one name: every applied `change_queue` before the call is seen.
        """
        ...

    def list_queues(self) -> Sequence[str]:
        """Return the names of all queues that are not deleted, in order.

        Guarantees: a record that is damaged is named as any other: of each its state alone is looked at.
        """
        ...

    def glance_queue(self, name: str) -> QueueRecord | None:
        """Return the record of a queue without settling what is under way; None where there is none.

        However many look at once, they do not get into each other's way, nor into that of a change.

        Guarantees: every `change_queue` that had returned True before the call is seen.
        """
        ...

    def change_queue(self, seen: QueueRecord | None, wanted: QueueRecord) -> bool:
        """Write `wanted` if the record still has `seen.op`, or none exists where `seen` is None.

        Deleted records stay as rows in state `deleted`; a new queue of the name replaces such a row.

        Returns: whether it was applied.
        Guarantees: compare-and-set; exactly one of two racing calls with the same `seen` applies.
        Idempotent: no. After a time-out (`OutcomeUnknownError`): read the record; `wanted.op` tells.
        """
        ...


class PipeStorage(Protocol):
    """Lists of pipes, and what is in them: batches, heads, runs and marks."""

    def create_pipe(
        self, queue: str, entry: PipeEntry, head: Head, *, named_by: ProgressKey | None = None
    ) -> None:
        """Create a pipe: the head first, acknowledged, and only then its entry, in the list that it names.

        Args:
            named_by: of a relay: the progress that names the pipe. Nothing happens where the pipe is there,
                nor where it was deleted because the progress named it no more.

        Guarantees: nobody can see the entry before the head. `entry.created_at_ms` is filled in.
        Idempotent: never call it twice for one id, but with `named_by` and the same head: then after a
        time-out, too. Else use a new id; what may be left over is an empty pipe that the reaper retires, or a
        head that nobody lists.
        """
        ...

    def list_pipes(
        self, queue: str, since: UUID | None = None, *, until: UUID | None = None, shelf: Shelf = Shelf.READY
    ) -> Listing:
        """Return the pipes of one list, in time order of their ids, from `since` to `until` (both included).

        Guarantees: every pipe is listed whose `create_pipe` (or `publish_pipes`) returned before the call and
        whose `delete_pipe` was not called, nor `publish_pipes` to another list. `shelf` of the entries is
        filled in.
        """
        ...

    def publish_pipes(self, queue: str, entries: Sequence[PipeEntry], to: Shelf = Shelf.READY) -> None:
        """Move pipes from the list where they were found to another one: the new entries come first.

        Args:
            entries: of one list, which is not that one.

        Guarantees: a pipe is listed in at least one of the two lists at any moment; a pipe that was deleted
        is not brought back. `created_at_ms` of the new entries is filled in.
        Idempotent: yes; also for pipes that were published, consumed and retired already, of which an entry
        without a head may be left that the reaper clears. After a time-out: call it again.
        """
        ...

    def delete_pipe(self, queue: str, pipe: UUID, shelf: Shelf = Shelf.READY) -> None:
        """Delete for ever what was waiting, then what was pending with the head, then its entry in a list.

        Guarantees: nothing that arrives later under this id comes back, whatever its timestamp.
        Idempotent: yes; also for a pipe that is partly deleted already. After a time-out: call it again.
        """
        ...

    def delete_batches(self, pipe: UUID) -> None:
        """Delete for ever what was waiting in a pipe, of which all was pushed and has ended; the rest stays.

        Guarantees: an `append` that was sent before and arrives later brings nothing back.
        Idempotent: yes. After a time-out: call it again.
        """
        ...

    def append(self, pipe: UUID, batch: Batch) -> None:
        """Write one batch under its first number; `pushed_at_ms` is filled in.

        Guarantees: when it returns, the batch is durable and every later `read_batches` sees it. All of it
        or nothing. In a deleted pipe it has no effect.
        Idempotent: yes, for the same batch. After a time-out: send the same batch again, or seal the pipe.
        """
        ...

    def read_batches(self, pipe: UUID, query: BatchQuery) -> Sequence[Batch]:
        """Return the batches that `query` asks for, in its order.

        Guarantees: a batch that one call returned, by outline or not, every later call returns, with its
        bodies. A batch whose `append` timed out may or may not be there; batches may be missing *before* one
        that is there, when both were being written meanwhile, so readers stop at the first gap.
        """
        ...

    def load_pipe(self, pipe: UUID, *, is_whole: bool = False) -> PipeState | None:
        """Return head, and runs and marks above its floor; None when the pipe is gone.

        Args:
            is_whole: those at and below the floor, too. They tell how messages ended.

        Guarantees: linearizable with `transact`: every applied transaction before the call is seen; every
        mark whose `mark` returned before is seen. `now_ms` was read before the runs and marks were.
        """
        ...

    def read_stretch(self, pipe: UUID, first: int, last: int) -> PipeStretch:
        """Return the runs and marks that begin within a stretch of a pipe, also those below its floor.

        Guarantees: every transaction and every mark that returned before the call is seen; one that is under
        way may be missing. It reads no more than these rows, however large the pipe. `now_ms` was read after
        the call began.
        """
        ...

    def transact(self, pipe: UUID, transaction: Transaction) -> Answer:
        """Apply a conditional write to a pipe, all or nothing.

        Guarantees: atomic and linearizable with every other transaction on the pipe. A pipe that is gone
        refuses every transaction.
        Idempotent: no, and never sent again by the adapter. After a time-out (`OutcomeUnknownError`): a
        `load_pipe` tells whether it was applied so far; it may still be applied later, until another
        transaction that is conditional on the op that read showed was applied.
        """
        ...

    def mark(self, pipe: UUID, marks: Sequence[Mark]) -> None:
        """Write marks; of two with the same first number the longer one stands, or that of the later attempt.

        One that tells where messages were moved stands whatever else is written, earlier or later.

        Guarantees: when it returns, every later `load_pipe` sees them. In a deleted pipe no effect.
        Idempotent: yes. After a time-out: call it again.
        """
        ...


class LetterStorage(Protocol):
    """Messages that were given up."""

    def read_dead(
        self, queue: str, after: MessageId | None = None, limit: int = 100, *, until: MessageId | None = None
    ) -> Sequence[DeadLetter]:
        """Return up to `limit` dead letters, in the order of their ids, after `after` (excluded).

        Args:
            until: none behind this one (included).

        Guarantees: however many letters were removed, those that are left are returned.
        """
        ...

    def count_dead(self, queue: str, limit: int) -> int:
        """Return how many dead letters there are, counted up to `limit`; no body is sent for it."""
        ...

    def change_dead(
        self,
        queue: str,
        added: Sequence[DeadLetter] = (),
        removed: Sequence[MessageId] = (),
        *,
        pipes: Sequence[UUID] = (),
    ) -> None:
        """Insert or overwrite dead letters, each under its own id, and remove others.

        Args:
            removed: letters, each of which was there once; those of a pipe that follow each other cost least.
            pipes: of a deleted queue: every letter of these pipes is removed, without being read.

        Guarantees: when it returns, every later `read_dead` shows it. A letter that was removed does not come
            back within a day, also not by adding it again: a burial that is repeated after the letter was put
            back must not bring it a second time.
        Idempotent: yes. After a time-out: call it again.
        """
        ...


class FigureStorage(Protocol):
    """Figures of the past, which expire."""

    def write_rollups(self, queue: str, rollups: Sequence[Rollup]) -> None:
        """Keep figures for thirty days or so, each under its moment, minute, pusher and holder.

        Guarantees: when it returns, every later `read_rollups` of their days sees them, until they are thirty
        days old or were written thirty days ago. Of two under one key the later one stands, by the database's
        clock. The queue need not exist any more.
        Idempotent: yes. After a time-out: call it again.
        """
        ...

    def read_rollups(self, queue: str, day: date) -> Sequence[Rollup]:
        """Return what was rolled up on a day (in UTC), ordered by moment, minute, pusher and holder."""
        ...


class Storage(
    RecordStorage,
    PipeStorage,
    LetterStorage,
    FigureStorage,
    ScheduleStorage,
    SlotStorage,
    TopicStorage,
    DocumentStorage,
    Protocol,
):
    """The database, as the protocol sees it. What needs a part of it names that part."""
