"""Topics in the tables of Cassandra.

Owns the translation of the port's methods about topics, and that large batches are written before they are
linked: a transaction stores twice what it carries. What must not break: what is linked is there whole.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from cassandra.query import UNSET_VALUE

from cassq.limits import KIB
from cassq.model.message import size_of
from cassq.model.subscription import Subscription
from cassq.model.topic import (
    GONE,
    LogBatch,
    LogHead,
    PartitionKey,
    Progress,
    Segment,
    SegmentKey,
    SegmentList,
    SegmentState,
    TopicRecord,
    TopicState,
    WriterRow,
)
from cassq.model.topic_settings import TopicSettings
from cassq.storage.cassandra import topic_statements as cql
from cassq.storage.cassandra.offers import CassandraOffers
from cassq.storage.cassandra.session import CassandraSession, Work
from cassq.storage.cassandra.statement import Statement
from cassq.storage.cassandra.statements import READ_CLOCK
from cassq.storage.cassandra.values import (
    Row,
    Values,
    decoding,
    to_count,
    to_message_number,
    to_ms,
    to_text,
    to_uuid,
)
from cassq.storage.topic_port import LogQuery

#: A batch up to this size is in the row of its link.
_SMALL = 16 * KIB

#: In a row that named a pipe before: a null would be a tombstone.
_NO_PIPE = UUID(int=0)


class CassandraTopics(CassandraOffers):
    """The part of the port that is about topics."""

    _session: CassandraSession

    def read_topics(self, name: str | None = None) -> Sequence[TopicRecord]:
        """See `TopicStorage.read_topics`."""
        if name is None:
            found = self._session.execute(cql.READ_TOPICS)
        else:
            found = self._session.execute(cql.READ_TOPIC, (name,))
        return sorted(map(_to_record, found), key=lambda record: record.name)

    def list_topics(self) -> Sequence[str]:
        """See `TopicStorage.list_topics`."""
        found = self._session.execute(cql.READ_TOPICS)  # all columns, so that read repair heals them all
        return sorted(name for name, _, _, state, *_ in found if state not in GONE)

    def glance_topic(self, name: str) -> TopicRecord | None:
        """See `TopicStorage.glance_topic`."""
        for *columns, now in self._session.execute(cql.GLANCE_TOPIC, (name,)):
            return replace(_to_record(tuple(columns)), read_at_ms=to_ms(now))
        return None

    def change_topic(self, seen: TopicRecord | None, wanted: TopicRecord) -> bool:
        """See `TopicStorage.change_topic`."""
        values = (
            *(wanted.op, wanted.incarnation, wanted.state.value, wanted.settings.to_stored()),
            *(dict(wanted.groups), _subscriptions_of(seen, wanted), wanted.name),
        )
        if seen is None:
            return self._has_applied(cql.INSERT_TOPIC, values)
        return self._has_applied(cql.CHANGE_TOPIC, (*values, seen.op))

    def create_segment(self, place: SegmentKey, head: LogHead, writers: Sequence[WriterRow] = ()) -> None:
        """See `TopicStorage.create_segment`."""
        born: list[Work] = [(cql.INSERT_HEAD, (*place, *_head_values(head)))]
        born += [(cql.INSERT_WRITER, (*place, *row)) for row in writers]
        self._session.execute_in_turn([born, [(cql.INSERT_SEGMENT, (*place, head.first))]])

    def list_segments(self, key: PartitionKey) -> SegmentList:
        """See `TopicStorage.list_segments`."""
        found = self._session.execute(cql.READ_SEGMENTS, key)
        now = found[0][-1] if found else self._session.execute(READ_CLOCK)[0][0]
        return SegmentList(tuple(map(_to_segment, found)), to_ms(now))

    def delete_segment(self, place: SegmentKey) -> None:
        """See `TopicStorage.delete_segment`."""
        deletions = cql.DELETE_LARGE, cql.DELETE_LINKS, cql.DELETE_SEGMENT
        self._session.execute_in_turn([[(deletion, place)] for deletion in deletions])

    def load_head(self, place: SegmentKey) -> LogHead | None:
        """See `TopicStorage.load_head`."""
        return self._head(cql.LOAD_HEAD, place)

    def glance_head(self, place: SegmentKey) -> LogHead | None:
        """See `TopicStorage.glance_head`."""
        return self._head(cql.GLANCE_HEAD, place)

    def _head(self, statement: Statement, place: SegmentKey) -> LogHead | None:
        for row in self._session.execute(statement, place):
            return _to_head(row)
        return None

    def link(
        self,
        place: SegmentKey,
        seen: LogHead,
        wanted: LogHead,
        batches: Sequence[LogBatch] = (),
        writers: Sequence[WriterRow] = (),
    ) -> bool:
        """See `TopicStorage.link`."""
        work: list[Work] = [(cql.CHANGE_HEAD, (*_head_values(wanted), *place, seen.op))]
        sizes = [sum(map(size_of, each.bodies, each.headers or ({},) * each.count)) for each in batches]
        is_large = sum(sizes) > _SMALL
        if is_large:
            # Nothing is linked by it: who hears that it failed has published nothing.
            self._session.execute_each(
                (cql.APPEND_LARGE, (*place, each.link_id, each.first, *_carried(each))) for each in batches
            )
        for each in batches:
            carried = (UNSET_VALUE, UNSET_VALUE) if is_large else _carried(each)
            work.append((cql.INSERT_BATCH, (*place, each.first, each.link_id, each.count, *carried)))
        work += [(cql.SET_WRITER, (*place, *row)) for row in writers]
        return bool(self._session.execute_conditional(work)[0]["[applied]"])

    def read_log(self, place: SegmentKey, query: LogQuery) -> Sequence[LogBatch]:
        """See `TopicStorage.read_log`."""
        since = query.since
        if not query.is_edge:
            for row in self._session.execute(cql.READ_HOLDER, (*place, since)):
                holder = _to_batch(row, is_outline=True)
                since = holder.first if holder.next > since else since
        found = self._session.execute(cql.READ_BATCHES[query.is_outline], (*place, since, query.limit))
        batches = [_to_batch(row, is_outline=query.is_outline) for row in found]
        return batches if query.is_outline else self._completed(place, batches)

    def _completed(self, place: SegmentKey, batches: list[LogBatch]) -> list[LogBatch]:
        """Return the batches with the bodies of large ones, up to the first whose bodies are gone."""
        asked = {
            batch.first: self._session.start(cql.READ_LARGE, (*place, batch.link_id, batch.first))
            for batch in batches
            if not batch.bodies
        }
        completed: list[LogBatch] = []
        for batch in batches:
            if batch.bodies:
                completed.append(batch)
                continue
            found = self._session.finish(cql.READ_LARGE, asked[batch.first])
            if not found:
                break
            with decoding("a batch", found[0]):
                completed.append(_with_bodies(batch, *found[0]))
        return completed

    def read_writers(self, place: SegmentKey) -> Sequence[WriterRow]:
        """See `TopicStorage.read_writers`."""
        return list(map(_to_writer, self._session.execute(cql.READ_WRITERS, place)))

    def glance_writer(self, place: SegmentKey, writer: str) -> tuple[LogHead | None, WriterRow | None]:
        """See `TopicStorage.glance_writer`."""
        head = row = None
        for each in self._session.execute(cql.GLANCE_WRITER, (*place, writer)):
            if each[0] == cql.HEAD_KIND:
                head = _to_head(each)
            else:
                row = _to_writer(each)
        return head, row

    def read_progress(self, group: UUID, partition: int) -> Progress | None:
        """See `TopicStorage.read_progress`."""
        return next(
            iter(map(_to_progress, self._session.execute(cql.READ_PROGRESS, (group, partition)))), None
        )

    def list_progress(self, group: UUID, partitions: int) -> Sequence[Progress]:
        """See `TopicStorage.list_progress`."""
        asked = [self._session.start(cql.GLANCE_PROGRESS, (group, each)) for each in range(partitions)]
        found = [self._session.finish(cql.GLANCE_PROGRESS, each) for each in asked]
        return [_to_progress(row) for rows in found for row in rows]

    def change_progress(self, group: UUID, seen: Progress | None, wanted: Progress) -> bool:
        """See `TopicStorage.change_progress`."""
        values, key = (wanted.epoch, wanted.owner, wanted.next), (group, wanted.partition)
        if seen is None:
            return self._has_applied(cql.INSERT_PROGRESS, (*values, *key))
        pipes = (seen.pipe, wanted.pipe), (seen.before, wanted.before)
        named = (UNSET_VALUE if old == new else new or _NO_PIPE for old, new in pipes)
        return self._has_applied(cql.CHANGE_PROGRESS, (*values, *named, *key, seen.epoch, seen.next))

    def delete_progress(self, group: UUID, partitions: int) -> None:
        """See `TopicStorage.delete_progress`."""
        self._session.execute_each((cql.DELETE_PROGRESS, (group, each)) for each in range(partitions))

    def _has_applied(self, statement: Statement, values: Values) -> bool:
        return bool(self._session.execute(statement, values)[0][0])


def _subscriptions_of(seen: TopicRecord | None, wanted: TopicRecord) -> object:
    if not (wanted.subscriptions or (seen and seen.subscriptions)):
        return UNSET_VALUE
    return {name: each.to_text() for name, each in wanted.subscriptions.items()}


def _to_record(row: Row) -> TopicRecord:
    with decoding("a topic", row):
        name, op, incarnation, state, settings, groups, subscriptions = row
        return TopicRecord(
            to_text(name),
            to_uuid(incarnation),
            TopicSettings.from_stored(dict(settings)),
            to_uuid(op),
            TopicState(state),
            {to_text(group): to_uuid(found) for group, found in dict(groups or {}).items()},
            {
                to_text(queue): Subscription.from_text(to_text(stored))
                for queue, stored in dict(subscriptions or {}).items()
            },
        )


def _to_segment(row: Row) -> Segment:
    with decoding("a segment's line", row):
        number, first, created_at, _ = row
        return Segment(to_message_number(number), to_message_number(first), to_ms(created_at))


def _head_values(head: LogHead) -> Values:
    return head.op, head.first, head.next, head.size, head.state.value


def _to_head(row: Row) -> LogHead:
    with decoding("the head of a segment", row):
        op, first, after, size, state = row[3:8]
        return LogHead(
            to_uuid(op),
            to_message_number(first),
            to_message_number(after),
            to_count(size),
            SegmentState(state),
        )


def _to_batch(row: Row, *, is_outline: bool) -> LogBatch:
    with decoding("a batch of a topic", row):
        first, link_id, count, published_at = row[1], *row[8:11]
        outline = LogBatch(
            to_message_number(first),
            to_message_number(count),
            (),
            None,
            to_uuid(link_id),
            to_ms(published_at),
        )
        bodies, headers = row[12:14]
        return outline if is_outline or bodies is None else _with_bodies(outline, bodies, headers)


def _carried(batch: LogBatch) -> Values:
    return batch.bodies, UNSET_VALUE if batch.headers is None else batch.headers


def _with_bodies(batch: LogBatch, bodies: Any, headers: Any) -> LogBatch:  # noqa: ANN401 - of a stored row
    read = tuple(bodies)
    of_each = None if headers is None else tuple(map(dict, headers))
    if len(read) != batch.count or (of_each is not None and len(of_each) != batch.count):
        raise ValueError(f"it says {batch.count} messages, and has {len(read)} bodies")
    return replace(batch, bodies=read, headers=of_each)


def _to_writer(row: Row) -> WriterRow:
    with decoding("a writer's row", row):
        return WriterRow(to_text(row[2]), to_count(row[11]), to_message_number(row[4]))


def _to_progress(row: Row) -> Progress:
    with decoding("a group's progress", row):
        partition, epoch, owner, after, *pipes = row
        return Progress(
            *(to_count(partition), to_message_number(epoch), to_text(owner), to_message_number(after)),
            *(None if pipe is None or pipe == _NO_PIPE else to_uuid(pipe) for pipe in pipes),
        )
