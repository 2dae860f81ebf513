"""How the ends of calls that other threads make come to an event loop.

Owns how often the loop is woken for that: once for all that ended until it looks, where
`asyncio.wrap_future` wakes it for each. Knows nothing of what was called. What must not break: each end comes
once, and one that nobody awaits any more comes to nothing.

    pusher's thread                     event loop
    | puts the end in, tells the loop   |
    | puts the next one in              |
    |                                   | notes: not told. Takes out both
    | puts a third in, tells it         |

Whoever finds that the loop was told has put in before the loop takes out.
"""

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

_R = TypeVar("_R")

_of_thread = threading.local()


def landed(future: "Future[_R]") -> "asyncio.Future[_R]":
    """Return a future of the running event loop that ends as this one does; cancelling it stops nothing."""
    loop = asyncio.get_running_loop()
    landing: _Landing | None = getattr(_of_thread, "landing", None)
    if landing is None or landing.loop is not loop:
        landing = _of_thread.landing = _Landing(loop)
    waiter: asyncio.Future[_R] = loop.create_future()
    future.add_done_callback(partial(landing.put, waiter))
    return waiter


class _Landing:
    """What has ended, and is not known yet to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._is_told = False

    def put(self, waiter: "asyncio.Future[Any]", future: "Future[Any]") -> None:
        """Have a waiter hear that this has ended; called in any thread."""
        self._ended.append((waiter, future))
        if not self._is_told:
            self._is_told = True
            with suppress(RuntimeError):  # it was closed: nobody awaits anything of it
                self.loop.call_soon_threadsafe(self._take_out)

    def _take_out(self) -> None:
        self._is_told = False
        while self._ended:
            waiter, future = self._ended.popleft()
            if waiter.done():
                continue
            if future.cancelled():
                waiter.cancel()
            elif error := future.exception():
                waiter.set_exception(error)
            else:
                waiter.set_result(future.result())
