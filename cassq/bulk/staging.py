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
decided is never deleted. A database may forget that a staged entry was deleted, and show it again: an entry
alone proves nothing; the record and the queue's own list tell what was published.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from uuid import UUID

from cassq.bulk.staged_pipes import StagedPipes
from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, OutcomeUnknownError, PipeLostError, UnavailableError
from cassq.limits import MIB
from cassq.model.ids import check_name, just_before, time_key
from cassq.model.message import NO_HEADERS
from cassq.model.pipe import PipeEntry
from cassq.model.queue_record import QueueRecord, Written
from cassq.model.settings import QueueSettings
from cassq.storage.port import BatchQuery, Listing

#: A batch is published only within this time after its pipes were staged, by the database's clock; what is
#: staged and undecided for twice as long belongs to a write that failed.
PUBLISH_WITHIN_S = 24 * 3600.0
KEPT_S = 2 * PUBLISH_WITHIN_S

#: A writer of one batch that failed is remembered for so long; what its tasks leave behind goes at once.
FORGET_S = 3 * 3600.0

#: No database forgets that a younger entry was deleted; behind an older one the pipe itself is looked for.
TRUSTED_S = 3600.0

#: Attempts that do not count go with their batch if they began at most so long before what counts, the others
#: with what is old: to read the whole list is to read the tombstones of a day.
LOSERS_WITHIN_S = 3600.0

#: Between the look whether all pipes are there and the decision at most so much time may pass.
DECIDE_WITHIN_S = 3600.0

#: Writers of one batch only, whose entry in the record goes when all is published; a time-UUID follows.
ONCE = "once-"

#: A time-UUID's time in 1970, in its units of 100 ns.
_GREGORIAN = 0x01B21DD213814000

_BATCHES_READ = 64
_PIPES_PER_BODY = 1000

#: A manifest is one pipe, however small the queue's pipes are.
_MANIFEST_SETTINGS = QueueSettings(pipe_messages_max=1_000_000, pipe_bytes_max=512 * MIB)


