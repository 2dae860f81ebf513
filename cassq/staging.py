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
decided is never deleted.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

from cassq.clock import Clock
from cassq.coordination.port import Coordinator
from cassq.errors import PipeLostError
from cassq.limits import MIB
from cassq.live_record import LiveRecord
from cassq.model.ids import check_name
from cassq.model.message import NO_HEADERS
from cassq.model.pipe import PipeEntry
from cassq.model.queue_record import QueueRecord, Written
from cassq.model.settings import QueueSettings
from cassq.staged_pipes import StagedPipes
from cassq.storage.port import BatchQuery, Storage

#: A batch is published only within this time after its pipes were staged, by the database's clock; what is
#: staged and undecided for twice as long belongs to a write that failed.
PUBLISH_WITHIN_S = 24 * 3600.0
KEPT_S = 2 * PUBLISH_WITHIN_S

#: Between the look whether all pipes are there and the decision at most so much time may pass.
DECIDE_WITHIN_S = 3600.0

#: Writers of one batch only, whose entry in the record goes when all is published.
ONCE = "once-"

_BATCHES_READ = 64
_PIPES_PER_BODY = 1000

#: A manifest is one pipe, however small the queue's pipes are.
_MANIFEST_SETTINGS = QueueSettings(pipe_messages_max=1_000_000, pipe_bytes_max=512 * MIB)


@dataclass(frozen=True, slots=True)
class Tidied:
    """What `Staging.tidy` did.

    Attributes:
        published: pipes of decided writes that were published for somebody who died.
        removed: staged pipes of failed writes that were deleted.
    """

    published: int = 0
    removed: int = 0


class _AlreadyDecidedError(Exception):
    """The batch was decided before, by this or another process."""


