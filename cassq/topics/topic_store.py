"""The topics of a store: where they are declared, listed and deleted.

Owns the life of the topics it opened. What must not break: two openings of the same name are the same topic,
with the same settings, or an error that says how they differ.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

from cassq.catalog.queue_context import QueueContext
from cassq.catalog.services import Services
from cassq.errors import (
    AccessDeniedError,
    CassqError,
    CorruptError,
    OutcomeUnknownError,
    QueueNotFoundError,
    TopicNotFoundError,
    UnavailableError,
)
from cassq.model.ids import MessageId, check_name, to_message_id
from cassq.model.message import to_datetime
from cassq.model.options import AlterTopicOptions, TopicOptions
from cassq.model.queue_event import QueueEvent
from cassq.model.queue_record import QueueRecord, QueueState
from cassq.model.topic import TopicRecord
from cassq.model.topic_settings import TopicSettings
from cassq.runtime.reentry import alone
from cassq.topics.history import Histories, MessageHistory
from cassq.topics.journal import NAME as JOURNAL
from cassq.topics.journal import SETTINGS as JOURNAL_SETTINGS
from cassq.topics.journal import Journal
from cassq.topics.known_topic import KnownTopic
from cassq.topics.topic import Topic
from cassq.topics.topic_catalog import TopicCatalog
from cassq.topics.topic_context import TopicContext


class TopicStore:
    """What a store has of topics.

    Args:
        check_usable: raises where the store is closed.
    """

    def __init__(self, services: Services, url: str, check_usable: Callable[[], None]) -> None:
        self._services_of_topics = services
        self._topic_catalog = TopicCatalog(services.storage, url, self._context_of)
        self._check_topics_usable = check_usable
        self._histories = Histories(services, self._open_journal)
        self._topics_guard = threading.RLock()
        self._topics: dict[str, Topic] = {}
        self._known_topics: dict[str, KnownTopic] = {}

    def topic(self, name: str, **settings: Unpack[TopicOptions]) -> Topic:
        """Open a topic, and create it if there is none of this name.

        Args:
            name: ASCII letters, digits, '.', '_' and '-', at most 128 characters.
            settings: see `TopicSettings`; what is not named gets its default at creation, and is not
                compared afterwards.

        Raises:
            InvalidNameError: the name breaks the rule.
            InvalidOptionError: a setting is unknown or out of range, or the topic has another value.
            StorageUnavailableError: the database cannot be reached.
        """
        self._check_topics_usable()
        record = self._topic_catalog.ensure(check_name(name, "topic name"), settings)
        record.settings.check_same(name, settings)
        return self._open_topic(record)

    def find_topic(self, name: str) -> Topic:
        """Open a topic that exists.

        Raises: TopicNotFoundError: there is none of this name.
        """
        self._check_topics_usable()
        return self._open_topic(self._topic_catalog.find(check_name(name, "topic name")))

    def alter_topic(self, name: str, **settings: Unpack[AlterTopicOptions]) -> TopicSettings:
        """Give a topic other settings, while it is in use; return all that it has now.

        Raises:
            TopicNotFoundError: there is none of this name.
            InvalidOptionError: a setting is unknown, out of range, or cannot be altered; nothing was.
            OutcomeUnknownError: they may be altered; altering them again is harmless.
        """
        self.find_topic(name)
        known = self._known_topics.get(name)
        if known is None:
            raise _deleted_meanwhile(name)
        return known.change(
            lambda seen: replace(seen, settings=seen.settings.altered(name, settings))
        ).settings

    def topics(self) -> list[str]:
        """Return the names of all topics, in order."""
        self._check_topics_usable()
        return list(self._topic_catalog.names())

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all that was published, and its groups.

        Publishers and readers elsewhere hear of it at their next call.

        Raises:
            TopicNotFoundError: there is none of this name.
            OutcomeUnknownError: it may be deleted.
            CassqError: it is deleted, but not all that it held is cleared; a pass of the reaper clears it.
        """
        topic = self.find_topic(name)
        with alone(self._topics_guard, "delete_topic()"):
            self._topics.pop(name, None)
            known = self._known_topics.pop(name, None)
        if known is None:
            raise _deleted_meanwhile(name)
        try:
            self._topic_catalog.delete(known)
        finally:
            topic.close()

    def history(self, message_id: MessageId | str) -> MessageHistory:
        """Return what happened to a message of any queue, also where its pipe is gone.

        Its pipe tells while it stands, and after that the journal, where the queue keeps one.

        Raises:
            InvalidOptionError: it is no message id.
            MessageNotFoundError: nobody knows.
        """
        self._check_topics_usable()
        return self._histories.find(to_message_id(message_id))

    def _tell_deleted(self, record: QueueRecord) -> None:
        """Have the event of a queue's deletion in the journal, once.

        It is looked for from the time on that the record names: no such event is from before.
        """
        event = QueueEvent(
            record.name, record.incarnation, to_datetime(record.samples[-1].at_ms), record.totals
        )
        journal = Journal(self._context_of(self._topic_catalog.ensure(JOURNAL, JOURNAL_SETTINGS)))
        journal.write({event.key: journal.place_at(event.key, record.samples[0].at_ms)}, [event])

    def _open_journal(self) -> TopicContext | None:
        record = self._services_of_topics.storage.glance_topic(JOURNAL)
        return None if record is None or record.is_deleted else self._context_of(record)

    def _reap_topics(self, note_failure: Callable[[str, CassqError], None]) -> int:
        """Make one pass over every topic; return how many segments were deleted."""
        deleted = 0
        for record in self._topic_catalog.all(
            lambda name, error: note_failure(f"topic {name}: {error}", error)
        ):
            try:
                if record.is_deleted:
                    deleted += self._topic_catalog.clear(record)
                else:
                    deleted += self._topic_catalog.reap(record)
            except TopicNotFoundError:
                continue  # deleted meanwhile: the next pass clears it
            except (AccessDeniedError, UnavailableError, OutcomeUnknownError, CorruptError) as error:
                note_failure(f"topic {record.name}: {error}", error)
        return deleted

    def _close_topics(self) -> None:
        with self._topics_guard:
            topics = list(self._topics.values())
        for topic in topics:
            topic.close()

    def _open_topic(self, record: TopicRecord) -> Topic:
        with alone(self._topics_guard, "opening a topic"):
            self._check_topics_usable()
            topic, known = self._topics.get(record.name), self._known_topics.get(record.name)
            if topic and known and known.is_same(record) and not topic.is_closed:
                known.note(record)
                return topic
            if topic:
                topic.close()
            context = self._context_of(record)
            self._known_topics[record.name] = context.known
            opened = self._topics[record.name] = Topic(context)
            return opened

    def _context_of(self, record: TopicRecord) -> TopicContext:
        services = self._services_of_topics
        known = KnownTopic(services.storage, record, services.clock)
        return TopicContext(
            *(services.storage, services.coordinator, known, services.clock, services.owner),
            self._queue_context,
        )

    def _queue_context(self, name: str) -> QueueContext:
        """Return what a queue works with.

        Raises: QueueNotFoundError: there is none of this name.
        """
        record = self._services_of_topics.storage.glance_queue(check_name(name))
        if record is None or record.state is QueueState.DELETED:
            raise QueueNotFoundError(f"there is no queue {name!r}: store.queue({name!r}) makes one")
        return self._services_of_topics.context_of(record)


def _deleted_meanwhile(name: str) -> TopicNotFoundError:
    return TopicNotFoundError(f"topic {name!r} was deleted meanwhile")
