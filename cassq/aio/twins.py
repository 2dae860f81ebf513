"""How a call of a synchronous object waits without holding up the event loop.

Owns what a call leaves behind that is cancelled: in a thread it goes on, and what it has opened is closed.
Knows nothing of queues. What must not break: nothing that was opened stays open where nobody got it.
"""

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from cassq.aio.landing import landed
from cassq.runtime.background_thread import BackgroundThread

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _Closable(Protocol):
    def close(self) -> object: ...


_S = TypeVar("_S")
_Sync = TypeVar("_Sync", bound=_Closable)
_Twin = TypeVar("_Twin", bound="ClosingTwin[Any]")


async def call_in_thread(call: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call in one of the event loop's threads. A cancelled one goes on, also where it has not begun yet."""
    work = functools.partial(contextvars.copy_context().run, call, *args, **kwargs)
    # Not a task, as `asyncio.to_thread` is one: the end of the loop would cancel that.
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, work))


def in_thread(
    method: Callable[Concatenate[Any, _P], _R],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _R]]:
    """Return a method that calls one of the synchronous object's in a thread; a cancelled call goes on."""

    @functools.wraps(method)
    async def call(self: "TwinOf[Any]", /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await call_in_thread(method, self.sync, *args, **kwargs)

    return call


class TwinOf(Generic[_S]):
    """What calls an object of `cassq` for a program that awaits.

    Attributes:
        sync: that object.
    """

    def __init__(self, sync: _S) -> None:
        self.sync = sync

    def __repr__(self) -> str:
        return f"<aio {self.sync!r}>"


class ClosingTwin(TwinOf[_Sync]):
    """One that is closed, at the end of a block at the latest."""

    async def close(self) -> None:
        """Close it, in a thread; see its `sync`."""
        await call_in_thread(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Opening(Generic[_Sync, _Twin]):
    """What is awaited, or entered with `async with`, to have something open; it is closed at the block's end.

    Args:
        make: opens it; it may take a while.
        wrap: returns its twin.
    """

    def __init__(self, make: Callable[[], _Sync], wrap: Callable[[_Sync], _Twin]) -> None:
        self._make = make
        self._wrap = wrap
        self._opened: _Twin | None = None

    def __await__(self) -> Generator[Any, None, _Twin]:
        return self._open().__await__()

    async def _open(self) -> _Twin:
        thread = BackgroundThread("cassq-open")  # it may outlive the event loop
        making: Future[_Sync] = thread.submit(self._make)
        try:
            return self._wrap(await landed(making))
        except asyncio.CancelledError:
            thread.submit(lambda: making.result().close())
            raise
        finally:
            thread.shutdown(wait=False)

    async def __aenter__(self) -> _Twin:
        self._opened = await self
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        if self._opened:
            await self._opened.close()