class Staging:
    """The staged pipes of one queue."""

    def __init__(  # noqa: PLR0913, PLR0917 - collaborators are passed in
        self,
        storage: Storage,
        coordinator: Coordinator,
        queue: str,
        settings: QueueSettings,
        record: LiveRecord,
        clock: Clock,
    ) -> None:
        self._storage = storage
        self._coordinator = coordinator
        self._queue = queue
        self._settings = settings
        self._record = record
        self._clock = clock

    def open(self, writer: str, batch: int, task: str) -> StagedPipes:
        """Return new staged pipes for one task of a batch; each attempt at the task takes its own.

        Args:
            writer: who writes, in the letters of a queue's name; one that begins with "once-" has one batch.
            batch: number of the batch; a writer's batches are published in ascending order.
            task: which task and attempt, for people to read.

        Raises: InvalidNameError: the writer's name breaks the rule.
        """
        label = f"{check_name(writer, 'name of a writer')}/{batch}/{task}"
        return StagedPipes(self._storage, self._queue, self._settings, label=label, clock=self._clock)

    def publish(self, writer: str, batch: int, pipes: Sequence[UUID]) -> bool:
        """Publish a batch: all of these pipes or, when the batch was decided before, none.

        Args:
            pipes: what the tasks that count returned from `StagedPipes.close`.

        Returns: whether these pipes are the batch; False when it, or a later one, was decided before.
        Idempotent: yes. After an error the batch may be decided: call it again, or leave it to the reaper.

        Raises:
            PipeLostError: pipes are no longer there; nothing was published.
            QueueNotFoundError, StorageUnavailableError, OutcomeUnknownError.
        """
        if not _is_decided(self._record.read(), writer, batch):
            self._decide(writer, batch, pipes)
        record = self._finish(self._record.read(), writer)
        staged = self._staged(record)
        own = f"{writer}/{batch}/"  # what is left of the batch: attempts that did not count
        self._remove(entry for entry in staged if entry.pusher.startswith(own) or _is_out(record, entry))
        return not {entry.pipe for entry in staged} & set(pipes)

    def discard(self, writer: str, batch: int, pipes: Iterable[UUID]) -> None:
        """Delete pipes of a batch that failed; where it was decided all the same, publish it instead."""
        # A decision whose outcome was unknown may still land, until another change of the record was applied.
        record = self._finish(self._record.change(lambda seen: seen), writer)
        if not _is_decided(record, writer, batch):
            gone = set(pipes)
            self._remove(entry for entry in self._staged(record) if entry.pipe in gone)

    def tidy(self) -> Tidied:
        """Publish what was decided and not finished; delete what can never be published any more."""
        published = 0
        record = self._record.read()
        for writer, written in record.writers.items():
            if written.manifest:
                published += 1
                record = self._finish(record, writer)
        listing = self._storage.list_pipes(self._queue, is_staged=True)
        out = [entry for entry in listing.entries if _is_out(record, entry)]
        old = [
            entry
            for entry in listing.entries
            if entry not in out and listing.now_ms - entry.created_at_ms > 1000 * KEPT_S
        ]
        if old:
            record = self._record.change(lambda seen: seen)  # nobody decides on what it read before this
            decided = {written.manifest for written in record.writers.values() if written.manifest}
            old = [] if decided else old
        return Tidied(published, self._remove([*out, *old]))

    def _decide(self, writer: str, batch: int, pipes: Sequence[UUID]) -> None:
        manifest: UUID | None = None
        looked_at = self._clock.now()
        if pipes:
            self._check_there(pipes)
            manifest = self._write_manifest(writer, batch, pipes)

        def decided(record: QueueRecord) -> QueueRecord:
            if _is_decided(record, writer, batch):
                raise _AlreadyDecidedError
            if self._clock.now() - looked_at > DECIDE_WITHIN_S:
                raise PipeLostError(
                    f"writer {writer!r}: batch {batch} was held up for too long; write it again"
                )
            return replace(record, writers={**record.writers, writer: Written(batch, manifest)})

        with suppress(_AlreadyDecidedError):
            self._record.change(decided)

    def _check_there(self, pipes: Sequence[UUID]) -> None:
        listing = self._storage.list_pipes(self._queue, is_staged=True)
        born = {entry.pipe: entry.created_at_ms for entry in listing.entries}
        for pipe in pipes:
            if pipe not in born:
                raise PipeLostError(
                    f"staged pipe {pipe} is gone: nothing was published; write the batch again"
                )
            if listing.now_ms - born[pipe] > 1000 * PUBLISH_WITHIN_S:
                raise PipeLostError(
                    f"staged pipe {pipe} is older than {PUBLISH_WITHIN_S / 3600:g} hours: "
                    "nothing was published; write in smaller batches"
                )

    def _write_manifest(self, writer: str, batch: int, pipes: Sequence[UUID]) -> UUID:
        label = f"{writer}/{batch}/manifest"
        staged = StagedPipes(self._storage, self._queue, _MANIFEST_SETTINGS, label=label, clock=self._clock)
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
        entries = [entry for entry in self._staged(record) if entry.pipe in named]
        self._storage.publish_pipes(self._queue, entries)
        if entries:
            self._coordinator.wake(self._queue, len(entries))
        record = self._record.change(lambda seen: _finished(seen, writer, written))
        self._storage.delete_pipe(self._queue, written.manifest, is_staged=True)
        return record

    def _staged(self, record: QueueRecord) -> Sequence[PipeEntry]:
        """Return what is staged, without the manifests that the record names."""
        manifests = {written.manifest for written in record.writers.values()}
        listing = self._storage.list_pipes(self._queue, is_staged=True)
        return [entry for entry in listing.entries if entry.pipe not in manifests]

    def _remove(self, entries: Iterable[PipeEntry]) -> int:
        removed = 0
        for entry in entries:
            self._storage.delete_pipe(self._queue, entry.pipe, is_staged=True)
            removed += 1
        return removed


def _is_decided(record: QueueRecord, writer: str, batch: int) -> bool:
    written = record.writers.get(writer)
    return written is not None and written.batch >= batch


def _is_out(record: QueueRecord, entry: PipeEntry) -> bool:
    """Tell whether a staged pipe is of a batch that was decided, and finished, without it."""
    writer, _, rest = entry.pusher.partition("/")
    batch = rest.partition("/")[0]
    written = record.writers.get(writer)
    return (
        written is not None and written.manifest is None and batch.isdecimal() and int(batch) <= written.batch
    )


def _finished(record: QueueRecord, writer: str, written: Written) -> QueueRecord:
    if record.writers.get(writer) != written:
        return record  # somebody else did
    others = {name: each for name, each in record.writers.items() if name != writer}
    if not writer.startswith(ONCE):
        others[writer] = replace(written, manifest=None)
    return replace(record, writers=others)
