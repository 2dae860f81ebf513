"""Clients that no service wants, beside those that are measured: on queues of their own.

Owns what they do, and how often. What must not break: nothing of it is on the queue that is measured.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence

from _bench.http.client import HttpClient, make_texts
from _bench.http.connection import LOOPBACK, Connection
from _bench.http.dialect import CassqDialect

_FAT, _EMPTY = "bench-fat", "bench-empty"

#: What one answer has at most, and so many clients that do not read it.
_FAT_BYTES, _FAT_MESSAGES, _UNREAD = 64 * 1024, 64, 8
_LEAVING_PER_S = 200


def be_strange(client: HttpClient, key: str, ports: Sequence[int], seconds: float) -> int:
    """Come and leave 200 times a second; send halves of bodies, and do not read; return how many left."""
    return client.run(_be_strange(key, ports[0], seconds))


async def _be_strange(key: str, port: int, seconds: float) -> int:
    fat, empty = CassqDialect(_FAT, key), CassqDialect(_EMPTY, key)
    connection = Connection(port)
    for request in (*fat.setup, *empty.setup, fat.push_many(make_texts(_FAT_MESSAGES, _FAT_BYTES))):
        await connection.get(request)
    connection.close()
    wait = empty.pop(1, 5.0)
    half = fat.push_one(b"half").replace(b"Length: 4", b"Length: 1000")
    much = 100 * fat.request("GET", "/messages?limit=1000")
    unread = [await _send(port, much) for _ in range(_UNREAD)]
    until, left = time.monotonic() + seconds, 0
    leaving: set[asyncio.Task[None]] = set()
    while time.monotonic() < until:
        for request in (wait, wait, wait, half):
            task = asyncio.ensure_future(_leave(port, request))
            leaving.add(task)
            task.add_done_callback(leaving.discard)
            left += 1
        await asyncio.sleep(4 / _LEAVING_PER_S)
    await asyncio.gather(*leaving)
    for each in unread:
        each.close()
    return left


async def _send(port: int, request: bytes) -> asyncio.Transport:
    """Send, and read nothing of what is answered."""
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, LOOPBACK, port)
    transport.pause_reading()
    transport.write(request)
    return transport


async def _leave(port: int, request: bytes) -> None:
    with contextlib.suppress(OSError):
        transport = await _send(port, request)
        await asyncio.sleep(random.uniform(0.0, 0.3))
        transport.abort()
