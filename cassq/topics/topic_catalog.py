"""The records of a store's topics: which there are, how one is created, and how a deleted one is cleared.

Owns creation and clearing. What must not break: a topic's segments stand before its record does, so that no
head means gone, never new.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from cassq.catalog.readable import readable
from cassq.errors import CassqError, DecodeError, OutcomeUnknownError, TopicNotFoundError
from cassq.model.ids import new_token
from cassq.model.options import TopicOptions
from cassq.model.topic import PartitionKey, TopicRecord, TopicState, first_head
from cassq.model.topic_settings import TopicSettings
from cassq.storage.topic_port import TopicStorage
from cassq.topics.known_topic import KnownTopic
from cassq.topics.retention import Retention
from cassq.topics.topic_context import TopicContext

#: How often the creation of a topic is tried again when others create or delete it at the same time.
CREATE_ATTEMPTS = 10


class TopicCatalog:
    """The topics of one store, by their records.

    Args:
        where: names the store.
        context_of: returns what the parts of a topic work with.
    """

    def __init__(
        self, storage: TopicStorage, where: str, context_of: Callable[[TopicRecord], TopicContext]
    ) -> None:
        self._storage = storage
        self._where = where
        self._context_of = context_of

    def find(self, name: str) -> TopicRecord:
        """Return the record of a topic.

        Raises: TopicNotFoundError: there is none.
        """
        record = self._look_for(name)
        if record is None:
            names = ", ".join(self.names()[:5])
            raise TopicNotFoundError(
                f"there is no topic {name!r} in {self._where}"
                + (f"; there are: {names}" if names else "; there is none at all")
            )
        return record

    def _look_for(self, name: str) -> TopicRecord | None:
        record = self._storage.glance_topic(name)
        return None if record is None or record.is_deleted else record

    def names(self) -> Sequence[str]:
        """Return the names of all topics that are not deleted, in order; a damaged record hides no other."""
        return self._storage.list_topics()

    def all(self, note_damage: Callable[[str, DecodeError], None]) -> Iterator[TopicRecord]:
        """Return the records of all topics, deleted or not; see `readable`."""
        return readable(self._storage.read_topics, self.names, self._look_for, note_damage)

    def ensure(self, name: str, options: TopicOptions) -> TopicRecord:
        """Return the record of a topic, and create the topic if there is none.

        Raises: OutcomeUnknownError: others kept creating and deleting it.
        """
        settings = TopicSettings.from_options(options)
        for _ in range(CREATE_ATTEMPTS):
            record = self._storage.glance_topic(name)
            if record is None:
                record = next(iter(self._storage.read_topics(name)), None)
            if record is None or record.is_deleted:
                record = self._create(name, record, settings)
            if record is not None:
                return record
        raise OutcomeUnknownError(f"topic {name!r}: others kept creating and deleting it; try again")

    def _create(self, name: str, old: TopicRecord | None, settings: TopicSettings) -> TopicRecord | None:
        """Create the topic; None when somebody else did, or may have."""
        if old is not None and old.state is TopicState.DELETED:
            self.clear(old)  # nobody finds what is left of it once its record is another one's
            return None
        wanted = TopicRecord(name, new_token(), settings, new_token())
        places = [PartitionKey(wanted.incarnation, each).segment(1) for each in range(settings.partitions)]
        for place in places:
            self._storage.create_segment(place, first_head(place, 1))
        try:
            if self._storage.change_topic(old, wanted):
                return wanted
        except OutcomeUnknownError:
            return None  # its segments stay: it may be the one that is found
        for place in places:
            self._storage.delete_segment(place)
        return None

    def delete(self, known: KnownTopic) -> None:
        """Delete a topic with all that was published, and the progress of its groups.

        Raises: CassqError: it is deleted, but not all that it held is cleared.
        """
        record = known.change(lambda seen: replace(seen, state=TopicState.DELETED))
        try:
            self.clear(record)
        except CassqError as error:
            raise CassqError(
                f"topic {record.name!r} is deleted, but not all that it held is cleared: {error}; "
                "a pass of the reaper clears the rest"
            ) from error

    def reap(self, record: TopicRecord) -> int:
        """Make one pass over a topic, as `Topic.reap` does, and open nothing.

        Raises: TopicNotFoundError: it was deleted since its record was read.
        """
        context = self._context_of(record)
        partitions = context.known.look().settings.partitions
        return sum(Retention(context, each).run_once() for each in range(partitions))

    def clear(self, deleted: TopicRecord) -> int:
        """Delete what a deleted topic left, and have its record say so.

        Returns: how many segments there were.
        """
        if deleted.state is TopicState.CLEARED:
            return 0
        partitions = deleted.settings.partitions
        context = self._context_of(deleted)
        for group in deleted.groups.values():
            self._storage.delete_progress(group, partitions)
        cleared = sum(Retention(context, each).end() for each in range(partitions))
        with suppress(OutcomeUnknownError):  # or another pass finds nothing, and says so
            done = replace(deleted, state=TopicState.CLEARED, groups={}, subscriptions={}, op=new_token())
            self._storage.change_topic(deleted, done)
        return cleared
