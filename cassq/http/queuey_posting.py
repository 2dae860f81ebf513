"""Queuey's call that posts messages: one as it is, or as JSON many.

Owns what is posted where. Refuses a time of its own for a message, which a topic cannot give it. What must
not break: nothing is published of a request that is refused; after a failure it is told how many are, at
least.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from starlette.responses import Response

from cassq import aio
from cassq.errors import CassqError, OutcomeUnknownError
from cassq.http.bodies import read_body
from cassq.http.forms import LIMIT_MAX
from cassq.http.messages import TIMEOUT_S
from cassq.http.problems import PartlyDoneError
from cassq.http.queuey_access import own_queue
from cassq.http.queuey_forms import Fields, done, is_json, not_carried, read_object, refused
from cassq.http.queuey_ids import MessagePlace
from cassq.http.routes import Call
from cassq.topics.pages import PAGE_BYTES

#: Queuey's bound on the time that a message is kept.
TTL_MAX = 2**25


class Posted(NamedTuple):
    """One message to be published; its partition as Queuey counts."""

    body: bytes
    partition: int
    ttl: int | None = None


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
        PartlyDoneError: so many are published, and the others may be or not, or their ids cannot be told.
    """
    for each in posted:
        _check_ttl(each.ttl, topic.settings.retention)
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
