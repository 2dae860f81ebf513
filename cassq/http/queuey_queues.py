"""Queuey's calls about queues, each of which is a topic: list, make, change, delete.

Owns how a queue is made. Refuses what a topic cannot be: one with more partitions than it was made with.
"""

import re
import time
from collections.abc import Awaitable, Collection
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, Self
from uuid import uuid4

from starlette.responses import Response

from cassq import aio
from cassq.errors import QueueNotFoundError, TopicNotFoundError
from cassq.gate.names import full_name, own_name
from cassq.http.forms import LIMIT_MAX
from cassq.http.queuey_access import NAME_MAX, name_of_new, own_application, own_queue
from cassq.http.queuey_attributes import CONSISTENCIES, TYPES, Attributes, attributes_of, forget, keep
from cassq.http.queuey_forms import Fields, done, not_carried, read_fields, refused
from cassq.http.routes import Call
from cassq.http.service import Service

#: Queuey's bound.
PARTITIONS_MAX = 200

#: So long Queuey keeps a message that names no time of its own: a topic that is made here keeps all so long.
RETENTION = timedelta(days=3)

#: Of so many queues one answer has details: each is opened, and each of its partitions read.
DETAILS_MAX = 50

_PRINCIPLE = re.compile(r"bid:\w+@\w+\.\w+|app:[A-Za-z0-9_-]+")


class Wanted(NamedTuple):
    """What a request says of a queue; None for what it does not name."""

    partitions: int | None
    type: str | None
    consistency: str | None
    principles: str | None

    @classmethod
    def take(cls, fields: Fields, types: Collection[str] = TYPES) -> Self:
        """Take it from fields."""
        found = cls(
            fields.number("partitions", 1, PARTITIONS_MAX),
            fields.choice("type", types),
            fields.choice("consistency", CONSISTENCIES),
            fields.any_text("principles"),
        )
        names = [each.strip() for each in (found.principles or "").split(",")]
        if found.principles and not all(map(_PRINCIPLE.fullmatch, names)):
            fields.refuse("principles", "write app:NAME or bid:NAME@HOST.DOMAIN, with commas between them")
        return found

    def edit(self, kept: Attributes) -> Attributes:
        """Return attributes with what is named."""
        return replace(
            kept,
            type=self.type or kept.type,
            consistency=self.consistency or kept.consistency,
            principles=kept.principles if self.principles is None else self.principles,
        )

    def check_partitions(self, has: int) -> None:
        """Compare with a topic that there is.

        Raises: FieldsError: it has another number.
        """
        if self.partitions is not None and self.partitions < has:
            raise refused("InvalidUpdate", "Partitions can only be increased.")
        if self.partitions is not None and self.partitions > has:
            raise not_carried(
                "partitions",
                f"a topic keeps the {has} that it was made with, so that a key stays where it is: "
                "make another queue",
            )


async def list_all(call: Call) -> Response:
    """Answer with the queues of an application."""
    owner, fields = own_application(call), Fields(call.query)
    limit, offset = fields.number("limit", 1, LIMIT_MAX) or LIMIT_MAX, fields.text("offset") or ""
    has_details, has_count = fields.flag("details"), fields.flag("include_count")
    fields.end()
    found = [own_name(owner, each) or "" for each in await call.service.store.topics()]
    named = [each for each in found if each and each >= offset and len(each) <= NAME_MAX][:limit]
    if (has_details or has_count) and len(named) > DETAILS_MAX:
        raise refused("limit", f"with details, or counts, {DETAILS_MAX} at most: read on with offset")
    told = []
    for name in named:
        try:
            details = await _tell(call, owner, name, has_count=has_count) if has_details or has_count else {}
        except TopicNotFoundError:  # deleted meanwhile
            continue
        told.append({"queue_name": name, **details})
    return done(queues=told)


async def _tell(call: Call, owner: str, name: str, *, has_count: bool) -> dict[str, Any]:
    full = full_name(owner, name)
    async with call.service.topics.get(full) as topic:
        kept = await attributes_of(call.service, full, topic)
        told = {"partitions": topic.partitions, "application": owner, **kept.told()}
        if has_count:
            told["count"] = sum(each.latest - each.oldest for each in await topic.stats())
        return told


async def create(call: Call) -> Response:
    """Make a queue, or give one that there is other attributes."""
    owner, fields = own_application(call), await read_fields(call)
    name = fields.text("queue_name") or uuid4().hex
    full = name_of_new(owner, name, fields)
    wanted = Wanted.take(fields)
    fields.end()
    topic, kept = await make(call.service, full, wanted)
    return done(201, queue_name=name, partitions=topic.partitions, **kept.told())


async def make(service: Service, full: str, wanted: Wanted) -> tuple[aio.Topic, Attributes]:
    """Make a topic, or open it; return it, and what is kept of it then.

    Raises: FieldsError: a queue of type worker has the name, or the topic has more or fewer partitions.
    """
    created: float | None = None
    try:
        topic = await service.store.find_topic(full)
    except TopicNotFoundError:
        await check_free(service.store.find_queue(full))
        topic = await service.store.topic(full, partitions=wanted.partitions or 1, retention=RETENTION)
        created = time.time()
    wanted.check_partitions(topic.partitions)

    def edit(kept: Attributes) -> Attributes:
        return replace(wanted.edit(kept), created=kept.created or created)

    return topic, await keep(service, full, topic, edit)


async def check_free(find: Awaitable[object]) -> None:
    """Check that nothing of the other kind has a name.

    Raises: FieldsError: there is.
    """
    with suppress(QueueNotFoundError, TopicNotFoundError):
        await find
        raise refused(
            "queue_name", "there is a queue of this name and another type: choose another name", 409
        )


async def update(call: Call) -> Response:
    """Give a queue other attributes; what is not named stays."""
    full, fields = own_queue(call), await read_fields(call)
    wanted = Wanted.take(fields)
    fields.end()
    async with call.service.topics.get(full) as topic:
        wanted.check_partitions(topic.partitions)
        kept = await keep(call.service, full, topic, wanted.edit)
        told = {**kept.told(), "principles": kept.names}
        return done(queue_name=call.own("queue"), partitions=topic.partitions, **told)


async def delete(call: Call) -> Response:
    """Delete a queue with its messages."""
    await end(call.service, own_queue(call))
    return done()


async def end(service: Service, full: str) -> None:
    """Delete a topic, and what is kept of it."""
    async with service.topics.get(full) as topic:
        incarnation = str(topic.incarnation)
    service.topics.forget(full)
    await service.store.delete_topic(full)
    await forget(service, full, incarnation)
