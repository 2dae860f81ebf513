"""A queue as server-sent events: its figures, and what waits first.

Owns how often it is looked at: once for all who watch it. What must not break: it takes nothing; a stream
ends within two seconds of the moment in which its key is revoked.
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response, StreamingResponse

from cassq.errors import CassqError
from cassq.http.following import EVENTS
from cassq.http.lending import LendingQueue
from cassq.http.problems import to_problem
from cassq.http.queues import to_form
from cassq.http.routes import Call
from cassq.topics.pages import PAGE_BYTES

#: How often a queue is looked at.
LOOK_S = 2.0

#: So many messages are shown.
SHOWN = 10


async def tail(call: Call) -> Response:
    """Answer with a stream of figures and messages."""
    async with call.service.queues.get(call.name("queue")):
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(call), media_type=EVENTS, headers=headers)


async def _events(call: Call) -> AsyncIterator[bytes]:
    own, seen = call.own("queue"), b""
    service = call.service
    try:
        while not service.draining.is_set():
            await call.check()
            async with service.queues.get(call.name("queue")) as queue:
                figures, waiting = await queue.glance(_look, LOOK_S)
            yield _event("stats", msgspec.json.encode({**figures, "queue": own}))
            if waiting != seen:
                seen = waiting
                yield _event("messages", waiting)
            try:
                async with asyncio.timeout(LOOK_S):
                    await service.draining.wait()
            except TimeoutError:
                continue
    except CassqError as error:
        yield _event("error", msgspec.json.encode(to_problem(error)))


async def _look(queue: LendingQueue) -> tuple[dict[str, object], bytes]:
    """Return figures of a queue, and what waits first, as JSON."""
    figures = (await queue.stats()).to_json()
    found = await queue.peek(SHOWN, bytes_max=PAGE_BYTES)
    return figures, msgspec.json.encode({"messages": list(map(to_form, found))})


def _event(kind: str, told: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), told)
