"""Who names which queue of Queuey's, and who sees its messages.

Owns that decision; the gate says who calls. What must not break: without a key public queues are read, and
nothing else is done or told; no application sees what another has, unless the other one named it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from cassq import aio
from cassq.errors import AccessDeniedError, InvalidNameError, TopicNotFoundError
from cassq.gate.applications import Right
from cassq.gate.names import check_application, full_name
from cassq.http.callers import check_sender
from cassq.http.queuey_attributes import Attributes, attributes_of, may_be_public
from cassq.http.queuey_forms import Fields, FieldsError, key_of, refused
from cassq.http.routes import Call, let_in

#: A name of a queue has so many characters at most.
NAME_MAX = 50

_NOT_FOUND = 404


class Opened(NamedTuple):
    """A queue whose messages somebody sees.

    Attributes:
        name: in the store.
    """

    name: str
    topic: aio.Topic
    attributes: Attributes


def owner_of(call: Call) -> str:
    """Return the application that a request names: in its path, or by a header.

    Raises: FieldsError: it names none, or none can have this name.
    """
    named = call.request.path_params.get("application") or call.request.headers.get("x-application-name")
    if not named:
        raise refused("X-Application-Name", "Required")
    try:
        return check_application(str(named))
    except InvalidNameError:
        raise _no_application() from None


def own_application(call: Call) -> str:
    """Return the application that a request names, which is who calls, unless that is an operator.

    Raises: FieldsError: it is another one.
    """
    owner = owner_of(call)
    if not _is_own(call, owner):
        raise _no_application()
    return owner


def own_queue(call: Call) -> str:
    """Return the name in the store of a queue that a request names, of the application that calls.

    Raises: FieldsError: it is another's, or no queue has such a name.
    """
    return _full(own_application(call), call.own("queue"))


def _is_own(call: Call, owner: str) -> bool:
    return call.admitted.application.prefix in {None, owner}


def _no_application() -> FieldsError:
    return refused("InvalidApplication", "this key has no application of this name", _NOT_FOUND)


def _full(owner: str, name: str) -> str:
    try:
        if len(name) <= NAME_MAX:
            return full_name(owner, name)
    except InvalidNameError as error:
        raise refused("InvalidQueueName", str(error), _NOT_FOUND) from None
    raise refused("InvalidQueueName", f"a name has {NAME_MAX} characters at most", _NOT_FOUND)


def name_of_new(owner: str, name: str, fields: Fields) -> str:
    """Return the name in the store of a queue to be made; where it cannot be, the field is refused."""
    try:
        return _full(owner, name)
    except FieldsError as error:
        fields.refuse("queue_name", next(iter(error.fields.values())))
        return ""


@asynccontextmanager
async def readable(call: Call, right: Right = Right.POP) -> AsyncIterator[Opened]:
    """Open the queue that a request names for somebody who may see its messages; keep it for the block.

    Args:
        right: what a key needs; with `LOOK` its application may, whatever the principles are.

    Raises:
        AccessDeniedError: they may not. Without a key nobody is told whether there is such a queue.
        TopicNotFoundError: the application that calls has none of this name.
    """
    owner = owner_of(call)
    if call.service.is_open or key_of(call.request) is not None:
        await let_in(call, right, key_of(call.request))
        is_own, hidden = _is_own(call, owner), _no_application()
        async with _open(call, _full(owner, call.own("queue")), None if is_own else hidden) as opened:
            if not (is_own and right is Right.LOOK):
                _check_view(call, owner, opened.attributes)
            yield opened
        return
    check_sender(call.request, call.service.proxies, is_open=call.service.is_open)
    async with call.service.keyless:
        name = _full(owner, call.own("queue"))
        if not await may_be_public(call.service, name):
            raise _denied()
        async with _open(call, name, _denied()) as opened:
            if not opened.attributes.is_public:
                raise _denied()
            yield opened


@asynccontextmanager
async def _open(call: Call, name: str, hidden: Exception | None) -> AsyncIterator[Opened]:
    """Open a topic; where there is none, `hidden` says so to whom no names are told."""
    try:
        async with call.service.topics.get(name) as topic:
            yield Opened(name, topic, await attributes_of(call.service, name, topic))
    except TopicNotFoundError:
        if hidden is None:
            raise
        raise hidden from None


def _denied() -> AccessDeniedError:
    return AccessDeniedError("Access was denied: without a key public queues alone are read")


def _check_view(call: Call, owner: str, attributes: Attributes) -> None:
    application = call.admitted.application
    if attributes.is_public or application.prefix is None or f"app:{application.name}" in attributes.names:
        return
    if not _is_own(call, owner):
        raise _no_application()
    if attributes.names:
        raise AccessDeniedError(
            "the principles of this queue do not name this application, so it may not read"
        )
