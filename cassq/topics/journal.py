"""The journal: a topic with the events of each pipe that retired: one, or one for each part of it.

Owns where an event belongs, and that it is there once. Refuses to know what became of a pipe. What must not
break: an event is looked for from the offset on that the head of its pipe names, in all that is left of the
log, up to a head, by its pipe and the number that it tells from; and it is linked on the op of that head.

    reaper A                       the log                     reaper B
    | reads its end: 17            |                           |
    | P retires, and names 17      |                           |
    | links P at 17, no answer --->|  (on its way)             | finds P retired, 17
    |                              |                           | reads the head: op x, next 17: P is not there
    |                              |<-- links P at 17 IF op = x| applied: op y, next 18
    |                              |  A's lands: IF op = x: refused
    | reads the head: op y, next 18; reads from 17 on: P is there
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from cassq.errors import OutcomeUnknownError
from cassq.limits import NO_LIMIT
from cassq.model.ids import LogPlace, id_time_ms
from cassq.model.journal import PipeEvent
from cassq.model.message import Headers, to_datetime
from cassq.model.options import TopicOptions
from cassq.model.queue_event import QueueEvent
from cassq.model.topic import KEY_HEADER, TYPE_HEADER, LogHead, partition_of
from cassq.runtime.background_thread import BackgroundThread
from cassq.topics.log_end import LogEnd
from cassq.topics.log_reader import LogReader
from cassq.topics.publish_request import PublishRequest, in_batches
from cassq.topics.segments import Segments
from cassq.topics.topic_context import TopicContext

NAME = "cassq.journal"

#: Of a part of a pipe that is not the first: the number of its first message.
FIRST_HEADER = "first"

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

    def end(self, key: str, kind: str) -> LogPlace:
        """Return where the log ends that the events of a pipe belong to, for its head to name.

        The first call for a partition reads it, and a later one goes by what this has linked since.
        """
        return LogPlace(self._context.incarnation, self._end_of(self._partition_of(key)).look(), kind)

    def place_at(self, key: str, at_ms: int) -> LogPlace:
        """Return from where on an event is looked for that nobody published before a time.

        Args:
            at_ms: by the database's clock, whose nodes may differ by `clock_skew_max`.
        """
        skew_ms = round(self._context.settings.clock_skew_max.total_seconds() * 1000)
        since = to_datetime(max(0, at_ms - skew_ms))
        offset = Segments(self._context, self._partition_of(key)).offset_at(since)
        return LogPlace(self._context.incarnation, offset)

    def write(self, places: Mapping[str, LogPlace], events: Iterable[PipeEvent | QueueEvent]) -> None:
        """Have each event in the log, once.

        Args:
            places: from where on each is looked for, by its key: what the heads of the pipes name.
            events: with these keys; taken a few at a time.

        Raises:
            TopicNotFoundError: the journal was deleted.
            OutcomeUnknownError, StorageUnavailableError: some may be there, and some not; call it again.
        """
        by_partition: dict[int, list[str]] = {}
        for key in places:
            by_partition.setdefault(self._partition_of(key), []).append(key)
        for partition, keys in by_partition.items():
            since = min(self._since(places[key]) for key in keys)
            self._wanted[partition] = Search(self._context, partition, since, keys)
        for part in in_batches(self._request(event) for event in events):
            for partition in by_partition:
                own = [each for each in part if self._partition_of(_key_of(each)[0]) == partition]
                if own:
                    self._write(partition, own)

    def _write(self, partition: int, part: Sequence[PublishRequest]) -> None:
        self._end_of(partition).publish(part, part[0].deadline)
        for each in part:
            each.future.result(0)

    def _request(self, event: PipeEvent | QueueEvent) -> PublishRequest:
        headers = {TYPE_HEADER: event.queue, KEY_HEADER: event.key}
        if event.first > 1:
            headers[FIRST_HEADER] = str(event.first)
        until = self._context.clock.now() + _SETTLE_S
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

    def _partition_of(self, key: str) -> int:
        return partition_of(key, self._context.settings.partitions)


class Search:
    """Looks for events in one partition, on from where it looked before.

    Args:
        since: the offset before which none of them can be.
        keys: of the events that are looked for.
    """

    def __init__(self, context: TopicContext, partition: int, since: int, keys: Iterable[str]) -> None:
        self._context = context
        self._partition = partition
        self._since = since
        self._keys = set(keys)
        self._seen: dict[tuple[str, str], int] = {}

    def find(self, requests: Sequence[PublishRequest], head: LogHead) -> None:
        """Tell the requests whose events are in the log, up to a head."""
        if self._since < head.next:
            self._look(head)
        for each in requests:
            if offset := self._seen.get(_key_of(each)):
                each.tell(self._partition, offset, is_repeat=True)

    def _look(self, head: LogHead) -> None:
        reader = reader_of_what_is_left(self._context, self._partition, self._since)
        while reader.next < head.next and (messages := reader.read()):
            for message in messages:
                key = _event_key(message.headers)
                if key[0] in self._keys:
                    self._seen.setdefault(key, message.offset)
        if reader.next < head.next:
            raise OutcomeUnknownError(
                f"topic {self._context.name!r}, partition {self._partition}: it was read up to "
                f"{reader.next}, and goes up to {head.next}; the next pass reads it again"
            )
        self._since = reader.next


def _key_of(request: PublishRequest) -> tuple[str, str]:
    return _event_key(request.headers[0])


def _event_key(headers: Headers) -> tuple[str, str]:
    """Return what tells an event from all others: its pipe, and the number that it tells from."""
    return headers.get(KEY_HEADER, ""), headers.get(FIRST_HEADER, "1")


def reader_of_what_is_left(context: TopicContext, partition: int, since: int) -> LogReader:
    """Return what reads a partition from an offset on, or from the oldest one that is left."""
    oldest = Segments(context, partition).earliest()
    return LogReader(context, partition, max(since, oldest), skips_gone=True)


def find_event(
    context: TopicContext, pipe: UUID, is_wanted: Callable[[PipeEvent], object] = bool
) -> PipeEvent | None:
    """Return the first event of a pipe that is wanted; None where the journal has none.

    It is read from the time of the pipe's id on, which most events are soon behind; then what is before that.
    A pipe of messages that are due later has an id of that time, and its event may be from before.

    Raises: TopicNotFoundError: the journal was deleted meanwhile.
    """
    partition = partition_of(str(pipe), context.settings.partitions)
    since = Segments(context, partition).offset_at(to_datetime(id_time_ms(pipe)))
    for start, until in ((since, NO_LIMIT), (1, since)):
        for event in _events_of(pipe, reader_of_what_is_left(context, partition, start), until):
            if is_wanted(event):
                return event
            if event.is_last:
                break  # its parts follow each other
    return None


def _events_of(pipe: UUID, reader: LogReader, until: int) -> Iterator[PipeEvent]:
    while reader.next < until and (messages := reader.read()):
        for message in messages:
            if message.key == str(pipe):
                yield PipeEvent.from_body(message.body)
