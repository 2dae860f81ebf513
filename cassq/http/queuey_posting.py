"""Queuey's call that posts messages: one as it is, or as JSON many.

Owns what is posted where. Refuses a time of its own for a message, which a topic cannot give it. What must
not break: nothing is published of a request that is refused; after a failure it is told how many are, at
least.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec
from starlette.responses import Response

from cassq import aio
from cassq.errors import CassqError, OutcomeUnknownError
from cassq.http.bodies import read_body
from cassq.http.forms import LIMIT_MAX
from cassq.http.messages import TIMEOUT_S, bytes_max_of
from cassq.http.problems import PartlyDoneError
from cassq.http.queuey_access import own_queue
from cassq.http.queuey_forms import Fields, FieldsError, Refusals, done, is_json, not_carried, refused
from cassq.http.queuey_ids import MessagePlace
from cassq.http.routes import Call
from cassq.model.topic_settings import TopicSettings
from cassq.topics.pages import PAGE_BYTES

#: Queuey's bound on the time that a message is kept.
TTL_MAX = 2**25


class Posted(NamedTuple):
    """One message to be published; its partition as Queuey counts."""

    body: bytes
    partition: int
    ttl: int | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    body: str
    partition: int | str | None = None
    ttl: int | str | None = None


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    messages: Annotated[list[_Message], msgspec.Meta(max_length=LIMIT_MAX)]


#: Where the words of an error say that it is: in which message, of which field.
_AT = re.compile(r" - at `\$\.messages(?:\[(\d+)\](?:\.(\w+))?)?`$")
_NAMED = re.compile(r"field `([^`]*)`")

#: The headers that say of one message what a batch says of each.
HEADERS = ("X-TTL", "X-Partition")


async def post(call: Call) -> Response:
    """Publish a message, or as JSON many."""
    full = own_queue(call)
    async with call.service.topics.get(full) as topic:
        with call.share() as share:
            if is_json(call.request):
                refuse_headers(call, "with JSON each message has a ttl and a partition of its own")
                posted = _many_of(await read_body(call.request, share, PAGE_BYTES), topic)
            else:
                most = await bytes_max_of(call, topic, partial(call.service.store.find_topic, full))
                posted = [one_of(call, await read_body(call.request, share, most), topic)]
            await check(call, topic, full, posted)
            return done(201, messages=await publish(topic, posted))


def refuse_headers(call: Call, words: str) -> None:
    """Refuse the headers that say where, and for how long.

    Raises: FieldsError: one is there.
    """
    fields = Fields({})
    for each in HEADERS:
        if each in call.request.headers:
            fields.refuse(each, f"{words}: leave it out")
    fields.end()


def one_of(call: Call, body: bytes, topic: aio.Topic) -> Posted:
    """Return the one message of a request, as its headers say."""
    given = {"ttl": call.request.headers.get("x-ttl"), "partition": call.request.headers.get("x-partition")}
    fields = Fields(given)
    posted = _take(fields, body, topic, _any_partition(topic))
    fields.end()
    return posted


def _many_of(text: bytes, topic: aio.Topic) -> list[Posted]:
    refusals = Refusals()
    default = _any_partition(topic)
    found = []
    for number, each in enumerate(_decode(text).messages):
        fields = Fields({"partition": each.partition, "ttl": each.ttl}, refusals, f"{number}.")
        found.append(_take(fields, each.body.encode(), topic, default))
    refusals.check()
    return found


def _decode(text: bytes) -> _Batch:
    try:
        return msgspec.json.decode(text, type=_Batch)
    except msgspec.ValidationError as error:
        told = str(error)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise refused("InvalidParameter", "the body is not an object of JSON") from None
    at, named = _AT.search(told), _NAMED.search(told)
    field = (at and at[2]) or (named and named[1])
    if named and " - at " not in told and named[1] != "messages":
        raise refused(named[1][:40], "there is no such field beside messages")
    if at and at[1] and field:
        raise refused(f"{at[1]}.{field[:40]}", told[: at.start()])
    if at and at[1] is None and "length" in told:
        raise refused("messages", f"{LIMIT_MAX} at most")
    raise refused("InvalidParameter", '{"messages": [{"body": TEXT}, …]} is wanted')


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


async def check(call: Call, topic: aio.Topic, full: str, posted: Sequence[Posted]) -> None:
    """Check messages before one of them is published.

    Raises: FieldsError: the topic does not take one, by the settings that it has now.
    """
    try:
        _check_all(topic.settings, posted)
    except FieldsError:  # it may have been altered
        await call.service.store.find_topic(full)
        _check_all(topic.settings, posted)


def _check_all(settings: TopicSettings, posted: Sequence[Posted]) -> None:
    most, retention = settings.body_bytes_max, settings.retention
    for number, each in enumerate(posted):
        if len(each.body) > most:
            name = "body" if len(posted) == 1 else f"{number}.body"
            raise refused(name, f"it has {len(each.body)} bytes, and this queue takes {most}", 413)
        if each.ttl is not None and timedelta(seconds=each.ttl) != retention:
            told = f"{retention.total_seconds():.0f} seconds" if retention else "ever"
            words = f"a message has no time of its own: this queue keeps all of its for {told}"
            raise not_carried("ttl", words)


async def publish(topic: aio.Topic, posted: Sequence[Posted]) -> list[dict[str, Any]]:
    """Publish messages; return the id of each, in their order.

    Raises:
        PartlyDoneError: so many are published, and the others may be or not, or their ids cannot be told.
    """
    lots: dict[int, list[int]] = defaultdict(list)
    for place, each in enumerate(posted):
        lots[each.partition].append(place)
    counts: list[int] = []
    told: dict[int, dict[str, Any]] = {}
    try:
        offsets = {
            partition: await _publish(topic, partition - 1, [posted[each].body for each in places], counts)
            for partition, places in lots.items()
        }
        for partition, places in lots.items():
            told |= zip(places, await _keys_of(topic, partition - 1, offsets[partition]), strict=True)
    except CassqError as error:
        if counts:
            raise PartlyDoneError(error, sum(counts)) from error
        raise
    return [told[each] for each in range(len(posted))]


async def _publish(topic: aio.Topic, partition: int, bodies: Sequence[bytes], counts: list[int]) -> list[int]:
    """Publish the messages of one partition; count those that are, as they are; return their offsets."""
    if len(bodies) == 1:
        place = await topic.publish(bodies[0], partition=partition, timeout=TIMEOUT_S)
        counts.append(1)
        return [place.offset]
    stretches = await topic.publish_many(
        bodies, partition=partition, progress=counts.append, timeout=TIMEOUT_S
    )
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
