"""All lists of a queue's pipes, for those who look at all of it.

Owns the order in which they are read: a pipe that moves on meanwhile is found again, never missed.
"""

from collections.abc import Collection, Iterable
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.limits import NO_LIMIT
from cassq.model.ids import MessageId, time_key
from cassq.model.pipe import PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.uses import shelves_of
from cassq.pipes.batch_reader import read_all
from cassq.storage.port import PipeStorage


def list_pipes(context: QueueContext, *shelves: Shelf) -> list[PipeEntry]:
    """Return the pipes of some lists of a queue, each as it was found last, in time order of their ids."""
    return list_pipes_of(context.storage, context.queue, context.settings, shelves)


def list_pipes_of(
    storage: PipeStorage, queue: str, settings: QueueSettings, shelves: Collection[Shelf]
) -> list[PipeEntry]:
    """Return the same for a queue with these settings."""
    found: dict[UUID, PipeEntry] = {}
    for shelf in shelves_of(settings):
        if shelf in shelves:
            listing = storage.list_pipes(queue, shelf=shelf)
            found.update((entry.pipe, entry) for entry in listing.entries)
    return sorted(found.values(), key=lambda entry: time_key(entry.pipe))


def find_entry(context: QueueContext, pipe: UUID) -> PipeEntry | None:
    """Return a pipe of a queue as it is listed; None where it is gone, or is a bulk write's.

    Where this process has not heard of due times, or of keys, so far, the record tells: whoever pushed the
    first of them may have handed the id on since.
    """
    known = shelves_of(context.settings)
    for shelf in known[1:]:
        for entry in context.storage.list_pipes(context.queue, pipe, until=pipe, shelf=shelf).entries:
            return entry
    if len(known) < len(Shelf) and len(shelves_of(context.record.read().settings)) > len(known):
        return find_entry(context, pipe)
    return None


def find_moved(storage: PipeStorage, targets: Iterable[UUID], message_id: MessageId) -> MessageId | None:
    """Return where a message is that was moved, by its first id; None where that is gone."""
    for target in targets:
        for batch in read_all(storage, target, NO_LIMIT, is_outline=True):
            for seq, origin in enumerate(batch.origins or (), batch.first):
                if origin.message_id == message_id:
                    return MessageId(target, seq)
    return None
