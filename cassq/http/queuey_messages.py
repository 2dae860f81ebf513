"""Queuey's calls that read messages, which are those of topics: by time, by id, and some by their ids.

Owns which offsets a request means. Refuses what a topic cannot do: change a message, or delete one. What must
not break: an answer leaves out no message between two that it has.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
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
from cassq.model.message import size_of, to_datetime
from cassq.model.topic import TopicMessage
from cassq.topics.pages import PAGE_BYTES, Page

Order = Literal["ascending", "descending"]

#: A time behind it has no message.
_LAST_MS = 253_402_300_799_000

_PARTITION = re.compile(r"[0-9]{1,4}")

#: So many bytes an answer has of a message besides its body, at least.
_FORM_BYTES = 130

#: One answer has no more messages, however many partitions are read.
MESSAGES_MAX = LIMIT_MAX


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
        cls,
        fields: Fields,
        topic: aio.Topic,
        since: str = "since",
        limit: int = LIMIT_MAX,
        order: Order = "ascending",
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
        elif not all(1 <= int(each) <= topic.partitions for each in partitions):
            fields.refuse("partitions", f"this queue has those from 1 to {topic.partitions}")
        wanted = fields.number("limit", 1, LIMIT_MAX) or limit
        found = fields.choice("order", ("ascending", "descending")) or order
        fields.end()
        return cls(
            begin, wanted, "descending" if found == "descending" else "ascending", [*map(int, partitions)]
        )


async def read(call: Call) -> Response:
    """Answer with messages."""
    async with readable(call) as opened:
        query = Query.take(Fields(call.query), opened.topic)
        return done(**await tell_all(opened.topic, query))


async def read_all(topic: aio.Topic, query: Query) -> tuple[list[TopicMessage], int | None]:
    """Return what is asked for, of one partition after the other; of a single one also where to read on.

    Raises: FieldsError: it is more than one answer has, so that some would be left out.
    """
    wanted = list(dict.fromkeys(query.partitions))
    found: list[TopicMessage] = []
    size, page = 0, None
    for partition in wanted:
        page = await _page_of(topic, partition - 1, query)
        messages = page.messages if page else []
        found += messages
        size += sum(map(_size_of, messages))
        is_cut = page is not None and page.next is not None and len(messages) < query.limit
        if len(wanted) > 1 and (size > PAGE_BYTES or is_cut or len(found) > MESSAGES_MAX):
            raise refused(
                "partitions",
                f"they have more than {MESSAGES_MAX} messages, or {PAGE_BYTES} bytes: "
                "ask for fewer of them, or with a smaller limit",
            )
    return found, page.next if page and len(wanted) == 1 else None


async def tell_all(topic: aio.Topic, query: Query) -> dict[str, Any]:
    """Return what an answer tells of it: `next` is the id to read on by, where the last one would not do.

    Reading begins with the message that an id names: who gets that one alone could not go on by it.
    """
    found, after = await read_all(topic, query)
    told: dict[str, Any] = {"messages": list(map(to_form, found))}
    if after is not None and (len(found) < query.limit or len(found) == 1):
        with suppress(OffsetGoneError):
            page = await topic.read(found[-1].partition, since=after, limit=1, order=query.order)
            for each in page.messages:
                told["next"] = MessagePlace.of(each).hex
    return told


def _size_of(message: TopicMessage) -> int:
    return _FORM_BYTES + size_of(message.body, message.headers)


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
            size += sum(map(_size_of, page.messages))
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
