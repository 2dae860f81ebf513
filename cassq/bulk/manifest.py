"""A manifest: the pipes of one batch, named in a staged pipe of its own.

Owns how it is written and read. Refuses to decide by it: that is `cassq.bulk.staging`. What must not break:
its pipe is told only once all of it is stored; and where it names what an older cassq would publish into the
wrong list, that cannot read it, and leaves it to others.
"""

from collections.abc import Sequence
from uuid import UUID

from cassq.bulk.staged_pipes import StagedPipes
from cassq.catalog.queue_context import QueueContext
from cassq.limits import MIB
from cassq.model.message import NO_HEADERS
from cassq.model.pipe import PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf, first_shelf
from cassq.storage.forms import BatchQuery
from cassq.storage.port import Storage

_BATCHES_READ = 64
_PIPES_PER_BODY = 1000

#: Stands before pipes for other lists than the first one. No older cassq takes it for ids: it is too short.
_OTHER_LISTS = b"other lists"

#: A manifest is one pipe, however small the queue's pipes are.
_SETTINGS = QueueSettings(pipe_messages_max=1_000_000, pipe_bytes_max=512 * MIB)


def write_manifest(context: QueueContext, name: str, entries: Sequence[PipeEntry]) -> UUID:
    """Write a manifest that names these pipes; return the pipe that it is.

    Raises: StorageUnavailableError, OutcomeUnknownError, PipeLostError: as `StagedPipes`.
    """
    staged = StagedPipes(context, name, _SETTINGS)
    if any(first_shelf(entry.due_class, entry.slot) is not Shelf.READY for entry in entries):
        staged.add_checked(_OTHER_LISTS, NO_HEADERS)
    for begin in range(0, len(entries), _PIPES_PER_BODY):
        named = entries[begin : begin + _PIPES_PER_BODY]
        staged.add_checked(b"".join(entry.pipe.bytes for entry in named), NO_HEADERS)
    return staged.close()[0]


def read_manifest(storage: Storage, manifest: UUID) -> set[UUID]:
    """Return the pipes that a manifest names; none when somebody published them all and deleted it."""
    pipes: set[UUID] = set()
    first = 1
    while batches := storage.read_batches(manifest, BatchQuery(first, limit=_BATCHES_READ)):
        for body in (body for batch in batches for body in batch.bodies):
            if body != _OTHER_LISTS:
                pipes.update(UUID(bytes=body[place : place + 16]) for place in range(0, len(body), 16))
        first = batches[-1].last + 1
    return pipes
