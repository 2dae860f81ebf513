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
        if self._is_told:
            return
        try:
            self._is_told = True
            self.loop.call_soon_threadsafe(self._take_out)
        except RuntimeError:  # it was closed: nobody awaits anything of it
            pass
        except BaseException:  # Ctrl-C: who comes next tells it
            self._is_told = False
            raise

    def _take_out(self) -> None:
        self._is_told = False
        try:
            while self._ended:
                _end_as(*self._ended[0])  # which may be done again, after a Ctrl-C
                self._ended.popleft()
        finally:
            if self._ended:
                self.loop.call_soon(self._take_out)


def _end_as(waiter: "asyncio.Future[Any]", future: "Future[Any]") -> None:
    if waiter.done():
        return
    if future.cancelled():
        waiter.cancel()
    elif (error := future.exception()) is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(future.result())
