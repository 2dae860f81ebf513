"""A topic's record, as one process knows it.

Owns how old that knowledge may be, and how the record is changed. Refuses to stand between a publish and the
log: a deleted topic's heads are retired, and refuse every link. What must not break: a later topic of the
name is never taken for this one.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cassq.errors import CassqError, OutcomeUnknownError, TopicNotFoundError, UnavailableError
from cassq.model.ids import new_token
from cassq.model.topic import TopicRecord, TopicState
from cassq.runtime.clock import Clock
from cassq.storage.topic_port import TopicStorage

#: So long an alteration may go unnoticed.
REFRESH_S = 1.0

#: How often a change is tried again when others change the record at the same time.
CHANGE_ATTEMPTS = 20


class KnownTopic:
    """The record of one topic.

    Attributes:
        record: as it was read last.
    """

    def __init__(self, storage: TopicStorage, record: TopicRecord, clock: Clock) -> None:
        self.record = record
        self._storage = storage
        self._clock = clock
        self._read_at = clock.now()

    def is_same(self, record: TopicRecord) -> bool:
        """Tell whether `record` is of this topic, not of a later one of the same name."""
        return record.incarnation == self.record.incarnation

    def look(self) -> TopicRecord:
        """Return the record as it stands now.

        Raises: TopicNotFoundError: the topic was deleted.
        """
        return self.note(self._storage.glance_topic(self.record.name))

    def refresh(self) -> None:
        """Look, if the last look is a second old; where nobody can, go on by what is known.

        Raises: TopicNotFoundError: the topic was deleted.
        """
        if self._clock.now() - self._read_at >= REFRESH_S:
            self._read_at = self._clock.now()  # also where it fails: the next one a second later
            with suppress(UnavailableError):
                self.look()

    def change(self, edit: Callable[[TopicRecord], TopicRecord]) -> TopicRecord:
        """Change the record by compare-and-set; `edit` may be called several times.

        Raises:
            TopicNotFoundError: the topic was deleted.
            UnavailableError: nothing was changed.
            OutcomeUnknownError: it may have been changed, or others kept changing it.
        """
        for _ in range(CHANGE_ATTEMPTS):
            seen = self._settled()
            wanted = replace(edit(seen), op=new_token())
            try:
                is_applied = self._storage.change_topic(seen, wanted)
            except OutcomeUnknownError:
                is_applied = self._has_landed(wanted)
            if is_applied:
                self.record = wanted
                return wanted
        raise OutcomeUnknownError(f"topic {self.record.name!r}: others kept changing it; try again")

    def note(self, found: TopicRecord | None) -> TopicRecord:
        """Remember what was read just now, and return it.

        Raises: TopicNotFoundError: the topic was deleted.
        """
        if found is None or not self.is_same(found):
            self.record = replace(self.record, state=TopicState.DELETED)
        elif found is not self.record:
            self.record, self._read_at = found, self._clock.now()
        if self.record.is_deleted:
            raise TopicNotFoundError(
                f"topic {self.record.name!r} was deleted: store.topic({self.record.name!r}) makes a new one"
            )
        return self.record

    def _has_landed(self, wanted: TopicRecord) -> bool:
        """Tell whether a change that nobody answered for was applied so far; the next attempt settles it."""
        try:
            found = next(iter(self._storage.read_topics(wanted.name)), None)
        except CassqError as error:
            raise OutcomeUnknownError(
                f"topic {wanted.name!r}: it may have been changed, and cannot be looked at: {error}"
            ) from error
        return found is not None and found.op == wanted.op

    def _settled(self) -> TopicRecord:
        return self.note(next(iter(self._storage.read_topics(self.record.name)), None))