@dataclass(frozen=True, slots=True)
class Tidied:
    """What `Staging.tidy` did.

    Attributes:
        published: decided writes whose pipes were published for somebody who died.
        removed: staged pipes of failed writes that were deleted.
        failed: what could not be published, in words.
    """

    published: int = 0
    removed: int = 0
    failed: tuple[str, ...] = ()


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
        self._clock = context.clock

    def open(self, writer: str, batch: int, task: str) -> StagedPipes:
        """Return new staged pipes for one task of a batch; each attempt at the task takes its own.

        Args:
            writer: who writes, in the letters of a queue's name; one that begins with "once-" has one batch.
            batch: number of the batch; a writer's batches are published in ascending order.
            task: which task and attempt, for people to read.

        Raises: InvalidNameError: the writer's name breaks the rule.
        """
        label = f"{check_name(writer, 'name of a writer')}/{batch}/{task}"
        return StagedPipes(self._context, label)

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
        if not _is_decided(record, writer, batch):
            record, decided_by = self._decide(writer, batch, pipes)
        try:
            record = self._finish(record, writer)
            is_ours = decided_by is not None or not pipes or self._are_published(writer, batch, pipes)
            if _is_finished(record, writer, batch):
                own = f"{writer}/{batch}/"  # what is left of the batch: attempts that did not count
                since = just_before(_since(pipes), LOSERS_WITHIN_S) if pipes else None
                self._remove(entry for entry in self._staged(record, since) if entry.pusher.startswith(own))
            self._forget(writer)
        except UnavailableError as error:
            told = f"writer {writer!r}: batch {batch} is decided, and may not be published yet"
            raise OutcomeUnknownError(f"{told}: {error}") from error
        return is_ours

    def _are_published(self, writer: str, batch: int, pipes: Collection[UUID]) -> bool:
        """Tell whether pipes were published, once nothing of the writer's is left to be published.

        Raises: OutcomeUnknownError: they are gone, and who deleted them left no trace.
        """
        if self._listed(pipes):
            return True
        # What is staged and stands was not published, as all of a batch is; an entry alone tells nothing.
        if any(self._storage.load_pipe(pipe) for pipe in self._listed(pipes, is_staged=True)):
            return False
        raise OutcomeUnknownError(
            f"writer {writer!r}: whether these pipes are batch {batch} cannot be told: they are gone. "
            "They were published and consumed, or did not count; this call published nothing"
        )

    def _listed(self, pipes: Collection[UUID], *, is_staged: bool = False) -> set[UUID]:
        """Return those pipes that are listed."""
        listing = self._storage.list_pipes(self._queue, _since(pipes), is_staged=is_staged)
        return {entry.pipe for entry in listing.entries} & set(pipes)

    def discard(self, writer: str, batch: int, pipes: Iterable[UUID]) -> None:
        """Delete pipes of a batch that failed; where it was decided all the same, publish it instead."""
        # A decision whose outcome was unknown may still land, until another change of the record was applied.
        record = self._finish(self._record.change(lambda seen: seen), writer)
        if _is_decided(record, writer, batch):
            return
        if writer.startswith(ONCE):
            # Decided: nothing. So what tasks that still run leave behind can be told from what may yet count.
            record, _ = self._decide(writer, batch, ())
            record = self._finish(record, writer)
            self._remove(entry for entry in self._staged(record) if _is_of(entry, {writer}))
            return
        gone = set(pipes)
        self._remove(entry for entry in self._staged(record) if entry.pipe in gone)

    def tidy(self) -> Tidied:
        """Publish what was decided and not finished; delete what can never be published any more."""
        published = 0
        failed: list[str] = []
        record = self._record.read()
        for writer, written in record.writers.items():
            if written.manifest:
                try:
                    record = self._finish(record, writer)
                    published += 1
                except CassqError as error:
                    failed.append(f"writer {writer!r}: {error}")
        listing = self._storage.list_pipes(self._queue, is_staged=True)
        ended = {name for name, each in record.writers.items() if name.startswith(ONCE) and not each.manifest}
        removed = self._remove(entry for entry in listing.entries if _is_of(entry, ended))
        self._forget_old(record, listing.now_ms)
        old = {entry.pipe for entry in listing.entries if _age_s(listing, entry) > KEPT_S}
        if old:
            record = self._record.change(lambda seen: seen)  # nobody decides on what it read before this
            if not any(written.manifest for written in record.writers.values()):
                # Once more: what was published meanwhile is not staged any more.
                removed += self._remove(entry for entry in self._staged(record) if entry.pipe in old)
        return Tidied(published, removed, tuple(failed))

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
            if _is_decided(record, writer, batch):
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
            self._check_are_there(pipes)
            manifest = self._write_manifest(writer, batch, pipes)

        def decided(record: QueueRecord) -> QueueRecord:
            if _is_decided(record, writer, batch):
                raise _AlreadyDecidedError(record)
            standing = record.writers.get(writer)
            if standing and standing.manifest:
                raise _UnfinishedError  # to decide over it would be to lose it
            if pipes and self._clock.latest() - looked_at > DECIDE_WITHIN_S:
                raise PipeLostError(
                    f"writer {writer!r}: batch {batch} was held up for too long; write it again"
                )
            return replace(record, writers={**record.writers, writer: Written(batch, manifest)})

        while True:
            try:
                return self._record.change(decided), manifest
            except _AlreadyDecidedError as found:
                record = found.record
                is_ours = manifest is not None and record.writers.get(writer) == Written(batch, manifest)
                return record, manifest if is_ours else None
            except _UnfinishedError:
                self._finish(self._record.read(), writer)

    def _check_are_there(self, pipes: Sequence[UUID]) -> None:
        """Raise `PipeLostError` where one of these pipes is not staged, or was staged too long ago."""
        listing = self._storage.list_pipes(self._queue, _since(pipes), is_staged=True)
        staged = {entry.pipe: entry for entry in listing.entries}
        for pipe in pipes:
            age_s = _age_s(listing, staged[pipe]) if pipe in staged else 0.0
            if pipe not in staged or (age_s > TRUSTED_S and not self._storage.load_pipe(pipe)):
                raise PipeLostError(
                    f"staged pipe {pipe} is not there any more: it was discarded, or published before; "
                    "this call published nothing"
                )
            if age_s > PUBLISH_WITHIN_S:
                raise PipeLostError(
                    f"staged pipe {pipe} is older than {PUBLISH_WITHIN_S / 3600:g} hours: "
                    "nothing was published; write in smaller batches"
                )

    def _write_manifest(self, writer: str, batch: int, pipes: Sequence[UUID]) -> UUID:
        label = f"{writer}/{batch}/manifest"
        staged = StagedPipes(replace(self._context, settings=_MANIFEST_SETTINGS), label)
        for begin in range(0, len(pipes), _PIPES_PER_BODY):
            staged.add_checked(
                b"".join(pipe.bytes for pipe in pipes[begin : begin + _PIPES_PER_BODY]), NO_HEADERS
            )
        return staged.close()[0]

    def _read_manifest(self, manifest: UUID) -> set[UUID]:
        """Return the pipes it names; none when somebody published them all and deleted it."""
        pipes: set[UUID] = set()
        first = 1
        while batches := self._storage.read_batches(manifest, BatchQuery(first, limit=_BATCHES_READ)):
            for body in (body for batch in batches for body in batch.bodies):
                pipes.update(UUID(bytes=body[place : place + 16]) for place in range(0, len(body), 16))
            first = batches[-1].last + 1
        return pipes

    def _finish(self, record: QueueRecord, writer: str) -> QueueRecord:
        """Publish what was decided of a writer; say so in the record; only then delete the manifest."""
        written = record.writers.get(writer)
        if written is None or written.manifest is None:
            return record
        named = self._read_manifest(written.manifest)
        if named:
            listing = self._storage.list_pipes(self._queue, _since(named), is_staged=True)
            self._storage.publish_pipes(
                self._queue, [entry for entry in listing.entries if entry.pipe in named]
            )
        record = self._record.change(lambda seen: _finished(seen, writer, written))
        self._coordinator.wake(self._queue, len(named))
        with suppress(UnavailableError, OutcomeUnknownError):  # then it goes with what is old
            self._storage.delete_pipe(self._queue, written.manifest, is_staged=True)
        return record

    def _forget(self, writer: str) -> None:
        """Take a writer of one batch out of the record, once nobody can repeat the batch."""
        if writer.startswith(ONCE) and writer in self._record.read().writers:
            with suppress(UnavailableError, OutcomeUnknownError):  # then it goes when it is old
                self._record.change(lambda seen: _without(seen, {writer}))

    def _forget_old(self, record: QueueRecord, now_ms: int) -> None:
        """Take writers of one batch out that failed, or whose driver died; their names tell when that was."""
        old = {
            writer
            for writer, written in record.writers.items()
            if not written.manifest and _born_ms(writer) < now_ms - 1000 * FORGET_S
        }
        if old:
            self._record.change(lambda seen: _without(seen, old))

    def _staged(self, record: QueueRecord, since: UUID | None = None) -> Sequence[PipeEntry]:
        """Return what is staged, without the manifests that the record names."""
        manifests = {written.manifest for written in record.writers.values()}
        listing = self._storage.list_pipes(self._queue, since, is_staged=True)
        return [entry for entry in listing.entries if entry.pipe not in manifests]

    def _remove(self, entries: Iterable[PipeEntry]) -> int:
        """Delete staged pipes of which nothing is decided any more; return how many.

        The entries may be older than that. So the queue's list is asked whether a pipe was published, after
        the record told that nothing is left to be: of what is there only the entry goes, which came back.

            this process                  the lists              one node of three
            |                             | P: listed            | missed that P is staged no more
            |                             |                      | for longer than deletions are kept
            | what is staged? P --------->| <------------------- | has P's entry still
            | is P listed? yes: its entry |                      |
            | goes, and not its rows      |                      |
        """
        found = list(entries)
        if not found:
            return 0
        listed = self._listed([entry.pipe for entry in found])
        published = [entry for entry in found if entry.pipe in listed]
        if published:
            self._storage.publish_pipes(self._queue, published)  # again: takes them off the staged list
        for entry in found:
            if entry.pipe not in listed:
                self._storage.delete_pipe(self._queue, entry.pipe, is_staged=True)
        return len(found) - len(published)


