"""The calls about topics besides publishing and following.

Decides nothing: each is one call of the library.
"""

from starlette.responses import Response

import cassq
from cassq.http.forms import (
    Done,
    Page,
    PartitionFigures,
    Settings,
    TopicFigures,
    TopicMessage,
    to_options,
)
from cassq.http.queues import open_or_make, page_of
from cassq.http.routes import Call, answer, body_to_text
from cassq.model.topic_settings import TopicSettings


async def list_all(call: Call) -> Response:
    """Answer with the names of the topics."""
    return page_of(await call.service.store.topics(), call)


async def create(call: Call) -> Response:
    """Create a topic, or open it."""
    name, options, store = call.name("topic"), to_options(call.body), call.service.store
    TopicSettings.from_options(options)
    topic, status = await open_or_make(
        call, lambda: store.find_topic(name), lambda: store.topic(name, **options)
    )
    return _settings(call, topic.settings, status)


async def show(call: Call) -> Response:
    """Answer with the settings."""
    async with call.service.topics.get(call.name("topic")) as topic:
        return _settings(call, topic.settings)


async def alter(call: Call) -> Response:
    """Give it other settings."""
    return _settings(call, await call.service.store.alter_topic(call.name("topic"), **to_options(call.body)))


def _settings(call: Call, settings: TopicSettings, status: int = 200) -> Response:
    return answer(Settings(call.own("topic"), settings.to_json()), status)


async def delete(call: Call) -> Response:
    """Delete a topic."""
    call.service.topics.forget(call.name("topic"))
    await call.service.store.delete_topic(call.name("topic"))
    return answer(Done(call.own("topic"), "deleted"))


async def stats(call: Call) -> Response:
    """Answer with its figures."""
    async with call.service.topics.get(call.name("topic")) as topic:
        found = await topic.stats()
    return answer(TopicFigures(call.own("topic"), [PartitionFigures(*each) for each in found]))


async def read(call: Call) -> Response:
    """Answer with one page of a partition."""
    query = call.query
    async with call.service.topics.get(call.name("topic")) as topic:
        page = await topic.read(query.partition, since=query.since, limit=query.limit, order=query.order)
    messages = list(map(to_form, page.messages))
    return answer(Page(query.partition, messages, page.oldest, page.latest, page.next))


def to_form(message: cassq.TopicMessage | cassq.GroupMessage) -> TopicMessage:
    """Return a message as JSON has it."""
    return TopicMessage(
        message.partition,
        message.offset,
        *body_to_text(message.body),
        dict(message.headers),
        message.published_at,
    )
