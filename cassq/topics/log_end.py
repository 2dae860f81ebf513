"""The end of one partition's log, where batches are linked.

Owns the offsets: which batch gets which, whether a link that nobody answered for was applied, and when a
segment is followed by the next. Refuses to know callers. What must not break: a batch is told as published
only once its link is known to be applied, and an unknown link is settled before anything else is linked.

    this end                       segment                     another publisher
    | link a at 17, IF op = x ---->|  (no answer)
    | load head: op x              |  (not yet)
    | link a at 17, IF op = x ---->|  applied: op a, next 18
    | ...                          |  the first one lands: refused, op is a
    |                              |
    | load head: op c              | <------- link c at 17 or 18 -----| applied
    | batch at 17: its link is a: it is in the log; any other: it never will be
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from cassq.errors import (
    CassqError,
    CorruptError,
    OutcomeUnknownError,
    StorageUnavailableError,
    UnavailableError,
)
from cassq.model.ids import new_token
from cassq.model.offer import is_source
from cassq.model.topic import (
    LogHead,
    SegmentKey,
    SegmentState,
    WriterRow,
    closed,
    first_head,
    linked,
)
from cassq.runtime.clock import rest
from cassq.storage.topic_port import LogQuery
from cassq.topics.link import Link, count_named, cut, too_many_writers
from cassq.topics.publish_request import PublishRequest
from cassq.topics.topic_context import LOOK_PAUSE_S, LOOKS_MAX, TopicContext

#: So many writers with names a partition remembers.
WRITERS_MAX = 1000


class LogEnd:
    """Links batches into one partition; used by one thread at a time.

    What it knows of the end is what its own last link left, and is looked up again once that was refused.

    Attributes:
        last: the segment that it knew last.

    Args:
        find: told of each head before anything is linked on it, and of the requests: it tells those that are
            in the log already, up to there.
    """

    def __init__(
        self,
        context: TopicContext,
        partition: int,
        find: Callable[[Sequence[PublishRequest], LogHead], None] = lambda _, __: None,
    ) -> None:
        self._find_repeats = find
        self._storage = context.storage
        self._context = context
        self._key = context.key(partition)
        self._place: SegmentKey | None = None
        self.last: SegmentKey | None = None
        self._head: LogHead | None = None
        self._writers: dict[str, WriterRow] | None = None
        self._is_own = False

    def publish(
        self,
        requests: Sequence[PublishRequest],
        until: float,
        meanwhile: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Link the messages of all requests at once, and tell each request its offset.

        A number that its writer had before publishes nothing, and is told so.

        Args:
            until: the clock's reading until which an unknown outcome is settled.
            meanwhile: called again and again while one is, with True: some may hear by then that it is
                unknown; and with False after a refusal, when nothing is on its way.

        Raises:
            OutcomeUnknownError: nobody knows whether the requests that have not ended are published.
            CassqError: they are not.
        """
        refusals = 0
        while any(not each.is_over for each in requests):
            if not self.link_once(requests, until, meanwhile):
                refusals += 1
                self.give_way(refusals, meanwhile)

    def link_once(
        self,
        requests: Sequence[PublishRequest],
        until: float,
        meanwhile: Callable[[bool], None] = lambda _: None,
    ) -> bool:
        """Try once to link what has not ended of the requests; see `publish`.

        A number that comes twice, and what is offered for another segment, does not end by it.

        Returns: whether it was linked, or nothing was to be; False where somebody else published.
        """
        place, head = self._find()
        left = [each for each in requests if not each.is_over]
        self._find_repeats(left, head)
        rows, sent = self._number([each for each in left if not each.is_over], place, head.next)
        if not sent:
            return True
        wanted = linked(head, sum(each.count for each in sent), sum(each.size for each in sent))
        batches = cut(sent, head.next, wanted.op)
        if not self._link(Link(place, head, wanted, batches, list(rows.values())), until, meanwhile):
            self.forget()
            return False
        self._place, self._head, self._is_own = place, wanted, True
        if self._writers is not None:
            self._writers |= rows
        offset = head.next
        for each in sent:
            if not each.is_over:
                each.tell(self._key.partition, offset)
            offset += each.count
        return True

    @property
    def is_its_own(self) -> bool:
        """Whether what it knows of the end is what its own last link left."""
        return self._head is not None and self._is_own

    def place(self) -> SegmentKey:
        """Return the open segment, which is found, or made, where nothing is known of it."""
        return self._find()[0]

    def look(self) -> int:
        """Return the offset that the next message gets, by a settled read where nothing is known of it."""
        return self._find()[1].next

    def give_way(self, refusals: int, meanwhile: Callable[[bool], None]) -> None:
        """See what another publisher left, and let it go first where that comes again."""
        meanwhile(False)
        if refusals > 1:
            rest(self._context.clock, LOOK_PAUSE_S * (new_token().int % 1000) / 1000)
        place = self.last
        head = self._storage.load_head(place) if place else None
        if head and head.state is SegmentState.OPEN:
            self._place, self._head, self._is_own = place, head, False

    def close_segment(self) -> None:
        """Close the open segment, unless it is empty, and open the next one.

        Raises: OutcomeUnknownError: others kept publishing into it.
        """
        self.forget()
        closing, head = self._find()
        place = closing
        for _ in range(LOOKS_MAX):
            if place != closing or head.next == head.first:
                return
            self._roll(place, head)
            place, head = self._find()
        raise OutcomeUnknownError(
            f"topic {self._context.name!r}, partition {self._key.partition}: others kept publishing while a "
            "segment was closed; try again"
        )

    def _find(self) -> tuple[SegmentKey, LogHead]:
        """Return the open segment and its head."""
        for _ in range(LOOKS_MAX):
            if self._place and self._head:
                if self._head.size < self._context.settings.segment_bytes:
                    return self._place, self._head
                self._roll(self._place, self._head)
            segments = self._storage.list_segments(self._key).segments
            place = self._key.segment(segments[-1].number) if segments else None
            head = self._storage.load_head(place) if place else None
            if place is None or head is None or head.state is SegmentState.RETIRED:
                self._context.known.look()  # a deleted topic says so
                rest(self._context.clock, LOOK_PAUSE_S)
            elif head.state is SegmentState.CLOSED:
                with suppress(OutcomeUnknownError):  # what is there tells
                    open_next(self._context, place, head)
            else:
                self._place, self._head, self._is_own = place, head, False
        raise CorruptError(
            f"topic {self._context.name!r}, partition {self._key.partition}: it has no open segment, and "
            "none came"
        )

    def _roll(self, place: SegmentKey, head: LogHead) -> None:
        """Close a segment, unless somebody else changed it meanwhile; what stands then is looked up."""
        self.forget()
        with suppress(OutcomeUnknownError):
            self._storage.link(place, head, closed(head))

    def forget(self) -> None:
        """Look the end up anew, next time."""
        self.last = self._place or self.last
        self._place = self._head = self._writers = None

    def _number(
        self, requests: Sequence[PublishRequest], place: SegmentKey, first: int
    ) -> tuple[dict[str, WriterRow], list[PublishRequest]]:
        """Tell the requests whose numbers were published before; return rows of writers, and what to send.

        A number that comes twice in one batch waits for the next one: the first is not published yet.
        """
        if any(each.writer for each in requests) and self._writers is None:
            self._writers = {row.writer: row for row in self._storage.read_writers(place)}
        known = self._writers or {}
        rows: dict[str, WriterRow] = {}
        sent: list[PublishRequest] = []
        offset = first
        for each in requests:
            if each.segment not in (None, place):
                continue
            if each.writer:
                row = known.get(each.writer)
                if row and each.number <= row.number:
                    each.tell(self._key.partition, row.offset, is_repeat=True)
                    continue
                if each.writer in rows and each.number <= rows[each.writer].number:
                    continue
                if row is None and count_named({*known, *rows, each.writer}) > WRITERS_MAX:
                    each.fail(too_many_writers(each.writer, WRITERS_MAX))
                    continue
                rows[each.writer] = WriterRow(each.writer, each.number, offset)
            sent.append(each)
            offset += each.count
        return rows, sent

    def _link(self, link: Link, until: float, meanwhile: Callable[[bool], None]) -> bool:
        """Link, and settle an unknown outcome; tell whether it was applied."""
        try:
            return self._send(link)
        except OutcomeUnknownError:
            self.forget()  # whatever the settling ends with
            is_linked = self._settle_until(link, until, meanwhile)
            if is_linked is None:
                raise
            return is_linked

    def _settle_until(self, link: Link, until: float, meanwhile: Callable[[bool], None]) -> bool | None:
        while True:
            meanwhile(True)
            try:
                return self._settle(link)
            except UnavailableError:
                if self._context.clock.now() >= until:
                    return None
                rest(self._context.clock, LOOK_PAUSE_S)
            except OutcomeUnknownError:
                raise
            except CassqError as error:
                raise OutcomeUnknownError(f"it cannot be told any more: {error}") from error

    def _settle(self, link: Link) -> bool | None:
        """Tell whether a link was applied; send it again where it may be applied still.

        Either copy of one transaction applies, never both. None: the segment is gone, and all that it held.
        """
        found = self._storage.load_head(link.place)
        if found is None:
            return None
        if found.op == link.head.op:
            with suppress(OutcomeUnknownError):
                if self._send(link):
                    return True
            raise StorageUnavailableError("the end of a segment is not known yet")
        if found.op == link.wanted.op:
            return True
        if found.next == link.head.next:
            return False  # the segment was closed there
        query = LogQuery(link.head.next, is_edge=True, is_outline=True)
        there = self._storage.read_log(link.place, query)
        if not there:
            return None  # deleted since the head was read: whose it was went with it
        return there[0].link_id == link.wanted.op

    def _send(self, link: Link) -> bool:
        return self._storage.link(link.place, link.head, link.wanted, link.batches, link.writers)


def open_next(context: TopicContext, place: SegmentKey, head: LogHead) -> None:
    """Create the segment behind a closed one; whoever comes by does, and all write the same."""
    writers = [each for each in context.storage.read_writers(place) if not is_source(each.writer)]
    context.storage.create_segment(place.successor, first_head(place.successor, head.next), writers)
