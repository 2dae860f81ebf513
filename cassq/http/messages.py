"""Pushing and publishing: one message, or as many as a client sends lines.

Owns how they are read and told. What must not break: an answer says "pushed" only of what is durable; after a
failure it says how many are, at least.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from msgspec import UNSET
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from cassq.aio.twins import call_in_thread
from cassq.errors import InvalidOptionError, OverloadedError
from cassq.http.bodies import Share, decode, read_body, read_lines
from cassq.http.forms import Line, Published, Pushed, PushQuery
from cassq.http.problems import PartlyDoneError, RefusedError, cut_off
from cassq.http.routes import Call, answer
from cassq.model.ids import shorten
from cassq.model.message import Headers, MessageIds
from cassq.model.settings import QueueSettings
from cassq.model.topic_settings import TopicSettings

NDJSON = "application/x-ndjson"

#: What others call it: whoever sends it means many messages, and not one.
_OTHERS = {f"application/{each}" for each in ("ndjson", "jsonl", "x-jsonl", "jsonlines", "x-jsonlines")}

#: So long one message, or one part of many, may take.
TIMEOUT_S = 20.0

#: The headers of a message, where its body comes as it is.
HEADER = b"cassq-header-"

#: A part of many messages: bodies with their headers.
Part = list[tuple[bytes, Headers]]


async def push(call: Call) -> Response:
    """Push one message, or with NDJSON many."""
    async with call.service.queues.get(call.name("queue")) as queue:
        options = _push_options(call)
        if is_ndjson(call):
            ids: list[MessageIds] = []

            def push_part(part: Part, note: Callable[[int], None]) -> None:
                ids.append(queue.sync.push_many(part, progress=note, timeout=TIMEOUT_S, **options))

            await _send_all(call, push_part)
            return answer(_tell_many(ids, has_all=call.query.ids), 201)
        with call.share() as share:
            look = partial(call.service.store.find_queue, call.name("queue"))
            most = await bytes_max_of(call, queue, look)
            body = await read_body(call.request, share, most, "a message of this queue")
            pushed_id = await queue.push(body, headers_of(call), timeout=TIMEOUT_S, **options)
        return answer(Pushed(1, str(pushed_id)), 201)


class _Bounded(Protocol):
    @property
    def settings(self) -> QueueSettings | TopicSettings: ...


async def bytes_max_of(call: Call, opened: _Bounded, look: Callable[[], Awaitable[object]]) -> int:
    """Return how large a body may be; where one is larger, the settings are looked at afresh.

    Args:
        look: has `opened` know its settings.
    """
    declared = call.request.headers.get("content-length", "")
    if not declared.isdecimal() or int(declared) > opened.settings.body_bytes_max:
        await look()
    return opened.settings.body_bytes_max


def _tell_many(parts: Sequence[MessageIds], *, has_all: bool) -> Pushed:
    first, last = (str(parts[0][0]), str(parts[-1][-1])) if parts else (None, None)
    told = [str(each) for ids in parts for each in ids] if has_all else None
    return Pushed(sum(map(len, parts)), None, first, last, told)


def _push_options(call: Call) -> dict[str, Any]:
    query: PushQuery = call.query
    due = call.request.query_params.get("due", "-")
    if "-" not in due[1:] and due != "-":
        raise InvalidOptionError(f"due={shorten(due)} must be a time in ISO 8601, with its zone")
    options = {
        "ttl": None if query.ttl_s is None else timedelta(seconds=query.ttl_s),
        "priority": query.priority or None,
        "type": query.type,
        "delay": None if query.delay_s is None else timedelta(seconds=query.delay_s),
        "due": query.due,
        "key": query.key,
    }
    return {name: value for name, value in options.items() if value is not None}


async def publish(call: Call) -> Response:
    """Publish one message, or with NDJSON many."""
    query = call.query
    async with call.service.topics.get(call.name("topic")) as topic:
        if is_ndjson(call):
            if query.number is not None or query.writer is not None or query.key is not None or query.type:
                raise InvalidOptionError(
                    "with NDJSON key and type are headers of each line, and writer and number are not taken"
                )
            count = 0

            def publish_part(part: Part, note: Callable[[int], None]) -> None:
                nonlocal count
                told: list[int] = []

                def note_more(more: int) -> None:
                    told.append(more)
                    note(sum(told))

                topic.sync.publish_many(
                    part, partition=query.partition, progress=note_more, timeout=TIMEOUT_S
                )
                count += len(part)

            await _send_all(call, publish_part)
            return answer(Published(is_repeat=False, published=count), 201)
        options = {
            name: value
            for name in ("key", "type", "partition", "writer", "number")
            if (value := getattr(query, name)) is not None
        }
        with call.share() as share:
            look = partial(call.service.store.find_topic, call.name("topic"))
            most = await bytes_max_of(call, topic, look)
            body = await read_body(call.request, share, most, "a message of this topic")
            place = await topic.publish(body, headers_of(call), timeout=TIMEOUT_S, **options)
        return answer(
            Published(place.is_repeat, int(not place.is_repeat), place.partition, place.offset), 201
        )


def is_ndjson(call: Call) -> bool:
    """Tell whether each line of the body is a message.

    Raises: RefusedError: it seems so, by another name.
    """
    media = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media in _OTHERS:
        raise RefusedError(415, "content-type", f"many messages come as {NDJSON}, not as {media}")
    return media == NDJSON


def headers_of(call: Call) -> dict[str, str] | None:
    """Return the headers of a message that came as those of the request; their names are in small letters.

    Raises: InvalidOptionError: one is no UTF-8, or there twice.
    """
    found: dict[str, str] = {}
    for name, value in call.request.headers.raw:
        if not name.startswith(HEADER):
            continue
        own = name[len(HEADER) :].decode("ascii")
        if own in found:
            raise InvalidOptionError(f"Cassq-Header-{own} is there twice")
        try:
            found[own] = value.decode()
        except UnicodeDecodeError:
            raise InvalidOptionError(f"Cassq-Header-{own} is no UTF-8") from None
    return found or None


Send = Callable[[Part, Callable[[int], None]], None]


class _Sending:
    """Sends parts, one after the other.

    Attributes:
        done: how many messages are durable, at least.
    """

    def __init__(self, call: Call, send: Send, share: Share) -> None:
        self._parts = call.service.parts
        self._send = send
        self._share = share
        self._flying: asyncio.Future[None] | None = None
        self._size = self._so_far = 0
        self.done = 0

    async def put(self, part: Part, size: int) -> None:
        """Send a part of so many bytes once the one before it is durable; return at once then."""
        await self.land()
        self._share.resize(size)
        self._size, self._so_far = len(part), 0
        self._flying = asyncio.ensure_future(self._fly(part))
        self._flying.add_done_callback(self._note_landing)

    async def _fly(self, part: Part) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._parts.acquire()
        except TimeoutError:
            raise OverloadedError("other requests with many messages are in the way: try again") from None
        try:
            await call_in_thread(self._send, part, self._note)
        finally:
            self._parts.release()

    def _note_landing(self, flying: "asyncio.Future[None]") -> None:
        self._share.resize(0)
        if not flying.cancelled():
            flying.exception()  # where nobody waits for it any more, nobody asks how it ended

    def _note(self, count: int) -> None:
        self._so_far = count

    async def land(self) -> None:
        """Wait until what was sent is durable."""
        flying, self._flying = self._flying, None
        if flying is None:
            return
        try:
            await flying
        except BaseException:
            self.done += self._so_far
            raise
        self.done += self._size

    def leave(self) -> int:
        """Wait for nothing; return how many are durable by now."""
        return self.done + (self._so_far if self._flying else 0)


async def _send_all(call: Call, send: Send) -> None:
    """Send the lines of a request in parts: one is on its way while the next one comes.

    Raises:
        PartlyDoneError: some are durable, or may be.
        Exception: none are.
    """
    with call.share() as share, call.share() as held:
        sending = _Sending(call, send, held)
        try:
            await _put_all(call, sending, share)
            await sending.land()
        except asyncio.CancelledError:  # the process ends, and what was sent goes on
            raise PartlyDoneError(cut_off(), sending.leave()) from None
        except Exception as error:
            first = await _failure_of(sending) or error
            if sending.done and not isinstance(first, ClientDisconnect):
                raise PartlyDoneError(first, sending.done) from first
            raise first from None


async def _put_all(call: Call, sending: _Sending, share: Share) -> None:
    number = 0
    async for lines in read_lines(call.request, share):
        part = [_to_message(line, number + place) for place, line in enumerate(lines, 1)]
        number += len(lines)
        size = sum(map(len, lines))
        del lines  # what is held is counted until it is durable, and then it is gone
        await sending.put(part, size)
        del part


async def _failure_of(sending: _Sending) -> Exception | None:
    """Return how the part failed that is still on its way: its lines came before whatever else went wrong."""
    try:
        await sending.land()
    except Exception as error:
        return error
    return None


def _to_message(text: bytes, number: int) -> tuple[bytes, Headers]:
    where = f"line {number}"
    line = decode(text, Line, where)
    if (line.body is UNSET) is (line.body_base64 is UNSET):
        raise InvalidOptionError(f"{where}: it needs either body or body_base64")
    body = line.body.encode() if isinstance(line.body, str) else line.body_base64
    if not isinstance(body, bytes):
        raise InvalidOptionError(f"{where}: its body is none")
    return body, line.headers
