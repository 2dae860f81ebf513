"""The journal: a topic with one event of each pipe that retired.

Owns where an event belongs, and that it is there once. Refuses to know what became of a pipe. What must not
break: an event is looked for from the offset on that the head of its pipe names, in all that is left of the
log, up to a head; and it is linked on the op of that head.

    reaper A                       the log                     reaper B
    | reads its end: 17            |                           |
    | P retires, and names 17      |                           |
    | links P at 17, no answer --->|  (on its way)             | finds P retired, 17
    |                              |                           | reads the head: op x, next 17: P is not there
    |                              |<-- links P at 17 IF op = x| applied: op y, next 18
    |                              |  A's lands: IF op = x: refused
    | reads the head: op y, next 18; reads from 17 on: P is there
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from cassq.errors import OutcomeUnknownError
from cassq.limits import NO_LIMIT
from cassq.model.ids import LogPlace, id_time_ms
from cassq.model.journal import PipeEvent
from cassq.model.message import to_datetime
from cassq.model.options import TopicOptions
from cassq.model.topic import KEY_HEADER, TYPE_HEADER, LogHead, partition_of
from cassq.runtime.background_thread import BackgroundThread
from cassq.topics.log_end import LogEnd
from cassq.topics.log_reader import LogReader
from cassq.topics.publish_request import PublishRequest, in_batches
from cassq.topics.segments import Segments
from cassq.topics.topic_context import TopicContext

NAME = "cassq.journal"

#: What it is made with. Whoever wants another retention alters it, or makes the topic before.
SETTINGS: TopicOptions = {"partitions": 4, "retention": timedelta(days=30)}

#: An unknown link is settled for so long; what is not settled by then the next pass finds out.
_SETTLE_S = 5.0


class Journal:
    """The journal for one pass of a reaper; used by one thread."""

    def __init__(self, context: TopicContext) -> None:
        self._context = context
        self._ends: dict[int, LogEnd] = {}
        self._wanted: dict[int, Search] = {}
        self._thread = BackgroundThread("cassq-journal")  # of futures that nobody waits for: it never starts

    def end(self, pipe: UUID) -> LogPlace:
        """Return where the log ends that the event of a pipe belongs to, for its head to name.

        The first call for a partition reads it, and a later one goes by what this has linked since.
        """
        return LogPlace(self._context.incarnation, self._end_of(self._partition_of(pipe)).look())

    def write(self, events: Iterable[tuple[PipeEvent, LogPlace]]) -> None:
        """Have each event in the log, once.

        Args:
            events: each with what the head of its pipe names.

        Raises:
            TopicNotFoundError: the journal was deleted.
            OutcomeUnknownError, StorageUnavailableError: some may be there, and some not; call it again.
        """
        by_partition: dict[int, list[tuple[PipeEvent, LogPlace]]] = {}
        for event, place in events:
            by_partition.setdefault(self._partition_of(event.pipe), []).append((event, place))
        for partition, found in by_partition.items():
            self._write(partition, found)

    def _write(self, partition: int, events: Sequence[tuple[PipeEvent, LogPlace]]) -> None:
        end = self._end_of(partition)
        until = self._context.clock.now() + _SETTLE_S
        places = {str(event.pipe): place for event, place in events}
        requests = [self._request(event, until) for event, _ in events]
        for part in in_batches(requests):
            since = min(self._since(places[_key_of(each)]) for each in part)
            self._wanted[partition] = Search(self._context, partition, since)
            end.publish(part, until)
            for each in part:
                each.future.result(0)

    def _request(self, event: PipeEvent, until: float) -> PublishRequest:
        headers = {TYPE_HEADER: event.queue, KEY_HEADER: str(event.pipe)}
        request = PublishRequest(self._thread, (event.to_body(),), (headers,), until)
        request.begin()
        return request

    def _since(self, place: LogPlace) -> int:
        return place.offset if place.incarnation == self._context.incarnation else 1

    def _end_of(self, partition: int) -> LogEnd:
        if partition not in self._ends:
            find = self._find_in(partition)
            self._ends[partition] = LogEnd(self._context, partition, find)
        return self._ends[partition]

    def _find_in(self, partition: int) -> Callable[[Sequence[PublishRequest], LogHead], None]:
        def find(requests: Sequence[PublishRequest], head: LogHead) -> None:
            self._wanted[partition].find(requests, head)

        return find

    def _partition_of(self, pipe: UUID) -> int:
        return partition_of(str(pipe), self._context.settings.partitions)


class Search:
    """Looks for events in one partition, on from where it looked before.

    Args:
        since: the offset before which none of them can be.
    """

    def __init__(self, context: TopicContext, partition: int, since: int) -> None:
        self._context = context
        self._partition = partition
        self._since = since

    def find(self, requests: Sequence[PublishRequest], head: LogHead) -> None:
        """Tell the requests whose events are in the log, up to a head."""
        if self._since >= head.next:
            return
        wanted = {_key_of(each): each for each in requests}
        reader = reader_of_what_is_left(self._context, self._partition, self._since)
        while reader.next < head.next and (messages := reader.read()):
            for message in messages:
                if request := wanted.pop(message.key or "", None):
                    request.tell(self._partition, message.offset, is_repeat=True)
        if reader.next < head.next:
            raise OutcomeUnknownError(
                f"topic {self._context.name!r}, partition {self._partition}: it was read up to "
                f"{reader.next}, and goes up to {head.next}; the next pass reads it again"
            )
        self._since = reader.next


def _key_of(request: PublishRequest) -> str:
    return request.headers[0][KEY_HEADER]


def reader_of_what_is_left(context: TopicContext, partition: int, since: int) -> LogReader:
    """Return what reads a partition from an offset on, or from the oldest one that is left."""
    oldest = Segments(context, partition).earliest()
    return LogReader(context, partition, max(since, oldest), skips_gone=True)


def find_event(context: TopicContext, pipe: UUID) -> PipeEvent | None:
    """Return the event of a pipe; None where the journal has none.

    It is read from the time of the pipe's id on, which most events are soon behind; then what is before that.
    A pipe of messages that are due later has an id of that time, and its event may be from before.

    Raises: TopicNotFoundError: the journal was deleted meanwhile.
    """
    partition = partition_of(str(pipe), context.settings.partitions)
    since = Segments(context, partition).offset_at(to_datetime(id_time_ms(pipe)))
    return _read_for(pipe, reader_of_what_is_left(context, partition, since)) or _read_for(
        pipe, reader_of_what_is_left(context, partition, 1), since
    )


def _read_for(pipe: UUID, reader: LogReader, until: int = NO_LIMIT) -> PipeEvent | None:
    while reader.next < until and (messages := reader.read()):
        for message in messages:
            if message.key == str(pipe):
                return PipeEvent.from_body(message.body)
    return None
