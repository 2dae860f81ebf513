"""Queuey's calls that read messages, which are those of topics: by time, by id, and some by their ids.

Owns which offsets a request means. Refuses what a topic cannot do: change a message, or delete one. What must
not break: an answer leaves out no message between two that it has.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from starlette.responses import Response

from cassq import aio
from cassq.errors import OffsetGoneError
from cassq.http.forms import LIMIT_MAX
from cassq.http.queuey_access import own_queue, readable
from cassq.http.queuey_forms import Fields, done, not_carried, refused
from cassq.http.queuey_ids import MessagePlace, Since, parse_ids, parse_since
from cassq.http.queuey_queues import PARTITIONS_MAX
from cassq.http.routes import Call, body_to_text
from cassq.model.message import to_datetime
from cassq.model.topic import TopicMessage
from cassq.topics.pages import PAGE_BYTES, Page

Order = Literal["ascending", "descending"]

#: A time behind it has no message.
_LAST_MS = 253_402_300_799_000

_PARTITION = re.compile(r"[0-9]{1,4}")


class Query(NamedTuple):
    """Which messages are asked for.

    Attributes:
        limit: of each partition.
        partitions: as Queuey counts, from 1 on.
    """

    since: Since | None
    limit: int
    order: Order
    partitions: Sequence[int]

    @classmethod
    def take(
        cls, fields: Fields, since: str = "since", limit: int = LIMIT_MAX, order: Order = "ascending"
    ) -> "Query":
        """Take it from fields; `since`, and the defaults, differ between Queuey's interfaces."""
        given, begin = fields.text(since), None
        if given is not None and (begin := parse_since(given)) is None:
            fields.refuse(since, f'"{given[:40]}" is neither seconds since 1970 nor an id of 32 hex digits')
        partitions = (fields.text("partitions") or "1").split(",")
        if not all(_PARTITION.fullmatch(each.strip()) for each in partitions):
            fields.refuse("partitions", "write numbers, with commas between them")
        elif len(partitions) > PARTITIONS_MAX:
            fields.refuse("partitions", f"{PARTITIONS_MAX} at most")
        wanted = fields.number("limit", 1, LIMIT_MAX) or limit
        found = fields.choice("order", ("ascending", "descending")) or order
        fields.end()
        return cls(
            begin, wanted, "descending" if found == "descending" else "ascending", [*map(int, partitions)]
        )


async def read(call: Call) -> Response:
    """Answer with messages."""
    async with readable(call) as opened:
        query = Query.take(Fields(call.query))
        return done(messages=list(map(to_form, await read_all(opened.topic, query))))


async def read_all(topic: aio.Topic, query: Query) -> list[TopicMessage]:
    """Return what is asked for, of one partition after the other.

    Raises: FieldsError: it is more than one answer has, so that some would be left out.
    """
    wanted = [each for each in dict.fromkeys(query.partitions) if 1 <= each <= topic.partitions]
    found: list[TopicMessage] = []
    size = 0
    for partition in wanted:
        page = await _page_of(topic, partition - 1, query)
        messages = page.messages if page else []
        found += messages
        size += sum(len(each.body) for each in messages)
        is_cut = page is not None and page.next is not None and len(messages) < query.limit
        if len(wanted) > 1 and (size > PAGE_BYTES or is_cut):
            raise refused(
                "partitions",
                f"they have more than {PAGE_BYTES} bytes: ask for fewer, or with a smaller limit",
            )
    return found


async def _page_of(topic: aio.Topic, partition: int, query: Query) -> Page | None:
    """Return a page; None where it would be empty."""
    since, limit, order = query.since, query.limit, query.order
    if since is None:
        return await topic.read(partition, limit=limit, order=order)
    if since.place and since.place.partition == partition:
        try:
            page = await topic.read(partition, since=since.place.offset, limit=limit, order=order)
        except OffsetGoneError:
            page = None
        if page and page.messages and MessagePlace.of(page.messages[0]) == since.place:
            return page
    # The message is gone, or of another partition, or never was: its time says where to begin.
    if order == "ascending":
        begin = await first_at(topic, partition, since.first_ms)
    else:
        begin = await first_at(topic, partition, since.last_ms + 1) - 1
    try:
        return await topic.read(partition, since=begin, limit=limit, order=order) if begin > 0 else None
    except OffsetGoneError as error:
        if order == "descending":
            return None
        return await topic.read(partition, since=error.oldest, limit=limit)


async def first_at(topic: aio.Topic, partition: int, at_ms: int) -> int:
    """Return the first offset that was published at a time or later; the next one where none was."""
    return await topic.offset_at(partition, to_datetime(min(at_ms, _LAST_MS)))


def to_form(message: TopicMessage) -> dict[str, Any]:
    """Return a message as Queuey tells it; a body that is no text is in base64, and says so."""
    place, (body, encoding) = MessagePlace.of(message), body_to_text(message.body)
    told = {
        "message_id": place.hex,
        "timestamp": place.timestamp,
        "body": body,
        "partition": message.partition + 1,
    }
    return told if encoding == "utf-8" else {**told, "encoding": encoding}


async def read_by_ids(call: Call) -> Response:
    """Answer with the messages of some ids; those that are not there are left out."""
    async with readable(call) as opened:
        found: list[TopicMessage] = []
        size = 0
        for place in parse_ids(call.own("ids")):
            if place is None or place.partition >= opened.topic.partitions:
                continue
            try:
                page = await opened.topic.read(place.partition, since=place.offset, limit=1)
            except OffsetGoneError:
                continue
            found += [each for each in page.messages if MessagePlace.of(each) == place]
            size += sum(len(each.body) for each in page.messages)
            if size > PAGE_BYTES and len(found) > 1:
                raise refused("messages", f"they have more than {PAGE_BYTES} bytes: ask for fewer")
        return done(messages=list(map(to_form, found)))


async def replace_by_ids(call: Call) -> Response:
    """Say that no message is overwritten."""
    return await _refuse_change(call, "overwritten, nor published under an id that a client chose")


async def delete_by_ids(call: Call) -> Response:
    """Say that no message is deleted."""
    return await _refuse_change(call, "deleted: the whole queue is, or all that is older than its retention")


async def _refuse_change(call: Call, words: str) -> Response:
    async with call.service.topics.get(own_queue(call)):
        parse_ids(call.own("ids"))
    raise not_carried("messages", f"what a topic has stays as it is for all readers, and cannot be {words}")
