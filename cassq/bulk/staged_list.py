"""The list of staged pipes of a queue: what stands in it, and what goes.

Owns how much an entry proves. A database may forget that a staged entry was deleted, and show it again: an
entry alone proves nothing; the record and the queue's own lists tell what was published. Refuses to decide
what is published. What must not break: of a pipe that was published nothing but its staged entry is deleted;
and a pipe is published into the list for what its messages have.
"""

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import PipeLostError
from cassq.model.ids import just_before, time_key
from cassq.model.pipe import PipeEntry
from cassq.model.queue_record import QueueRecord
from cassq.model.shelf import Shelf, first_shelf
from cassq.model.uses import shelves_of
from cassq.pipes.outside_view import is_standing
from cassq.pipes.pipe_order import one_after_the_other
from cassq.storage.forms import Listing

#: A batch is published only within this time after its pipes were staged, by the database's clock.
PUBLISH_WITHIN_S = 24 * 3600.0

#: No database forgets that a younger entry was deleted; behind an older one the pipe itself is looked for.
TRUSTED_S = 3600.0

#: The lists of what is not published.
_STAGED = {Shelf.STAGED, Shelf.SORTED}


class StagedList:
    """The staged pipes of one queue, as they are listed."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._storage = context.storage
        self._queue = context.queue

    def read(self, since: UUID | None = None) -> Listing:
        """Read what is staged, from an id on."""
        return self._storage.list_pipes(self._queue, since, shelf=Shelf.STAGED)

    def undecided(self, record: QueueRecord, since: UUID | None = None) -> Sequence[PipeEntry]:
        """Return what is staged, without the manifests that the record names."""
        manifests = {written.manifest for written in record.writers.values()}
        return [entry for entry in self.read(since).entries if entry.pipe not in manifests]

    def remove_undecided(
        self, record: QueueRecord, is_meant: Callable[[PipeEntry], bool], since: UUID | None = None
    ) -> int:
        """Delete what is meant of `undecided`, as `remove` does."""
        return self.remove(entry for entry in self.undecided(record, since) if is_meant(entry))

    def published(self, pipes: Iterable[UUID]) -> set[UUID]:
        """Return those pipes that the queue's own lists have.

        The record, which tells which lists there are, was read since they were staged.
        """
        named = set(pipes)
        found: set[UUID] = set()
        for shelf in shelves_of(self._context.settings):
            if shelf not in _STAGED and found != named:
                listing = self._storage.list_pipes(self._queue, since(named), shelf=shelf)
                found |= {entry.pipe for entry in listing.entries} & named
        return found

    def is_standing(self, pipes: Iterable[UUID]) -> bool:
        """Tell whether one of these pipes is staged, and stands; an entry alone tells nothing."""
        named = set(pipes)
        listed = {entry.pipe for entry in self.read(since(named)).entries} & named
        return any(map(self._stands, listed))

    def check_are_there(self, pipes: Sequence[UUID]) -> Sequence[PipeEntry]:
        """Return the entries of these pipes.

        Raises: PipeLostError: one of them is not staged, or was staged too long ago.
        """
        listing = self.read(since(pipes))
        staged = {entry.pipe: entry for entry in listing.entries}
        for pipe in pipes:
            age_s = age_of(listing, staged[pipe]) if pipe in staged else 0.0
            if pipe not in staged or (age_s > TRUSTED_S and not self._stands(pipe)):
                raise PipeLostError(
                    f"staged pipe {pipe} is not there any more: it was discarded, or published before; "
                    "this call published nothing"
                )
            if age_s > PUBLISH_WITHIN_S:
                raise PipeLostError(
                    f"staged pipe {pipe} is older than {PUBLISH_WITHIN_S / 3600:g} hours: "
                    "nothing was published; write in smaller batches"
                )
        return [staged[pipe] for pipe in pipes]

    def _stands(self, pipe: UUID) -> bool:
        """Tell whether a pipe is there; one that retired was published before."""
        return is_standing(self._storage.load_pipe(pipe))

    def publish(self, pipes: set[UUID]) -> None:
        """Take those of these pipes that are staged still over into the queue's own lists."""
        entries = self.read(since(pipes)).entries
        self._list(entry for entry in entries if entry.pipe in pipes)

    def _list(self, entries: Iterable[PipeEntry]) -> None:
        """Take pipes over into the lists for what their messages have, in the order of their ids.

        Where that is their turn no younger one of a task is listed before the older ones are known to be.
        """
        settings = self._context.settings
        meant: dict[Shelf, list[PipeEntry]] = {}
        for entry in entries:
            meant.setdefault(first_shelf(entry.due_class, entry.slot), []).append(entry)
        for shelf, found in meant.items():
            is_in_turn = settings.pop_width == 1 or (shelf is Shelf.KEYED and settings.keys == "ordered")
            for part in one_after_the_other(found) if is_in_turn else [found]:
                self._storage.publish_pipes(self._queue, part, shelf)

    def remove(self, entries: Iterable[PipeEntry]) -> int:
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
        listed = self.published(entry.pipe for entry in found)
        published = [entry for entry in found if entry.pipe in listed]
        if published:
            self._list(published)  # again: takes them off the staged list
        for entry in found:
            if entry.pipe not in listed:
                self._storage.delete_pipe(self._queue, entry.pipe, shelf=Shelf.STAGED)
        return len(found) - len(published)


def since(pipes: Iterable[UUID]) -> UUID:
    """Return where to read a list from, so that all of these are among what is read."""
    return just_before(min(pipes, key=time_key))


def age_of(listing: Listing, entry: PipeEntry) -> float:
    """Return how many seconds ago a pipe was staged, by the database's clock."""
    return (listing.now_ms - entry.created_at_ms) / 1000
