"""The interface that Queuey proposed first: `/queue`, with the application in a header.

Owns its calls about queues and messages. A queue is a topic; one of type `worker` is a queue, whose messages
are leased (see `queuey_workers`). What must not break: one name is one of them, and where both are there by
other ways the topic is meant.
"""

from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

from starlette.responses import Response

from cassq import aio
from cassq.errors import OffsetGoneError, TopicNotFoundError
from cassq.gate.applications import Right
from cassq.http.bodies import read_body
from cassq.http.forms import LIMIT_MAX
from cassq.http.messages import TIMEOUT_S, bytes_max_of
from cassq.http.queuey_access import name_of_new, own_application, own_queue, readable
from cassq.http.queuey_attributes import TYPES
from cassq.http.queuey_forms import Fields, done, read_fields, read_object
from cassq.http.queuey_ids import MessagePlace, Since
from cassq.http.queuey_messages import Query, first_at, read_all, tell_all, to_form
from cassq.http.queuey_posting import check, one_of, publish, refuse_headers
from cassq.http.queuey_queues import Wanted, check_free, end, make
from cassq.http.queuey_workers import peek
from cassq.http.routes import Call

WORKER = "worker"

#: So many messages are read where a request names no limit.
LIMIT = 100


async def create(call: Call) -> Response:
    """Make a queue, or open it."""
    owner, fields = own_application(call), await read_fields(call)
    name = fields.text("queue_name") or uuid4().hex
    full = name_of_new(owner, name, fields)
    wanted = Wanted.take(fields, (*TYPES, WORKER))
    is_worker = wanted.type == WORKER
    if is_worker and (wanted.partitions or 1) > 1:
        fields.refuse("partitions", "a queue of type worker has none: leave it out")
    fields.end()
    store = call.service.store
    if is_worker:
        await check_free(store.find_topic(full))
        await store.queue(full)
        return done(201, queue_name=name, partitions=1, type=WORKER)
    topic, kept = await make(call.service, full, wanted)
    return done(201, queue_name=name, partitions=topic.partitions, type=kept.type)


async def delete(call: Call) -> Response:
    """Delete a queue; or, with `delete=false`, what it has."""
    full, fields, service = own_queue(call), Fields(call.query), call.service
    is_whole = fields.flag("delete", default=True)
    fields.end()
    try:
        if is_whole:
            await end(service, full)
        else:
            async with service.topics.get(full) as topic:
                await topic.clear()
    except TopicNotFoundError:
        if is_whole:
            service.queues.forget(full)
            await service.store.delete_queue(full)
        else:
            async with service.queues.get(full) as queue:
                await queue.purge()
    return done()


async def push(call: Call) -> Response:
    """Publish, or push, an object of JSON, as it came."""
    full, store = own_queue(call), call.service.store
    body: bytes | None = None
    with call.share() as share:
        try:
            async with call.service.topics.get(full) as topic:
                most = await bytes_max_of(call, topic, partial(store.find_topic, full))
                body = await read_body(call.request, share, most)
                read_object(body)
                posted = [one_of(call, body, topic)]
                await check(call, topic, full, posted)
                return done(201, **(await publish(topic, posted))[0])
        except TopicNotFoundError:
            async with call.service.queues.get(full) as queue:
                refuse_headers(call, "a queue of type worker has neither partitions nor times of messages")
                if body is None:
                    most = await bytes_max_of(call, queue, partial(store.find_queue, full))
                    body = await read_body(call.request, share, most)
                    read_object(body)
                return done(201, key=str(await queue.push(body, timeout=TIMEOUT_S)))


async def read(call: Call) -> Response:
    """Answer with messages, the newest first; of a queue of type `worker` with what waits."""
    try:
        async with readable(call) as opened:
            return done(**await _newest(opened.topic, call.query))
    except TopicNotFoundError:
        fields = Fields(call.query)
        limit = fields.number("limit", 1, LIMIT_MAX) or LIMIT
        fields.end()
        return await peek(call, limit)


async def _newest(topic: aio.Topic, words: dict[str, str]) -> dict[str, Any]:
    query = Query.take(Fields(words), topic, "since_timestamp", LIMIT, "descending")
    if query.order == "ascending":
        return await tell_all(topic, query)
    # Here `since` is where reading ends: nothing older is told, and no id is one to read on by.
    found, _ = await read_all(topic, query._replace(since=None))
    if query.since is not None:
        oldest = {each: await _first_of(topic, each - 1, query.since) for each in set(query.partitions)}
        found = [each for each in found if each.offset >= oldest[each.partition + 1]]
    return {"messages": list(map(to_form, found))}


async def _first_of(topic: aio.Topic, partition: int, since: Since) -> int:
    """Return the first offset that is not before a time, or an id."""
    if since.place and since.place.partition == partition:
        with suppress(OffsetGoneError):
            page = await topic.read(partition, since=since.place.offset, limit=1)
            if any(MessagePlace.of(each) == since.place for each in page.messages):
                return since.place.offset
    return await first_at(topic, partition, since.first_ms)


async def info(call: Call) -> Response:
    """Answer with how many partitions a queue has, and when it was made, where that is known."""
    try:
        async with readable(call, Right.LOOK) as opened:
            kept = opened.attributes
            return done(partitions=opened.topic.partitions, created=kept.created, type=kept.type)
    except TopicNotFoundError:
        async with call.service.queues.get(own_queue(call)):
            return done(partitions=1, created=None, type=WORKER)
