"""What consumers hold: pop, iterate, commit, close.

Owns the public side of popping. Where messages come from, and how commits go out, is the intake's business,
which this popper may share with others of its process.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from cassq.errors import ClosedError, CorruptError, OutcomeUnknownError, UnavailableError
from cassq.model.arguments import check_count, to_seconds
from cassq.model.retrying import NO_REASON_TO_REJECT, to_reason
from cassq.pipes.run_rows import Return
from cassq.popping.delivery import Delivery
from cassq.popping.delivery_groups import finish_all, return_all
from cassq.popping.iterated_delivery import go_on_after
from cassq.popping.pop_future import PopFuture
from cassq.popping.shared_intake import SharedIntake
from cassq.popping.timing import POLL_MAX_S
from cassq.runtime.clock import Clock
from cassq.runtime.closing_block import ClosedByBlock
from cassq.runtime.fork_guard import ForkGuard
from cassq.runtime.outage_log import log_trouble
from cassq.runtime.reentry import Closing

_log = logging.getLogger("cassq.popper")


class Popper(ClosedByBlock):
    """Pops messages from one queue; threads may share one.

    Made by `Queue.popper`. Close it, or use it as a context manager, so that what it has in hand goes back
    at once instead of when the leases end.

    Args:
        intake: has counted this popper as one of its own.

    Attributes:
        name: what its messages are leased under. Poppers of one process may share it.
        queue: the name of the queue.
    """

    def __init__(self, intake: SharedIntake, *, queue: str, clock: Clock) -> None:
        self.name = intake.name
        self._intake = intake
        self.queue = queue
        self._clock = clock
        self._birthplace = ForkGuard()
        self._closing = Closing(clock)

    def pop(self, timeout: float | timedelta | None = None) -> Delivery | None:
        """Return the next message, or None when none came in time.

        Args:
            timeout: seconds to wait; None waits for ever, 0 makes one look.

        Raises:
            ClosedError: the popper is closed.
            QueueNotFoundError: the queue was deleted.
            UnavailableError: nothing came in time because a service is out of reach; it says which.
            CorruptError: nothing came in time, and a pipe of the queue is damaged; it says which. The other
                pipes go on.
        """
        popped = self.pop_many(1, timeout)
        return popped[0] if popped else None

    def pop_many(self, count: int, timeout: float | timedelta | None = None) -> list[Delivery]:
        """Return up to `count` messages: what is there as soon as there is any; empty when none came in time.

        Args:
            count: at most so many, 1 or more.
            timeout: seconds to wait for the first; None waits for ever, 0 makes one look.

        Raises: as `pop`.
        """
        check_count(count)
        seconds = float("inf") if timeout is None else to_seconds(timeout)
        self._birthplace.check("the popper")
        return self._intake.source.get(count, self._clock.now() + seconds, self)

    def pop_soon(self, count: int = 1) -> PopFuture:
        """Return a future of up to `count` messages at once; thousands may wait, and need no thread.

        It ends as `pop_many` without a timeout. `future.hurry()` stands for a timeout that has passed, and
        `future.cancel()` leaves the line.

        Args:
            count: at most so many, 1 or more.

        Raises:
            ClosedError: the popper is closed.
            OverloadedError: 20 000 wait already.
        """
        check_count(count)
        self._birthplace.check("the popper")
        return self._intake.source.get_soon(count, self)

    def pop_in_hand(self, count: int) -> list[Delivery]:
        """Return up to `count` messages that are in hand already, be it none; waits for nothing.

        Raises: ClosedError: the popper is closed.
        """
        check_count(count)
        self._birthplace.check("the popper")
        return self._intake.source.get(count, None, self)

    def next_soon(self) -> PopFuture:
        """As `pop_soon`, of one message for a loop: nobody called for that pop, so no tracer follows it."""
        self._birthplace.check("the popper")
        return self._intake.stream.get_soon(1, self)

    def next_in_hand(self) -> list[Delivery]:
        """As `pop_in_hand`, of one message for a loop."""
        self._birthplace.check("the popper")
        return self._intake.stream.get(1, None, self)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield messages for ever, through outages and past damaged pipes; ends when the popper is closed.

        A `with delivery:` of a message that this yields ends without an error where the message comes again
        because its lease ended: that is logged, and the next one follows. See "P3" in docs/guarantees.md.
        """
        while True:
            try:
                self._birthplace.check("the popper")
                popped = self._intake.stream.get(1, self._clock.now() + POLL_MAX_S, self)
            except ClosedError:
                return
            except (UnavailableError, OutcomeUnknownError, CorruptError) as error:
                # A damaged pipe is left alone; whoever iterates is there for the others.
                log_trouble(_log, error, "queue %s: %s", self.queue, error)
            else:
                if popped:
                    yield go_on_after(popped[0])

    def commit_many(self, deliveries: Iterable[Delivery]) -> None:
        """Commit many at once: one mark for each stretch of neighbours.

        Raises:
            ClosedError: one of them was committed or rolled back before, or is named twice; nothing was
                committed.
            DeliveryExpiredError, OutcomeUnknownError: as `Delivery.commit`, for some of them; the others
                are committed.
        """
        self._birthplace.check("the popper")
        deliveries = _listed(deliveries)
        finish_all(deliveries, "committed")
        self._intake.committer.commit(deliveries)

    def rollback_many(
        self, deliveries: Iterable[Delivery], delay: timedelta | None = None, reason: str = ""
    ) -> int:
        """Give many back at once, as `Delivery.rollback` does one; what was taken together rests alike.

        Returns: how many; the others come again when their leases end at the latest, without the delay.

        Raises:
            ClosedError: one of them was committed or rolled back before, or is named twice; nothing was
                written.
            InvalidOptionError, AccessDeniedError: as `Delivery.rollback`.
        """
        self._birthplace.check("the popper")
        return return_all(
            _listed(deliveries), "rolled back", lambda each: each.run.after_failure(each.seq, reason, delay)
        )

    def reject_many(self, deliveries: Iterable[Delivery], reason: str) -> int:
        """Give many up at once, as `Delivery.reject` does one.

        Returns, Raises: as `rollback_many`.
        """
        self._birthplace.check("the popper")
        how = Return(reason=to_reason(reason) or NO_REASON_TO_REJECT, is_last=True)
        return return_all(_listed(deliveries), "rejected", lambda _: how)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closing.has_begun

    @property
    def has_closed(self) -> bool:
        """Whether its closing has ended."""
        return self._closing.has_closed

    def close(self) -> None:
        """End its pops, give back what was not handed out, write the grouped commits that wait.

        Where it shares with others, what was taken ahead for all of them goes back a moment later, their
        commits are written too, and the claims stay until the last one closes. While the database is out of
        reach it waits for commits, until their leases end at most. Deliveries in consumers' hands may still
        be committed while their leases run. May be called twice; the second call waits for the first, unless
        it interrupted it. Does nothing in a forked child.

        In the middle of another call of its thread, as in a signal handler, it returns at once, and a thread
        of its own goes on as soon as that call has ended.
        """
        if not self._birthplace.is_here:
            return
        # A second one waits: the store must not be closed while what was taken ahead still goes back.
        self._closing.run(lambda: self._intake.leave(self))

    def __repr__(self) -> str:
        return f"<Popper {self.name}>"


def _listed(deliveries: Iterable[Delivery]) -> Sequence[Delivery]:
    """Return what may be read more than once, which a generator may not."""
    return deliveries if isinstance(deliveries, list | tuple) else list(deliveries)
