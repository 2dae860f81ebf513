"""Bulk writes that happen all or not at all: pipes are filled where no popper looks, and published together.

Owns the decision what is published. A task fills staged pipes (`StagedPipes`); then one process names them in
a *manifest*, a staged pipe itself, and writes into the queue's record that this manifest is batch N of the
writer. That write decides: before it nothing of the batch is seen; after it all of it is going to be, whoever
comes by.

    driver A, batch 7            the record                 driver B, batch 7 once more
    | tasks stage P1, P2                                    | tasks stage P3, P4
    | manifest M = P1, P2                                   |
    | writer at 6 -> 7, M --------->                        |
    | (killed)                     <------- writer is at 7: | drop P3, P4; publish what M names,
    |                                                       | delete M, writer -> 7, nothing left
    |                              the reaper does the same, if nobody comes

What must not break: of one batch of a writer one set of pipes is published, whoever repeats it; and what was
decided is never deleted. How much an entry of the lists proves is told by `StagedList`.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from cassq.bulk import writers
from cassq.bulk.manifest import read_manifest, write_manifest
from cassq.bulk.staged_list import PUBLISH_WITHIN_S, StagedList, age_of, since
from cassq.bulk.staged_pipes import StagedPipes
from cassq.bulk.writers import ONCE
from cassq.catalog.queue_context import QueueContext
from cassq.errors import AccessDeniedError, CassqError, OutcomeUnknownError, PipeLostError, UnavailableError
from cassq.model.ids import check_name, just_before
from cassq.model.queue_record import QueueRecord, Written
from cassq.model.shelf import Shelf
from cassq.model.uses import EVERY_POPPER, uses_types

#: More poppers than a queue has.
MANY = 100_000

#: What is staged and undecided for twice as long belongs to a write that failed.
KEPT_S = 2 * PUBLISH_WITHIN_S

#: A writer of one batch that failed is remembered for so long; what its tasks leave behind goes at once.
FORGET_S = 3 * 3600.0

#: Attempts that do not count go with their batch if they began at most so long before what counts, the others
#: with what is old: to read the whole list is to read the tombstones of a day.
LOSERS_WITHIN_S = 3600.0

#: Between the look whether all pipes are there and the decision at most so much time may pass.
DECIDE_WITHIN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Tidied:
    """What `Staging.tidy` did.

    Attributes:
        published: decided writes whose pipes were published for somebody who died.
        removed: staged pipes of failed writes that were deleted.
        failed: what could not be published, in words.
        refused: for how many of those the role lacks a permission.
    """

    published: int = 0
    removed: int = 0
    failed: tuple[str, ...] = ()
    refused: int = 0


class _AlreadyDecidedError(Exception):
    """The batch was decided before, by this or another process.

    Attributes:
        record: which tells so.
    """

    def __init__(self, record: QueueRecord) -> None:
        super().__init__()
        self.record = record


class _UnfinishedError(Exception):
    """An earlier batch of the writer was decided, and is not published yet."""


class Staging:
    """The staged pipes of one queue."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._storage = context.storage
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._record = context.record
        self._list = StagedList(context)
        self._clock = context.clock

    def open(
        self,
        writer: str,
        batch: int,
        task: str,
        *,
        priority: int = 0,
        type: str | None = None,  # noqa: A002
    ) -> StagedPipes:
        """Return new staged pipes for one task of a batch; each attempt at the task takes its own.

        Args:
            writer: who writes, in the letters of a queue's name; one that begins with "once-" has one batch.
            batch: number of the batch; a writer's batches are published in ascending order.
            task: which task and attempt, for people to read.
            priority, type: of its messages, as of `Queue.push`; each may have its own.

        Raises:
            InvalidNameError, InvalidOptionError: a value breaks a rule.
            StorageUnavailableError: the queue's record could not be read, or changed.
        """
        name = f"{check_name(writer, 'name of a writer')}/{batch}/{task}"
        self._record.check_open()  # and hear of settings that were altered
        return StagedPipes(self._context, name, options={"priority": priority, "type": type})

    def publish(self, writer: str, batch: int, pipes: Sequence[UUID]) -> bool:
        """Publish a batch: all of these pipes or, when the batch was decided before, none.

        Not beside a `discard` of the same pipes: a driver calls one after the other.

        Args:
            pipes: what the tasks that count returned from `StagedPipes.close`.

        Returns: whether these pipes are the batch; False when it, or a later one, was decided before.
        Idempotent: yes. After an error the batch may be decided: call it again, or leave it to the reaper.

        Raises:
            PipeLostError: pipes are no longer there; nothing was published.
            OutcomeUnknownError: the batch may be decided. When this is told again and again: it was decided
                before, and the pipes are gone, because they were consumed or did not count.
            QueueNotFoundError, StorageUnavailableError: nothing was decided.
        """
        if writer.startswith(ONCE) and not pipes:
            return True
        record = self._finish(self._record.read(), writer)
        decided_by: UUID | None = None
        if not writers.is_decided(record, writer, batch):
            record, decided_by = self._decide(writer, batch, pipes)
        try:
            record = self._finish(record, writer)
            is_ours = decided_by is not None or not pipes or self._are_published(writer, batch, pipes)
            if writers.is_finished(record, writer, batch):
                own = f"{writer}/{batch}/"  # what is left of the batch: attempts that did not count
                begun = just_before(since(pipes), LOSERS_WITHIN_S) if pipes else None
                self._list.remove_undecided(record, lambda entry: entry.pusher.startswith(own), begun)
            self._forget(writer)
        except UnavailableError as error:
            told = f"writer {writer!r}: batch {batch} is decided, and may not be published yet"
            raise OutcomeUnknownError(f"{told}: {error}") from error
        return is_ours

    def _are_published(self, writer: str, batch: int, pipes: Collection[UUID]) -> bool:
        """Tell whether pipes were published, once nothing of the writer's is left to be published.

        Raises: OutcomeUnknownError: they are gone, and who deleted them left no trace.
        """
        if self._list.published(pipes):
            return True
        if self._list.is_standing(pipes):  # so it was not published, as all of a batch is
            return False
        raise OutcomeUnknownError(
            f"writer {writer!r}: whether these pipes are batch {batch} cannot be told: they are gone. "
            "They were published and consumed, or did not count; this call published nothing"
        )

    def discard(self, writer: str, batch: int, pipes: Iterable[UUID]) -> None:
        """Delete pipes of a batch that failed; where it was decided all the same, publish it instead."""
        # A decision whose outcome was unknown may still land, until another change of the record was applied.
        record = self._finish(self._record.change(lambda seen: seen), writer)
        if writers.is_decided(record, writer, batch):
            return
        if writer.startswith(ONCE):
            # Decided: nothing. So what tasks that still run leave behind can be told from what may yet count.
            record, _ = self._decide(writer, batch, ())
            record = self._finish(record, writer)
            self._list.remove_undecided(record, lambda entry: writers.is_of(entry, {writer}))
            return
        gone = set(pipes)
        self._list.remove_undecided(record, lambda entry: entry.pipe in gone)

    def tidy(self) -> Tidied:
        """Publish what was decided and not finished; delete what can never be published any more."""
        published = 0
        failed: list[str] = []
        refused = 0
        record = self._record.read()
        for writer, written in record.writers.items():
            if written.manifest:
                try:
                    record = self._finish(record, writer)
                    published += 1
                except CassqError as error:
                    failed.append(f"writer {writer!r}: {error}")
                    refused += isinstance(error, AccessDeniedError)
        listing = self._list.read()
        ended = writers.ended(record)
        removed = self._list.remove(entry for entry in listing.entries if writers.is_of(entry, ended))
        self._forget_old(record, listing.now_ms)
        old = {entry.pipe for entry in listing.entries if age_of(listing, entry) > KEPT_S}
        if old:
            record = self._record.change(lambda seen: seen)  # nobody decides on what it read before this
            if not any(written.manifest for written in record.writers.values()):
                # Once more: what was published meanwhile is not staged any more.
                removed += self._list.remove_undecided(record, lambda entry: entry.pipe in old)
        return Tidied(published, removed, tuple(failed), refused)

    def _decide(self, writer: str, batch: int, pipes: Sequence[UUID]) -> tuple[QueueRecord, UUID | None]:
        """Decide a batch, if it is not decided yet.

        Returns: a record in which it is, and the manifest, if it is known that this call decided by one.
        """
        try:
            return self._try_to_decide(writer, batch, pipes)
        except PipeLostError:
            # A decision that this call or an earlier one sent may land until another change was applied.
            try:
                record = self._finish(self._record.change(lambda seen: seen), writer)
            except UnavailableError as error:
                told = f"writer {writer!r}: batch {batch} may be decided, by an earlier attempt"
                raise OutcomeUnknownError(f"{told}: {error}") from error
            if writers.is_decided(record, writer, batch):
                return record, None
            if pipes and writer.startswith(ONCE) and self._are_published(writer, batch, pipes):
                return record, None  # and the writer is forgotten since
            raise

    def _try_to_decide(
        self, writer: str, batch: int, pipes: Sequence[UUID]
    ) -> tuple[QueueRecord, UUID | None]:
        manifest: UUID | None = None
        looked_at = self._clock.latest()
        if pipes:
            staged = self._list.check_are_there(pipes)
            manifest = write_manifest(self._context, f"{writer}/{batch}/manifest", staged)

        def decide(record: QueueRecord) -> QueueRecord:
            if writers.is_decided(record, writer, batch):
                raise _AlreadyDecidedError(record)
            standing = record.writers.get(writer)
            if standing and standing.manifest:
                raise _UnfinishedError  # to decide over it would be to lose it
            if pipes and self._clock.latest() - looked_at > DECIDE_WITHIN_S:
                raise PipeLostError(
                    f"writer {writer!r}: batch {batch} was held up for too long; write it again"
                )
            return writers.decide(record, writer, batch, manifest)

        while True:
            try:
                return self._record.change(decide), manifest
            except _AlreadyDecidedError as found:
                record = found.record
                is_ours = manifest is not None and record.writers.get(writer) == Written(batch, manifest)
                return record, manifest if is_ours else None
            except _UnfinishedError:
                self._finish(self._record.read(), writer)

    def _finish(self, record: QueueRecord, writer: str) -> QueueRecord:
        """Publish what was decided of a writer; say so in the record; only then delete the manifest."""
        written = record.writers.get(writer)
        if written is None or written.manifest is None:
            return record
        named = read_manifest(self._storage, written.manifest)
        if named:
            self._list.publish(named)
        record = self._record.change(lambda seen: writers.finish(seen, writer, written))
        if uses_types(record.settings):  # which types were published nobody reads for that
            self._coordinator.wake(self._queue, MANY, types=EVERY_POPPER)
        else:
            self._coordinator.wake(self._queue, len(named))
        with suppress(UnavailableError, OutcomeUnknownError):  # then it goes with what is old
            self._storage.delete_pipe(self._queue, written.manifest, shelf=Shelf.STAGED)
        return record

    def _forget(self, writer: str) -> None:
        """Take a writer of one batch out of the record, once nobody can repeat the batch."""
        if writer.startswith(ONCE) and writer in self._record.read().writers:
            with suppress(UnavailableError, OutcomeUnknownError):  # then it goes when it is old
                self._record.change(lambda seen: writers.without(seen, {writer}))

    def _forget_old(self, record: QueueRecord, now_ms: int) -> None:
        """Take writers of one batch out that failed, or whose driver died; their names tell when that was."""
        old = writers.born_before(record, now_ms - 1000 * FORGET_S)
        if old:
            self._record.change(lambda seen: writers.without(seen, old))
