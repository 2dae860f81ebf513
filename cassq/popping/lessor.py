"""What a service holds that leases messages to its clients: each lease is one client's, and has a token.

Owns the public side of leasing. Where messages come from is the intake's business; what becomes of a lease is
that of `cassq.popping.leases`, at whatever process.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cassq.catalog.queue_context import QueueContext
from cassq.errors import AccessDeniedError, InvalidOptionError
from cassq.limits import TAKE_MESSAGES_MAX
from cassq.model.arguments import check_count
from cassq.model.ids import MessageId
from cassq.model.lease import Lease
from cassq.model.ranges import Ranges
from cassq.model.uses import uses_keys
from cassq.pipes.held_run import HeldRun
from cassq.pipes.lent_rows import LentRow
from cassq.popping.delivery import Delivery
from cassq.popping.delivery_groups import finish_all
from cassq.popping.leases import Leases
from cassq.popping.pop_future import PopFuture
from cassq.popping.popper import Popper
from cassq.runtime.background_thread import AnsweredFuture, BackgroundThread
from cassq.runtime.closing_block import ClosedByBlock


class LeasedMessage:
    """A message of a lease; only the lease ends it.

    Attributes:
        seq: its number, by which `Leases.settle` names it.
    """

    __slots__ = ("_delivery", "seq")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self.seq = delivery.seq

    @property
    def message_id(self) -> MessageId:
        """Its public id, as push returned it."""
        return self._delivery.message_id

    @property
    def body(self) -> bytes:
        """The bytes that were pushed."""
        return self._delivery.body

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""
        return self._delivery.headers

    @property
    def attempt(self) -> int:
        """Which delivery of it this is, from 1."""
        return self._delivery.attempt

    @property
    def pushed_at(self) -> datetime:
        """When it became durable, by the database's clock (UTC)."""
        return self._delivery.pushed_at

    @property
    def due(self) -> datetime | None:
        """From when on it could be delivered (UTC); None: at once."""
        return self._delivery.due

    @property
    def priority(self) -> int:
        """What it was pushed with."""
        return self._delivery.priority

    @property
    def type(self) -> str | None:
        """What it was pushed as."""
        return self._delivery.type

    def __repr__(self) -> str:
        return f"<LeasedMessage {self.message_id} attempt {self.attempt}, {len(self.body)} bytes>"


@dataclass(frozen=True, slots=True)
class Leased:
    """One lease, with its messages.

    Attributes:
        lease: what its client needs to settle it; `lease.to_text()` is the token.
        messages: in order.
    """

    lease: Lease
    messages: Sequence[LeasedMessage]
    _deliveries: Sequence[Delivery] = field(repr=False)
    _leases: Leases = field(repr=False)

    @property
    def left_s(self) -> float:
        """For how many seconds it runs from now, as this process knows."""
        return self._deliveries[0].run.left_s

    def give_back(self) -> None:
        """Give it back where its client never heard of it; that counts as no attempt.

        What was not written comes again when the lease ends.

        Raises:
            ClosedError: it was given back before.
            AccessDeniedError: the role may not write; it can be given back later.
        """
        finish_all(self._deliveries, "given back")
        try:
            self._leases.give_back(self.lease)
        except AccessDeniedError:
            for each in self._deliveries:
                each.unfinish()
            raise


