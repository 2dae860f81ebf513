"""What happened to a message, whether its pipe is there or not.

Owns where that is looked for: in the pipe, as long as it stands, and in the journal after that; and how a
message is followed from pipe to pipe. Writes nothing. What must not break: what is told was written down by
somebody; where nobody did, that is told.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.catalog.services import Services
from cassq.errors import MessageNotFoundError
from cassq.model.fates import Stretch, stretches_of
from cassq.model.ids import MessageId
from cassq.model.journal import PipeEvent
from cassq.model.message import to_datetime
from cassq.model.past import Attempt
from cassq.model.pipe import End, PipeState
from cassq.model.queue_record import QueueState
from cassq.observing.inspection import Inspection, MessageState, MessageStatus
from cassq.pipes.shelves import find_entry, find_moved
from cassq.storage.forms import DeadLetter
from cassq.topics.journal import find_event
from cassq.topics.topic_context import TopicContext


@dataclass(frozen=True, slots=True)
class MessageHistory:
    """What happened to a message.

    Attributes:
        queue: where it was pushed; of one that was put back elsewhere, still that.
        pusher: who pushed it, or moved it last: host and process.
        status: what became of it; ENDED where it was moved on to a pipe of which nobody knows.
        pipes: those that it was in, its own first: it may have been moved, for its due time or priority.
        ended_at: when it ended, by the database's clock, to the second; None where it has not, or where its
            queue kept no journal then.
        past: the attempts before the last one, where its queue keeps a journal: the last sixteen.
        retired_at: when the last of them was over, by the database's clock; None where it is there still.
    """

    message_id: MessageId
    queue: str
    pusher: str
    status: MessageStatus
    pipes: tuple[UUID, ...]
    retired_at: datetime | None = None
    ended_at: datetime | None = None
    past: tuple[Attempt, ...] = ()


class _Found(NamedTuple):
    """What is known of one message in one pipe."""

    queue: str
    pusher: str
    stretch: Stretch | None
    retired_at: datetime | None = None
    context: QueueContext | None = None
    is_beyond: bool = False  # its number is none that was pushed


class Histories:
    """Looks for what happened to messages of one store.

    Args:
        open_journal: returns what works with the journal's topic; None where there is none.
    """

    def __init__(self, services: Services, open_journal: Callable[[], TopicContext | None]) -> None:
        self._services = services
        self._storage = services.storage
        self._open_journal = open_journal

    def find(self, message_id: MessageId) -> MessageHistory:
        """Return what happened to a message.

        Raises: MessageNotFoundError: nobody knows.
        """
        at, pipes = message_id, [message_id.pipe]
        found = self._look(at) or self._letter_alone(message_id)
        while found.stretch and found.stretch.target:
            moved = self._place_in(found.stretch.target, message_id)
            following = self._look(moved) if moved else None
            if moved is None or following is None:
                break
            at, found = moved, following
            pipes.append(at.pipe)
        status = self._status_of(at, message_id, found)
        place = message_id, found.queue, found.pusher, status, tuple(pipes), found.retired_at
        return MessageHistory(*place, *_times_of(found.stretch))

    def _look(self, at: MessageId) -> _Found | None:
        """Return what is known of a message where it is, or was; None: its pipe is gone, without an event."""
        while state := self._storage.load_pipe(at.pipe, is_whole=True):
            if found := self._in_pipe(at, state):
                return found
            if self._storage.load_pipe(at.pipe):
                raise MessageNotFoundError(
                    f"message {at} is in no queue: its pipe is there, and no queue lists it. It is a bulk "
                    "write's that is not published yet, or its queue is being deleted: ask again"
                )
        event = self._event_of(at.pipe, lambda event: event.covers(at.seq) or at.seq > event.messages)
        if event is None:
            return None
        is_beyond = at.seq > event.messages
        return _Found(event.queue, event.pusher, event.find(at.seq), event.retired_at, is_beyond=is_beyond)

    def _in_pipe(self, at: MessageId, state: PipeState) -> _Found | None:
        """Return the same where the pipe stands; None where no queue lists it."""
        ended = [each for each in stretches_of(state) if each.first <= at.seq <= each.last]
        for context in self._contexts():
            if entry := find_entry(context, at.pipe):
                return _Found(context.queue, entry.pusher, ended[0] if ended else None, None, context)
        return None

    def _place_in(self, target: UUID, message_id: MessageId) -> MessageId | None:
        """Return where a message is in the pipe that it was moved to."""
        if moved := find_moved(self._storage, [target], message_id):
            return moved
        event = self._event_of(target, lambda event: event.number_of(message_id))
        seq = event.number_of(message_id) if event else None
        return MessageId(target, seq) if seq else None

    def _event_of(self, pipe: UUID, is_wanted: Callable[[PipeEvent], object]) -> PipeEvent | None:
        journal = self._open_journal()
        return find_event(journal, pipe, is_wanted) if journal else None

    def _status_of(self, at: MessageId, message_id: MessageId, found: _Found) -> MessageStatus:
        stretch = found.stretch
        if found.is_beyond:
            return MessageStatus(MessageState.UNKNOWN)
        if stretch is None:
            return Inspection(found.context).status(at) if found.context else _ENDED
        if stretch.end is End.MOVED:
            return _ENDED
        if stretch.end is End.DEAD and (letter := self._letter(found.queue, message_id)):
            return MessageStatus(MessageState.DEAD, letter.attempts, reason=letter.reason)
        return MessageStatus(MessageState(stretch.end.value), stretch.attempts, reason=stretch.reason)

    def _letter_alone(self, message_id: MessageId) -> _Found:
        """Return what is known of a message of which nothing is left but its dead letter."""
        for context in self._contexts():
            if letter := self._letter(context.queue, message_id):
                seq = message_id.seq
                return _Found(context.queue, "", Stretch(seq, seq, End.DEAD, letter.attempts, letter.reason))
        raise MessageNotFoundError(
            f"nobody knows of message {message_id}: its pipe is gone, and the journal has no event of it. "
            "Its queue kept no journal when the pipe retired (`cassq queue alter NAME --journal outline` has "
            "it keep one from then on), or the event is older than the journal's retention, or another store "
            "has the message"
        )

    def _letter(self, queue: str, message_id: MessageId) -> DeadLetter | None:
        before = MessageId(message_id.pipe, message_id.seq - 1)
        return next(iter(self._storage.read_dead(queue, before, 1, until=message_id)), None)

    def _contexts(self) -> Iterator[QueueContext]:
        for record in self._storage.read_queues():
            if record.state is not QueueState.DELETED:
                yield self._services.context_of(record)


_ENDED = MessageStatus(MessageState.ENDED)


def _times_of(stretch: Stretch | None) -> tuple[datetime | None, tuple[Attempt, ...]]:
    if stretch is None or stretch.end is End.MOVED:
        return None, ()
    return (stretch.ended_at_s and to_datetime(1000 * stretch.ended_at_s)) or None, stretch.past
