"""Queuey's calls about messages, which are those of topics: post, read, and by their ids.

Owns which offsets a request means. Refuses what a topic cannot do: give a message a time of its own, change
one, or delete one. What must not break: an answer leaves out no message between two that it has.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple

from starlette.responses import Response

from cassq import aio
from cassq.errors import CassqError, OffsetGoneError, OutcomeUnknownError
from cassq.http.bodies import read_body
from cassq.http.forms import LIMIT_MAX
from cassq.http.messages import TIMEOUT_S
from cassq.http.problems import PartlyDoneError
from cassq.http.queuey_access import own_queue, readable
from cassq.http.queuey_forms import Fields, done, is_json, not_carried, read_object, refused
from cassq.http.queuey_ids import MessagePlace, Since, parse_ids, parse_since
from cassq.http.queuey_queues import PARTITIONS_MAX
from cassq.http.routes import Call, body_to_text
from cassq.model.message import to_datetime
from cassq.model.topic import TopicMessage
from cassq.topics.pages import PAGE_BYTES, Page

Order = Literal["ascending", "descending"]

#: Queuey's bound on the time that a message is kept.
TTL_MAX = 2**25

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


class Posted(NamedTuple):
    """One message to be published; its partition as Queuey counts."""

    body: bytes
    partition: int
    ttl: int | None = None


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


async def post(call: Call) -> Response:
    """Publish a message, or as JSON many."""
    async with call.service.topics.get(own_queue(call)) as topic:
        with call.share() as share:
            most = PAGE_BYTES if is_json(call.request) else topic.settings.body_bytes_max
            body = await read_body(call.request, share, most)
            posted = _many_of(body, topic) if is_json(call.request) else [one_of(call, body, topic)]
            return done(201, messages=await publish(topic, posted))


def one_of(call: Call, body: bytes, topic: aio.Topic) -> Posted:
    """Return the one message of a request, as its headers say."""
    given = {"ttl": call.request.headers.get("x-ttl"), "partition": call.request.headers.get("x-partition")}
    fields = Fields(given)
    posted = _take(fields, body, topic, _any_partition(topic))
    fields.end()
    return posted


def _many_of(text: bytes, topic: aio.Topic) -> list[Posted]:
    messages = read_object(text).get("messages")
    if not isinstance(messages, list) or not all(isinstance(each, Mapping) for each in messages):
        raise refused("InvalidParameter", '{"messages": [{"body": TEXT}, …]} is wanted')
    if len(messages) > LIMIT_MAX:
        raise refused("messages", f"{LIMIT_MAX} at most")
    errors: dict[str, str] = {}
    default = _any_partition(topic)
    found = []
    for number, each in enumerate(messages):
        fields = Fields(each, errors, f"{number}.")
        text_of = fields.text("body")
        found.append(_take(fields, (text_of or "").encode(), topic, default))
        fields.refuse_rest()
    Fields({}, errors).end()
    return found


def _any_partition(topic: aio.Topic) -> int:
    return random.randint(1, topic.partitions)


def _take(fields: Fields, body: bytes, topic: aio.Topic, default: int) -> Posted:
    if not body:
        fields.refuse("body", "Required")
    try:
        body.decode()
    except UnicodeDecodeError:
        fields.refuse("body", "it is no UTF-8")
    partition, ttl = fields.number("partition", 1, topic.partitions), fields.number("ttl", 1, TTL_MAX)
    return Posted(body, partition or default, ttl)


def _check_ttl(ttl: int | None, retention: timedelta) -> None:
    if ttl is None or timedelta(seconds=ttl) == retention:
        return
    told = f"{retention.total_seconds():.0f} seconds" if retention else "ever"
    raise not_carried("ttl", f"a message has no time of its own: this queue keeps all of its for {told}")


async def publish(topic: aio.Topic, posted: Sequence[Posted]) -> list[dict[str, Any]]:
    """Publish messages; return the id of each, in their order.

    Raises:
        PartlyDoneError: some are published, and others are not, or may not be.
        OutcomeUnknownError: all are, and their ids cannot be told.
    """
    for each in posted:
        _check_ttl(each.ttl, topic.settings.retention)
    lots: dict[int, list[int]] = defaultdict(list)
    for place, each in enumerate(posted):
        lots[each.partition].append(place)
    told: dict[int, dict[str, Any]] = {}
    so_far = 0
    for partition, places in lots.items():
        try:
            offsets = await _publish(topic, partition - 1, [posted[each].body for each in places])
        except CassqError as error:
            if so_far:
                raise PartlyDoneError(error, so_far) from error
            raise
        so_far += len(places)
        told |= zip(places, await _keys_of(topic, partition - 1, offsets), strict=True)
    return [told[each] for each in range(len(posted))]


async def _publish(topic: aio.Topic, partition: int, bodies: Sequence[bytes]) -> list[int]:
    if len(bodies) == 1:
        place = await topic.publish(bodies[0], partition=partition, timeout=TIMEOUT_S)
        return [place.offset]
    stretches = await topic.publish_many(bodies, partition=partition, timeout=TIMEOUT_S)
    return [offset for each in stretches for offset in range(each.first, each.last + 1)]


async def _keys_of(topic: aio.Topic, partition: int, offsets: Sequence[int]) -> Iterable[dict[str, Any]]:
    """Return the ids of messages that were published: the database says when that was."""
    keys: list[dict[str, Any]] = []
    try:
        while len(keys) < len(offsets):
            page = await topic.read(partition, since=offsets[len(keys)], limit=LIMIT_MAX)
            if not page.messages:
                raise OutcomeUnknownError("they are published, and gone already")
            wanted = set(offsets[len(keys) :])
            found = [MessagePlace.of(each) for each in page.messages if each.offset in wanted]
            keys += [
                {"key": each.hex, "timestamp": each.timestamp, "partition": partition + 1} for each in found
            ]
    except CassqError as error:
        raise OutcomeUnknownError(f"published, and when cannot be read: {error}") from error
    return keys


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
