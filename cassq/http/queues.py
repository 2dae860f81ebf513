"""The calls about queues besides pushing.

Decides nothing: each is one call of the library. What must not break: a name is told as its application
has it.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from msgspec import UNSET
from msgspec.structs import asdict
from starlette.responses import Response

import cassq
from cassq import aio
from cassq.errors import InvalidOptionError, QueueNotFoundError, TopicNotFoundError
from cassq.gate.names import own_name
from cassq.http.forms import (
    Cancelled,
    Done,
    Message,
    Messages,
    MessageStatus,
    Names,
    Settings,
    to_options,
)
from cassq.http.problems import RefusedError
from cassq.http.routes import Call, answer, body_to_text
from cassq.model.ids import MessageId
from cassq.model.settings import QueueSettings
from cassq.model.stored_settings import StoredSettings
from cassq.observing.inspection import MessageState as State
from cassq.topics.pages import PAGE_BYTES


def page_of(names: list[str], call: Call) -> Response:
    """Answer with those names that the application has, behind the one that is named."""
    prefix = call.admitted.application.prefix
    return page_of_names([name for each in names if (name := own_name(prefix, each)) is not None], call)


def page_of_names(names: list[str], call: Call) -> Response:
    """Answer with the names behind the one that is named."""
    own = [name for name in names if name > call.query.after]
    found = own[: call.query.limit]
    return answer(Names(found, found[-1] if len(own) > len(found) else None))


async def list_all(call: Call) -> Response:
    """Answer with the names of the queues."""
    return page_of(await call.service.store.queues(), call)


class _WithSettings(Protocol):
    @property
    def settings(self) -> StoredSettings: ...


_Made = TypeVar("_Made", bound=_WithSettings)


async def open_or_make(
    call: Call, find: Callable[[], Awaitable[_Made]], make: Callable[[], Awaitable[_Made]]
) -> tuple[_Made, int]:
    """Open what a call names, or make it; return it with 200, or 201 where it was not there.

    Raises: RefusedError: it has other settings than those that the call's body names.
    """
    try:
        await find()
        status = 200
    except (QueueNotFoundError, TopicNotFoundError):
        status = 201
    try:
        return await make(), status
    except InvalidOptionError as error:
        differing = _how_differing(call, (await find()).settings)
        raise RefusedError(409, "settings-differ", differing) from error


def _how_differing(call: Call, settings: StoredSettings) -> str:
    """Return how settings differ from those of the call's body, and what can be done by HTTP."""
    stands, path = settings.to_json(), call.request.url.path
    named = {name: value for name, value in asdict(call.body).items() if value is not UNSET}
    others = {name: value for name, value in named.items() if value != stands.get(name)}
    told = ", ".join(f"{name} is {stands.get(name)}, not {value}" for name, value in others.items())
    fixed = sorted(name for name in others if name.removesuffix("_ms") in settings.fixed())
    way_out = f"PATCH {path} gives it the others"
    if fixed:
        way_out = f"{', '.join(fixed)} cannot be altered: DELETE {path} and PUT it anew, without its messages"
    return f"it is there, and {told}: leave out what differs, or {way_out}"


async def create(call: Call) -> Response:
    """Create a queue, or open it."""
    name, options, store = call.name("queue"), to_options(call.body), call.service.store
    QueueSettings.from_options(options)
    queue, status = await open_or_make(
        call, lambda: store.find_queue(name), lambda: store.queue(name, **options)
    )
    return _settings(call, queue.settings, status)


async def show(call: Call) -> Response:
    """Answer with the settings."""
    async with call.service.queues.get(call.name("queue")) as queue:
        return _settings(call, queue.settings)


async def alter(call: Call) -> Response:
    """Give it other settings."""
    return _settings(call, await call.service.store.alter_queue(call.name("queue"), **to_options(call.body)))


def _settings(call: Call, settings: QueueSettings, status: int = 200) -> Response:
    return answer(Settings(call.own("queue"), settings.to_json()), status)


