"""The service over a queue that answers at once: what is left of a request's time is the door's own.

    python -m _bench.http.instant PORT FILE

Owns a store of which nothing is kept: a push is durable at once, a lease is there at once, a commit is done.
What must not break: each request goes the way through `cassq.http` that it goes before a real store.
"""

import itertools
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar
from uuid import UUID, uuid4

import cassq
from _bench.http.servers import make_key
from cassq import aio
from cassq.http import app, process
from cassq.model.ids import MessageId
from cassq.model.lease import INCARNATION_BYTES, Lease, Settled
from cassq.model.message import MessageIds
from cassq.popping.lessor import Leased

_T = TypeVar("_T")

_BODY = b"a" * 256
_PIPE = uuid4()
_PUSHED_AT = datetime.now(UTC)


def _ended(value: _T) -> "Future[_T]":
    future: Future[_T] = Future()
    future.set_result(value)
    return future


class _Leases:
    incarnation = UUID(int=0).bytes[:INCARNATION_BYTES]

    def commit_soon(self, _: Lease) -> "Future[Settled]":
        return _ended(Settled.COMMITTED)


class _LeaseFuture(Future[list[Any]]):
    def hurry(self, *, is_looking: bool = True) -> None:
        pass

    def give_back(self) -> None:
        pass


class _Lessor:
    is_closed = False

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def lease_soon(self, count: int) -> _LeaseFuture:
        first = next(self._numbers) * 1000
        place = _PIPE, first, first + count - 1, uuid4(), 1
        messages = [
            SimpleNamespace(
                message_id=MessageId(_PIPE, first + number),
                body=_BODY,
                headers={},
                pushed_at=_PUSHED_AT,
                priority=0,
                type=None,
            )
            for number in range(count)
        ]
        run: Any = SimpleNamespace(run=SimpleNamespace(left_s=60.0))
        future = _LeaseFuture()
        leased: Any = messages
        future.set_result([Leased(Lease(_Leases.incarnation, *place), leased, [run], None)])  # type: ignore[arg-type]
        return future

    def close(self) -> None:
        pass


class _Queue:
    name = "bench"
    settings = SimpleNamespace(body_bytes_max=1024 * 1024)
    dead = schedules = None

    def __init__(self) -> None:
        self.leases = _Leases()
        self._numbers = itertools.count(1)

    def push_soon(self, *_: object, **_options: object) -> "Future[MessageId]":
        return _ended(MessageId(_PIPE, next(self._numbers)))

    def push_many(self, part: Sequence[object], **_: object) -> MessageIds:
        ids = MessageIds()
        for _each in part:
            number = next(self._numbers)
            ids.add(_PIPE, number, number)
        return ids

    def lessor(self) -> _Lessor:
        return _Lessor()

    def close(self) -> None:
        pass


class _Store:
    def __init__(self, sync: cassq.Store) -> None:
        self.sync = sync

    async def find_queue(self, _: str) -> object:
        return SimpleNamespace(sync=_Queue())

    async def find_topic(self, name: str) -> object:
        raise NotImplementedError(name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def main() -> None:
    """Serve until a signal; a key is in the file before that."""
    listening = process.Listening(port=int(sys.argv[1]))
    with cassq.connect("memory:") as store:
        setattr(aio, "connect", lambda _: _Store(store))  # noqa: B010 - it is another kind of function
        Path(sys.argv[2]).write_text(make_key(store), "utf-8")
        process.run(app.Opening(""), listening, listening.bind())


if __name__ == "__main__":
    main()
