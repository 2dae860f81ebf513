"""The events of pipes that retire, in the journal.

Owns the order: the head of a pipe names where its event is to be, as it retires; the event is linked; the
pipe goes. Costs nothing where a queue keeps no journal. What must not break: nothing of a pipe whose head
names a place is deleted before its event is known to be in the log.

    reaper A                    head of P                   the journal             reaper B
    | reads its end: 17         |                           |                       |
    | retire, 17 -------------> | retired, 17               |                       |
    | links P --------------------------------------------> | P at 17               |
    | (killed)                  |                           |                       | finds P retired, 17
    |                           |                           | <-- reads from 17 on: | P is there
    |                           | deleted <---------------------------------------- |
"""

from collections.abc import Iterator, Sequence
from typing import NoReturn

from cassq.catalog.queue_context import QueueContext
from cassq.errors import QueueNotFoundError
from cassq.limits import NO_LIMIT
from cassq.model.ids import LogPlace
from cassq.model.journal import PipeEvent, event_of, events_with_headers
from cassq.model.pipe import PipeEntry
from cassq.model.topic import TopicRecord
from cassq.pipes import upkeep
from cassq.pipes.batch_reader import read_all, read_headers
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.topics.journal import NAME, SETTINGS, Journal
from cassq.topics.known_topic import KnownTopic
from cassq.topics.topic_catalog import TopicCatalog
from cassq.topics.topic_context import TopicContext


class Journaling:
    """What a reaper of one queue does for the journal."""

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._catalog = TopicCatalog(context.storage, "the store", self._context_of)
        self._journal: Journal | None = None

    def begin(self) -> None:
        """Begin a pass: what it knows of the journal from the one before may be old."""
        self._journal = None

    def retire(self, fenced: FencedPipe) -> bool:
        """Retire a pipe that is over and counted, as its queue's journal wants; True when it is, or is gone.

        What its head names from then on is in `fenced.head.journal`.
        """
        kind = self._context.settings.journal
        return upkeep.retire(fenced, None if kind == "off" else self._open().end(str(fenced.pipe), kind))

    def write(self, retired: Sequence[tuple[PipeEntry, LogPlace]]) -> None:
        """Have the events of retired pipes in the journal, each once.

        Args:
            retired: each with what its head names.

        Raises: CassqError: some may not be there; call it again.
        """
        places = {str(entry.pipe): place for entry, place in retired}
        if places:
            events = (event for entry, place in retired for event in self._events_of(entry, place.kind))
            self._open().write(places, events)

    def _events_of(self, entry: PipeEntry, kind: str) -> Iterator[PipeEvent]:
        """Yield the events of a pipe; none where the pipe is gone: then they are in the log.

        Args:
            kind: what its head says: a queue that is altered meanwhile is not cut in two ways.
        """
        storage, queue = self._context.storage, self._context.queue
        state = storage.load_pipe(entry.pipe, is_whole=True)
        if state and kind == "headers":
            yield from events_with_headers(
                queue, entry, state, read_headers(storage, entry.pipe, state.head.last)
            )
        elif state:
            moved_here = read_all(storage, entry.pipe, NO_LIMIT, is_outline=True) if entry.moved_from else ()
            yield event_of(queue, entry, state, moved_here)

    def _open(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._context_of(self._catalog.ensure(NAME, SETTINGS)))
        return self._journal

    def _context_of(self, record: TopicRecord) -> TopicContext:
        context = self._context
        known = KnownTopic(context.storage, record, context.clock)
        return TopicContext(
            context.storage, context.coordinator, known, context.clock, self, _no_queue, context.guard
        )


def _no_queue(name: str) -> NoReturn:
    raise QueueNotFoundError(f"the journal fills no queue, and {name!r} was asked for")