async def delete(call: Call) -> Response:
    """Delete a queue."""
    call.service.queues.forget(call.name("queue"))
    await call.service.store.delete_queue(call.name("queue"))
    return answer(Done(call.own("queue"), "deleted"))


async def stats(call: Call) -> Response:
    """Answer with its figures."""
    async with call.service.queues.get(call.name("queue")) as queue:
        told: dict[str, Any] = (await queue.stats()).to_json()
    known = {name: value for name, value in told.items() if value is not None}
    return answer({**known, "queue": call.own("queue")})


async def peek(call: Call) -> Response:
    """Answer with what waits."""
    async with call.service.queues.get(call.name("queue")) as queue:
        found = await queue.peek(call.query.limit, bytes_max=PAGE_BYTES)
    return answer(Messages(list(map(to_form, found))))


def to_form(message: cassq.Message) -> Message:
    """Return a message that waits as JSON has it."""
    return Message(
        str(message.message_id),
        *body_to_text(message.body),
        dict(message.headers),
        message.pushed_at,
        message.priority,
        message.type,
        message.key,
    )


async def pipes(call: Call) -> Response:
    """Answer with the figures of its pipes."""
    async with call.service.queues.get(call.name("queue")) as queue:
        return answer({"pipes": [each.to_json() for each in await queue.pipes()]})


async def runs(call: Call) -> Response:
    """Answer with who has which messages."""
    async with call.service.queues.get(call.name("queue")) as queue:
        return answer({"runs": [each.to_json() for each in await queue.runs(call.query.limit)]})


async def rollups(call: Call) -> Response:
    """Answer with what was counted on a day."""
    day = call.query.day or datetime.now(UTC).date()
    async with call.service.queues.get(call.name("queue")) as queue:
        return answer({"rollups": [each.to_json() for each in await queue.rollups(day)]})


async def status(call: Call) -> Response:
    """Answer with what became of a message of the queue."""
    async with call.service.queues.get(call.name("queue")) as queue:
        message_id = await _own_message(call, queue)
        found = await queue.status(message_id)
    if found.state is State.UNKNOWN:
        raise _no_message()
    before = None if found.waits_for is None else str(found.waits_for)
    return answer(MessageStatus(str(message_id), found.state, found.reason, found.attempt, found.due, before))


async def cancel(call: Call) -> Response:
    """End a message of the queue."""
    async with call.service.queues.get(call.name("queue")) as queue:
        message_id = await _own_message(call, queue)
        is_cancelled = await queue.cancel(message_id, running=call.query.running)
    return answer(Cancelled(str(message_id), is_cancelled))


async def _own_message(call: Call, queue: aio.Queue) -> MessageId:
    """Return the id that the path has.

    Raises:
        InvalidOptionError: it is none.
        RefusedError: the queue has no such message: what others have is told to nobody.
    """
    message_id = MessageId.parse(call.own("id"))
    if not await queue.has(message_id):
        raise _no_message()
    return message_id


def _no_message() -> RefusedError:
    return RefusedError(
        404, "message-not-found", "the queue has no message of this id, or all around it has ended long ago"
    )


async def pause(call: Call) -> Response:
    """Stop deliveries."""
    async with call.service.queues.get(call.name("queue")) as queue:
        await queue.pause()
    return answer(Done(call.own("queue"), "paused"))


async def resume(call: Call) -> Response:
    """Let deliveries go on."""
    async with call.service.queues.get(call.name("queue")) as queue:
        await queue.resume()
    return answer(Done(call.own("queue"), "active"))


async def purge(call: Call) -> Response:
    """End what waits."""
    own = call.own("queue")
    if call.body.confirm != own:
        raise InvalidOptionError(
            f"confirm must be the queue's name, {own!r}, so that nothing is purged by a slip"
        )
    async with call.service.queues.get(call.name("queue")) as queue:
        return answer(Done(own, "purged", await queue.purge()))
