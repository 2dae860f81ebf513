"""A popper and its messages for a program that awaits.

Owns what becomes of a message whose task is cancelled: before anybody has it, it goes to others and no
attempt is counted; in the middle of its block it is rolled back. Decides nothing else. What must not break: a
cancelled pop loses no message.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, cast

from cassq.aio.landing import landed
from cassq.aio.twins import ClosingTwin, TwinOf, call_in_thread, in_thread
from cassq.errors import (
    ClosedError,
    CorruptError,
    OutcomeUnknownError,
    OverloadedError,
    UnavailableError,
)
from cassq.model.arguments import to_seconds
from cassq.model.ids import MessageId
from cassq.model.message import Headers
from cassq.model.tracing import Span
from cassq.popping.delivery import Delivery as SyncDelivery
from cassq.popping.delivery import ErrorType
from cassq.popping.iterated_delivery import COMES_AGAIN, go_on_after
from cassq.popping.lessor import LeaseFuture
from cassq.popping.pop_future import PopFuture
from cassq.popping.popper import Popper as SyncPopper
from cassq.popping.timing import LOOK_TIMEOUT_S, POLL_MAX_S
from cassq.runtime.outage_log import log_trouble
from cassq.topics.group_line import GroupFuture

_log = logging.getLogger("cassq.popper")


class Popper(ClosingTwin[SyncPopper]):
    """Pops messages from one queue; tasks may share one. See `cassq.Popper`.

    Attributes:
        sync: the popper that this one calls.
        name, queue: see `cassq.Popper`.
    """

    def __init__(self, sync: SyncPopper, *, is_grouped: bool = False) -> None:
        super().__init__(sync)
        self.name = sync.name
        self.queue = sync.queue
        self._grouped_by = sync if is_grouped else None

    async def pop(self, timeout: float | timedelta | None = None) -> "Delivery | None":
        """Return the next message, or None when none came in time; see `cassq.Popper.pop`.

        Where it is cancelled, the message that was about to come goes to others, and no attempt is counted.
        """
        popped = await self.pop_many(1, timeout)
        return popped[0] if popped else None

    async def pop_many(self, count: int, timeout: float | timedelta | None = None) -> "list[Delivery]":
        """Return up to `count` messages, as soon as there are any; see `cassq.Popper.pop_many` and `pop`.

        Raises: OverloadedError: 20 000 pops wait already.
        """
        seconds = None if timeout is None else to_seconds(timeout)
        await asyncio.sleep(0)  # a loop that always finds something must not keep others from running
        return self._wrap(self.sync.pop_in_hand(count) or await come_to(self.sync.pop_soon(count), seconds))

    def _wrap(self, popped: list[SyncDelivery]) -> "list[Delivery]":
        return [Delivery(each, grouped_by=self._grouped_by) for each in popped]

    def __aiter__(self) -> AsyncIterator["Delivery"]:
        """Yield messages for ever; ends when the popper is closed. See `cassq.Popper.__iter__`."""
        return self

    async def __anext__(self) -> "Delivery":
        while True:
            try:
                await asyncio.sleep(0)  # as above
                popped = self.sync.next_in_hand() or await come_to(self.sync.next_soon(), POLL_MAX_S)
            except ClosedError:
                raise StopAsyncIteration from None
            except (UnavailableError, OutcomeUnknownError, CorruptError) as error:
                # A damaged pipe is left alone; whoever iterates is there for the others.
                log_trouble(_log, error, "queue %s: %s", self.queue, error)
                if isinstance(error, OverloadedError):  # the others come without having waited
                    await asyncio.sleep(POLL_MAX_S)
            else:
                if popped:
                    return self._wrap([go_on_after(popped[0])])[0]

    async def commit_many(self, deliveries: "Iterable[Delivery]") -> None:
        """Commit many at once; see `cassq.Popper.commit_many`."""
        await call_in_thread(self.sync.commit_many, [each.sync for each in deliveries])

    async def rollback_many(
        self, deliveries: "Iterable[Delivery]", delay: timedelta | None = None, reason: str = ""
    ) -> int:
        """Give many back at once; see `cassq.Popper.rollback_many`."""
        own = [each.sync for each in deliveries]
        return await call_in_thread(self.sync.rollback_many, own, delay, reason)

    async def reject_many(self, deliveries: "Iterable[Delivery]", reason: str) -> int:
        """Give many up at once; see `cassq.Popper.reject_many`."""
        return await call_in_thread(self.sync.reject_many, [each.sync for each in deliveries], reason)


async def come_to(future: PopFuture | LeaseFuture | GroupFuture, seconds: float | None) -> list[Any]:
    """Return what a pop, or a lease, comes to in so many seconds."""
    ended = landed(cast("Future[list[Any]]", future))
    try:
        done, _ = await asyncio.wait((ended,), timeout=seconds)
        while not done:
            future.hurry(is_looking=not seconds)
            done, _ = await asyncio.wait((ended,), timeout=LOOK_TIMEOUT_S)
    except asyncio.CancelledError:
        future.give_back()
        ended.cancel()
        raise
    return ended.result()


class Delivery(TwinOf[SyncDelivery]):
    """One message, delivered once. Use it with `async with`, or call what ends it; see `cassq.Delivery`.

    A block that is cancelled rolls the message back.

    Attributes:
        sync: the delivery that this one calls.
        body: the bytes that were pushed.
    """

    def __init__(self, sync: SyncDelivery, *, grouped_by: SyncPopper | None = None) -> None:
        super().__init__(sync)
        self.body = sync.body
        self._grouped_by = grouped_by
        self._span: Span | None = None

    @property
    def headers(self) -> Headers:
        """The message's headers."""
        return self.sync.headers

    @property
    def message_id(self) -> MessageId:
        """The message's public id."""
        return self.sync.message_id

    @property
    def attempt(self) -> int:
        """Which delivery of the message this is, from 1."""
        return self.sync.attempt

    @property
    def pushed_at(self) -> datetime:
        """When the push became durable, by the database's clock."""
        return self.sync.pushed_at

    @property
    def due(self) -> datetime | None:
        """From when on it could be delivered, by the database's clock (UTC); None: at once."""
        return self.sync.due

    @property
    def priority(self) -> int:
        """What it was pushed with."""
        return self.sync.priority

    @property
    def type(self) -> str | None:
        """What it was pushed as; None for no type."""
        return self.sync.type

    @property
    def key(self) -> str | None:
        """What it was pushed with; None for no key."""
        return self.sync.key

    async def commit(self) -> None:
        """End the message, together with those of other tasks; see `cassq.Delivery.commit`.

        A commit that is cancelled goes on. With `commit="grouped"` it does not wait.
        """
        if self._grouped_by and not self._grouped_by.is_closed:
            self.sync.commit()  # a closed one would wait for the database here
            return
        try:
            await landed(self.sync.commit_soon())
        except COMES_AGAIN as error:
            error.__dict__["raised_by"] = self.sync
            raise

    rollback = in_thread(SyncDelivery.rollback)
    reject = in_thread(SyncDelivery.reject)
    give_back = in_thread(SyncDelivery.give_back)
    extend = in_thread(SyncDelivery.extend)

    async def __aenter__(self) -> Self:
        if self.sync.run.tracer:
            self._span = self.sync.begin_work()
        return self

    async def __aexit__(
        self,
        kind: ErrorType | None,  # noqa: PYI036 - the class of an error
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        if self._span:
            return await self._end_traced(kind, error, traceback)
        if self.sync.has_ended:
            return self.sync.__exit__(kind, error, traceback)
        if error:
            return await call_in_thread(self.sync.__exit__, kind, error, traceback)
        try:
            await self.commit()
        except COMES_AGAIN as late:
            if not self.sync.__exit__(type(late), late, late.__traceback__):
                raise
        return None

    async def _end_traced(
        self,
        kind: ErrorType | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        span, self._span = self._span, None
        try:
            return await self.__aexit__(kind, error, traceback)
        except BaseException as trouble:
            error = error or trouble
            raise
        finally:
            if span:
                span.end(error)
