"""A queue's record, as one process remembers it.

Owns how old that memory may be. Pushers and poppers ask here whether the queue still stands and whether it
is paused, without a read for every message. The rule that must not break: where the record cannot be read,
who would acknowledge a push waits, for the queue may have been deleted meanwhile; who only takes goes on.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from uuid import UUID

from cassq.errors import OutcomeUnknownError, QueueNotFoundError, UnavailableError, UsageError
from cassq.model.ids import new_token
from cassq.model.queue_record import QueueRecord, QueueState, Sample
from cassq.model.settings import QueueSettings
from cassq.runtime.clock import Clock
from cassq.runtime.reentry import alone
from cassq.storage.port import RecordStorage

#: So long a pause or a deletion may go unnoticed.
REFRESH_S = 1.0

#: How often a change is tried again when others change the record at the same time.
CHANGE_ATTEMPTS = 20


class CachedRecord:
    """The record of one queue, at most about a second old."""

    def __init__(self, storage: RecordStorage, record: QueueRecord, clock: Clock) -> None:
        self._storage = storage
        self._record = record
        self._clock = clock
        self._read_at = clock.now()
        self._unanswered_at = float("-inf")
        self._reading = threading.RLock()
        self._is_looking = False

    def is_same(self, record: QueueRecord) -> bool:
        """Tell whether `record` is of this queue, not of a later one of the same name."""
        return record.incarnation == self._record.incarnation

    def check_open(self) -> None:
        """Check that the queue stood a second ago, or later.

        Raises:
            QueueNotFoundError: it was deleted.
            UnavailableError: it may be, for nobody could look.
        """
        self._refresh()
        self._refuse_deleted()

    @property
    def incarnation(self) -> UUID:
        """What tells the queue from an earlier or a later one of its name."""
        return self._record.incarnation

    @property
    def settings(self) -> QueueSettings:
        """The queue's settings, as far as is known; reads nothing."""
        return self._record.settings

    @property
    def publications(self) -> int:
        """How many bulk writes were published, as far as is known; reads nothing."""
        return self._record.publications

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples for the rates, as far as is known; reads nothing."""
        return self._record.samples

    def may_take(self) -> bool:
        """Return False while the queue is paused; raise `QueueNotFoundError` when it was deleted.

        Where nobody could look, what was known goes on to count, and a second later the next one looks:
        whoever needs the database will hear of it there.
        """
        if self._clock.now() - self._unanswered_at >= REFRESH_S:
            try:
                self._refresh()
            except UnavailableError:
                self._unanswered_at = self._clock.now()
        self._refuse_deleted()
        return self._record.state is QueueState.ACTIVE

    def read(self) -> QueueRecord:
        """Return the record as it stands now.

        Raises: QueueNotFoundError: the queue was deleted.
        """
        with self._alone():
            found = self._read()
        self._refuse_deleted()
        return found

    def change(self, edit: Callable[[QueueRecord], QueueRecord]) -> QueueRecord:
        """Change the record by compare-and-set; `edit` may be called several times.

        Raises:
            QueueNotFoundError: the queue was deleted.
            UnavailableError: nothing was changed.
            OutcomeUnknownError: it may have been changed, or others kept changing it.
        """
        is_in_doubt = False
        try:
            for _ in range(CHANGE_ATTEMPTS):
                seen = self.read()
                wanted = replace(edit(seen), op=new_token())
                try:
                    is_applied = self._storage.change_queue(seen, wanted)
                except OutcomeUnknownError:
                    is_in_doubt = True
                    # Applied so far? If not, the next attempt's write settles it.
                    with self._alone():
                        is_applied = self._read().op == wanted.op
                if is_applied:
                    with self._alone():
                        if self._record.op == seen.op:  # or somebody has read a later one meanwhile
                            self._record = wanted
                    return wanted
        except UnavailableError as error:
            if not is_in_doubt:
                raise
            told = f"queue {self._record.name!r}: its record may have been changed: {error}"
            raise OutcomeUnknownError(told) from error
        raise OutcomeUnknownError(f"queue {self._record.name!r}: others kept changing it; try again")

    def _refuse_deleted(self) -> None:
        if self._record.state is QueueState.DELETED:
            raise QueueNotFoundError(
                f"queue {self._record.name!r} was deleted: nothing was pushed or popped; "
                f"open it anew with store.queue({self._record.name!r})"
            )

    def _refresh(self) -> None:
        if self._is_fresh():
            return
        if self._is_looking:
            # Another thread looks, or this one did, and was interrupted. What is known may be much older, and
            # to wait for the other would know no deadline.
            with suppress(UsageError):
                self.note(self._storage.glance_queue(self._record.name))
            return
        with self._alone():  # of whom Ctrl-C tears out of here nothing stays locked
            if self._is_fresh():
                return
            # Every process of the queue does this, and a settled read is a transaction: many would meet.
            self._look(lambda: self._storage.glance_queue(self._record.name))

    def _alone(self) -> AbstractContextManager[object]:
        return alone(self._reading, "a look at the queue's record")

    def _is_fresh(self) -> bool:
        return self._clock.now() - self._read_at < REFRESH_S

    def _read(self) -> QueueRecord:
        return self._look(lambda: next(iter(self._storage.read_queues(self._record.name)), None))

    def _look(self, look: Callable[[], QueueRecord | None]) -> QueueRecord:
        self._is_looking = True
        try:
            return self.note(look())
        finally:
            self._is_looking = False

    def note(self, found: QueueRecord | None) -> QueueRecord:
        """Remember what was read just now; return what is known."""
        self._read_at = self._clock.now()
        if found is None or found.incarnation != self._record.incarnation:
            self._record = replace(self._record, state=QueueState.DELETED)
        else:
            self._record = found
        return self._record