def _since(pipes: Iterable[UUID]) -> UUID:
    """Return where to read the list from, so that all of these are among what is read."""
    return just_before(min(pipes, key=time_key))


def _is_decided(record: QueueRecord, writer: str, batch: int) -> bool:
    written = record.writers.get(writer)
    return written is not None and written.batch >= batch


def _is_finished(record: QueueRecord, writer: str, batch: int) -> bool:
    return _is_decided(record, writer, batch) and record.writers[writer].manifest is None


def _is_of(entry: PipeEntry, writers: Collection[str]) -> bool:
    return entry.pusher.partition("/")[0] in writers


def _finished(record: QueueRecord, writer: str, written: Written) -> QueueRecord:
    if record.writers.get(writer) != written:
        return record  # somebody else did
    writers = {**record.writers, writer: replace(written, manifest=None)}
    return replace(record, writers=writers, publications=record.publications + 1)


def _without(record: QueueRecord, writers: set[str]) -> QueueRecord:
    kept = {name: written for name, written in record.writers.items() if name not in writers}
    return replace(record, writers=kept)


def _born_ms(writer: str) -> float:
    """Return when a writer of one batch got its name, by its own clock: good enough for what is days old."""
    with suppress(ValueError):
        if writer.startswith(ONCE):
            return (UUID(writer.removeprefix(ONCE)).time - _GREGORIAN) / 10_000
    return inf


def _age_s(listing: Listing, entry: PipeEntry) -> float:
    return (listing.now_ms - entry.created_at_ms) / 1000
