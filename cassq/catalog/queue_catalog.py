"""The records of a store's queues: which there are, how one is created, and how a deleted one is cleared.

Owns creation and clearing. Refuses to know who has a queue open. What must not break: a creation that lands
late brings no deleted queue back, and what is cleared belongs to no later queue of the name.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from cassq.catalog.readable import readable
from cassq.errors import DecodeError, OutcomeUnknownError
from cassq.limits import NO_LIMIT
from cassq.model.ids import MessageId, new_token
from cassq.model.options import QueueOptions
from cassq.model.queue_record import QueueRecord, QueueState, Sample
from cassq.model.settings import QueueSettings
from cassq.model.uses import shelves_of, uses_keys, uses_schedules
from cassq.storage.port import Storage

#: How often the creation of a queue is tried again when others create or delete it at the same time.
CREATE_ATTEMPTS = 10


class QueueCatalog:
    """The queues of one store, by their records.

    Args:
        on_deleted: has the event of a deletion in the journal, once, however often it is called.
    """

    def __init__(self, storage: Storage, on_deleted: Callable[[QueueRecord], None] = lambda _: None) -> None:
        self._storage = storage
        self._on_deleted = on_deleted

    def find(self, name: str) -> QueueRecord | None:
        """Return the record of a queue; None where there is none, or it was deleted."""
        record = self._storage.glance_queue(name)
        return None if record is None or record.state is QueueState.DELETED else record

    def read(self, name: str) -> QueueRecord | None:
        """Return the record of a queue, deleted or not, as it stands; None where there is none."""
        return next(iter(self._storage.read_queues(name)), None)

    def names(self) -> Sequence[str]:
        """Return the names of all queues that are not deleted, in order; a damaged record hides no other."""
        return self._storage.list_queues()

    def all(self, note_damage: Callable[[str, DecodeError], None]) -> Iterator[QueueRecord]:
        """Return the records of all queues, deleted or not; see `readable`."""
        return readable(self._storage.read_queues, self.names, self.find, note_damage)

    def ensure(self, name: str, settings: QueueOptions) -> QueueRecord:
        """Return the record of a queue, and create the queue if there is none.

        Raises: OutcomeUnknownError: others kept creating and deleting it.
        """
        for _ in range(CREATE_ATTEMPTS):
            # A fleet that starts opens its queue at once: only those who find none get into each other's way.
            record = self.find(name)
            if record is None:
                record = self.read(name)
            if record is None or record.state is QueueState.DELETED:
                record = self._create(name, record, settings)
            if record is not None:
                return record
        raise OutcomeUnknownError(f"queue {name!r}: others kept creating and deleting it; try again")

    def _create(self, name: str, old: QueueRecord | None, settings: QueueOptions) -> QueueRecord | None:
        """Create the queue; None when somebody else did, or may have."""
        if old is not None:
            self.clear(old)  # a deletion that was cut short must not leave messages to the new queue
        # The first sample: rates count from the creation on.
        born = Sample(self._storage.list_pipes(name).now_ms, pushed=0, popped=0, committed=0)
        chosen = QueueSettings.from_options(settings)
        wanted = QueueRecord(name, new_token(), chosen, op=new_token(), samples=(born,))
        try:
            # Over a record that is gone by its op: a creation that lands late must not meet a later deletion.
            return wanted if self._storage.change_queue(old, wanted) else None
        except OutcomeUnknownError:
            return None

    def clear(self, deleted: QueueRecord) -> int:
        """Delete what a deleted queue left; return how many pipes had something left.

        The list first, then the record: while that still tells of this queue, and that it is deleted, what
        was listed before cannot belong to a later queue of the name; so with the dead letters, page by page.
        They come last: a read that fails there keeps no message here.
        """
        if deleted.owes_event:
            self._on_deleted(deleted)
            # Refused, where somebody else has told, or has made a queue of the name: then it was told, too.
            self._storage.change_queue(deleted, replace(deleted, samples=(), op=new_token()))
        name = deleted.name
        # Before the lists are read: what is decided on until then is in them, and later nothing is.
        if uses_schedules(deleted.settings):
            self._storage.delete_schedules(deleted.incarnation)
        if uses_keys(deleted.settings):
            self._storage.delete_slots(deleted.incarnation)
        # What moves on meanwhile is inserted into the one list before it leaves the other.
        shelves = shelves_of(deleted.settings)
        listed = [self._storage.list_pipes(name, shelf=shelf).entries for shelf in shelves]
        if not self._is_still_deleted(deleted):
            return 0
        cleared = {entry.pipe: None for entries in listed for entry in entries}
        for entry in chain.from_iterable(listed):
            self._storage.delete_pipe(name, entry.pipe, entry.shelf)
        # With what poppers that have not heard of it yet are burying.
        self._storage.change_dead(name, pipes=list(cleared))
        after: MessageId | None = None
        while letters := self._storage.read_dead(name, after):
            if not self._is_still_deleted(deleted):
                break
            pipes = list(dict.fromkeys(letter.message_id.pipe for letter in letters))
            self._storage.change_dead(name, pipes=pipes)
            cleared |= dict.fromkeys(pipes)
            after = MessageId(pipes[-1], NO_LIMIT)
        return len(cleared)

    def _is_still_deleted(self, deleted: QueueRecord) -> bool:
        stands = self.read(deleted.name)
        return (
            stands is not None
            and stands.incarnation == deleted.incarnation
            and stands.state is QueueState.DELETED
        )
