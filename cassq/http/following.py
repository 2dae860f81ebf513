"""Topics as server-sent events: what is published, as it comes, from any place on.

Owns where each client is: that is in the id of each event, and nothing is stored. What must not break: a
stream ends within two seconds of the moment in which its key is revoked.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
from starlette.responses import Response, StreamingResponse

import cassq
from cassq import aio
from cassq.aio.twins import call_in_thread
from cassq.errors import CassqError, InvalidOptionError
from cassq.gate.gate import LOOK_S
from cassq.http.problems import to_problem
from cassq.http.routes import Call
from cassq.http.tails import Tail
from cassq.http.topics import to_form
from cassq.limits import KIB
from cassq.model.ids import shorten
from cassq.topics.topic_reader import Start, filter_of

EVENTS = "text/event-stream"

#: So many messages of a partition are sent before the next partition has its turn.
LOT = 100

#: And so many bytes at most are made into one piece of a stream, or one message.
PIECE_BYTES = 256 * KIB

#: Where nothing is published, a comment tells that the stream lives.
ALIVE_S = 15.0

_POSITION = re.compile(r"([0-9]{1,9}):([0-9]{1,19})")


async def follow(call: Call) -> Response:
    """Answer with a stream of messages."""
    given = call.request.headers.get("last-event-id") or call.query.start
    start = to_start(given)
    types = call.query.types.split(",") if call.query.types else None
    filter_of(types)
    async with call.service.topics.get(call.name("topic")) as topic:
        positions = await call_in_thread(_positions, topic.sync, start)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(call, positions, types), media_type=EVENTS, headers=headers)


def to_start(text: str) -> Start:
    """Read where to begin.

    Raises: InvalidOptionError: it is no place.
    """
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    matches = [_POSITION.fullmatch(part) for part in text.split(",")]
    positions = {int(match[1]): int(match[2]) for match in matches if match}
    if len(positions) == len(matches):
        return positions
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = datetime.min  # noqa: DTZ901 - it has no zone
    if time.tzinfo is None:
        raise InvalidOptionError(
            f"start={shorten(text)} must be earliest, latest, a time with its zone, or PARTITION:OFFSET[,…], "
            "as the id of an event has it"
        )
    return time


def _positions(topic: cassq.Topic, start: Start) -> dict[int, int]:
    with topic.reader(start) as reader:
        return reader.positions


async def _events(call: Call, positions: dict[int, int], types: list[str] | None) -> AsyncIterator[bytes]:
    service = call.service
    yield b": the stream begins\n\n"
    try:
        async with service.topics.get(call.name("topic")) as topic:
            with service.tails.follow(topic.sync) as tail:
                async for found in _followed(call, topic, tail, _Place(positions, types)):
                    yield found
    except CassqError as error:
        yield b"event: error\ndata: " + msgspec.json.encode(to_problem(error)) + b"\n\n"


async def _wait(news: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_S):
            await news.wait()
    except TimeoutError:
        return


@dataclass(slots=True)
class _Place:
    """Where a client is, and what it wants.

    Attributes:
        positions: the offset that comes next, by partition.
        types: see `Topic.reader`.
    """

    positions: dict[int, int]
    types: list[str] | None


async def _followed(call: Call, topic: aio.Topic, tail: Tail, place: _Place) -> AsyncIterator[bytes]:
    """Yield events, and now and then a comment, until the process is about to end."""
    service, clock = call.service, asyncio.get_running_loop().time
    told_at = clock()
    while not service.draining.is_set():
        news = tail.news
        async for found in _looked(topic, tail, place):
            # Before each lot: what follows may be long, and the key revoked meanwhile.
            await service.admit(call.asked, is_counted=False)
            if found:
                told_at = clock()
                yield found
        await service.admit(call.asked, is_counted=False)
        if tail.failure:
            raise tail.failure
        if clock() - told_at >= ALIVE_S:
            told_at = clock()
            yield b": nothing new\n\n"
        await _wait(news)


async def _looked(topic: aio.Topic, tail: Tail, place: _Place) -> AsyncIterator[bytes]:
    """Yield the events of what there is by now, partition by partition; moves the place on."""
    wants = filter_of(place.types)
    has_more = True
    while has_more:
        has_more = False
        for partition, since in list(place.positions.items()):
            messages = tail.find(partition, since, LOT)
            if messages is None:
                messages = (await topic.read(partition, since=since, limit=LOT)).messages
            if not messages:
                continue
            has_more = True
            piece = bytearray()
            for message in messages:
                place.positions[partition] = message.offset + 1
                if wants(message):
                    piece += _event(message, place.positions)
                if len(piece) >= PIECE_BYTES:
                    yield bytes(piece)
                    piece.clear()
                    await asyncio.sleep(0)  # others have their turn
            yield bytes(piece)


def _event(message: cassq.TopicMessage, positions: Mapping[int, int]) -> bytes:
    place = ",".join(f"{partition}:{offset}" for partition, offset in positions.items())
    told = msgspec.json.encode(to_form(message))
    return b"id: %s\nevent: message\ndata: %s\n\n" % (place.encode(), told)