class LeaseFuture(AnsweredFuture[list[Leased]]):
    """The future of leases; it waits without a thread. See `PopFuture`.

    Args:
        popped: the future of their messages.
        lessor: makes leases of them.
    """

    def __init__(self, thread: BackgroundThread, popped: PopFuture, lessor: "Lessor") -> None:
        super().__init__(thread, "a lease")
        self._popped = popped
        self._lessor = lessor
        self._is_unwanted = False
        popped.add_done_callback(lambda _: self._end())

    def _end(self) -> None:
        if self._popped.cancelled():
            return
        if self._is_unwanted:
            super().cancel()
            self.set_running_or_notify_cancel()
            self._popped.give_back()  # nobody has seen it: the next in line gets it as it is
        elif error := self._popped.exception():
            self.set_exception(error)
        else:
            self.set_result(self._lessor.lend(self._popped.result()))

    def cancel(self) -> bool:
        """Wait no longer. False: messages are on their way, or it has ended: look what it ended with."""
        if not self._popped.cancel():
            return self.cancelled()
        super().cancel()
        self.set_running_or_notify_cancel()  # tells `concurrent.futures.wait`
        return True

    def give_back(self) -> None:
        """Want nothing of it: cancel it, or give back what it ends with, or has ended with."""
        self._is_unwanted = True  # before all else: what is lent after this is lent to nobody
        if not self.cancel():
            self.add_done_callback(_give_back)

    def hurry(self, *, is_looking: bool = True) -> None:
        """Have one look made, and end with what it finds, be it nothing. See `PopFuture.hurry`."""
        self._popped.hurry(is_looking=is_looking)


def _give_back(future: "Future[list[Leased]]") -> None:
    """Give back what a client may have seen: each message comes again under another lease id."""
    if future.cancelled() or future.exception():
        return
    thread = BackgroundThread("cassq-give-back")  # this need not wait for the database
    for leased in future.result():
        thread.submit(leased.give_back)
    thread.shutdown(wait=False)


class Lessor(ClosedByBlock):
    """Leases messages of one queue to clients; threads may share one. Made by `Queue.lessor`.

    Args:
        popper: of an intake that gives whole runs.
        thread: ends its futures.

    Attributes:
        queue: the name of the queue.
    """

    def __init__(self, popper: Popper, leases: Leases, thread: BackgroundThread) -> None:
        self.queue = popper.queue
        self._popper = popper
        self._leases = leases
        self._thread = thread

    def lease(self, count: int, timeout: float | timedelta | None = None) -> list[Leased]:
        """Return leases of up to `count` messages together; empty when none came in time.

        Mostly it is one lease; messages that came back, or are of several pipes, are leases of their own.

        Args:
            count: from 1 to 10 000.
            timeout: seconds to wait for the first; None waits for ever, 0 makes one look.

        Raises: as `Popper.pop`; InvalidOptionError: messages of the queue have keys.
        """
        return self.lend(self._popper.pop_many(_checked(count), timeout))

    def lease_soon(self, count: int) -> LeaseFuture:
        """Return a future of leases of up to `count` messages; thousands may wait, and need no thread.

        Raises: as `Popper.pop_soon`.
        """
        return LeaseFuture(self._thread, self._popper.pop_soon(_checked(count)), self)

    def lend(self, deliveries: Sequence[Delivery]) -> list[Leased]:
        """Return the leases of messages that are in hand."""
        by_run: dict[HeldRun, list[Delivery]] = {}
        for each in deliveries:
            by_run.setdefault(each.run, []).append(each)
        return [self._lend(run, own) for run, own in by_run.items()]

    def _lend(self, run: HeldRun, own: list[Delivery]) -> Leased:
        row = run.taken
        place = run.pipe, row.first, row.last, row.lease_id, row.attempt
        lease = Lease(self._leases.incarnation, *place)
        parts = Ranges((each.seq, each.seq) for each in own)
        self._leases.note(lease, LentRow(row, parts, run.ends_at, run.note_rows))
        return Leased(lease, tuple(map(LeasedMessage, own)), own, self._leases)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._popper.is_closed

    def close(self) -> None:
        """End its waits, and give back what no client has; leases run on. See `Popper.close`."""
        self._popper.close()

    def __repr__(self) -> str:
        return f"<Lessor of {self.queue!r}>"


def check_keyless(context: QueueContext) -> None:
    """Raise `InvalidOptionError` where messages of the queue have keys: their slots' owner must know them."""
    if uses_keys(context.settings):
        raise InvalidOptionError(
            f"queue {context.queue!r} has messages with keys, which no token can name: pop them, or push "
            "those without a key into another queue"
        )


def _checked(count: int) -> int:
    check_count(count)
    return min(count, TAKE_MESSAGES_MAX)
