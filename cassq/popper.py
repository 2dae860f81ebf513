"""What consumers hold: pop, iterate, commit, close.

Owns the public side of popping and the honest order of closing: stop taking, give back what was not handed
out, let the claims go, write the commits that wait.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Literal, Self

from cassq.clock import Clock
from cassq.committer import GroupedCommitter
from cassq.coordination.port import Coordinator
from cassq.crowd import Crowd, Turns
from cassq.delivery import Committer, Delivery, DirectCommitter, finish_all
from cassq.delivery_buffer import DeliveryBuffer
from cassq.errors import (
    ClosedError,
    CorruptError,
    InvalidOptionError,
    OutcomeUnknownError,
    UnavailableError,
)
from cassq.feeder import Feeder
from cassq.feeding import POLL_MAX_S, Feeding
from cassq.model.arguments import check_count, to_seconds
from cassq.process import Birthplace

_log = logging.getLogger("cassq.popper")


class Popper:
    """Pops messages from one queue; threads may share one.

    Made by `Queue.popper`. Close it, or use it as a context manager, so that what it has in hand goes back
    at once instead of when the leases end.

    Args:
        name: its name, unique.
        check_takes: returns False while the queue is paused, raises `QueueNotFoundError` once it is deleted.
        commit: "each" or "grouped", see `Queue.popper`.
    """

    def __init__(  # noqa: PLR0913 - collaborators are passed in
        self,
        feeder: Feeder,
        coordinator: Coordinator,
        *,
        queue: str,
        name: str,
        lease: timedelta,
        check_takes: Callable[[], bool],
        commit: Literal["each", "grouped"],
        turns: Turns,
        crowd: Crowd,
        clock: Clock,
    ) -> None:
        if commit not in {"each", "grouped"}:
            raise InvalidOptionError(f"commit={commit!r} is not a way to commit: use 'each' or 'grouped'")
        self.name = name
        self._queue = queue
        self._clock = clock
        self._birthplace = Birthplace()
        self._grouped = GroupedCommitter(clock) if commit == "grouped" else None
        self._committer: Committer = self._grouped or DirectCommitter()
        self._buffer = DeliveryBuffer(clock)
        self._feeding = Feeding(
            self._buffer,
            feeder,
            coordinator,
            queue=queue,
            name=name,
            lease_s=lease.total_seconds(),
            committer=self._committer,
            check_takes=check_takes,
            turns=turns,
            crowd=crowd,
            clock=clock,
        )
        self._feeding.start()

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
        return self._buffer.get(count, self._clock.now() + seconds)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield messages for ever, through outages and past damaged pipes; ends when the popper is closed."""
        while True:
            try:
                delivery = self.pop(POLL_MAX_S)
            except ClosedError:
                return
            except (UnavailableError, OutcomeUnknownError, CorruptError) as error:
                # A damaged pipe is left alone; whoever iterates is there for the others.
                _log.warning("queue %s: %s", self._queue, error)
            else:
                if delivery:
                    yield delivery

    def commit_many(self, deliveries: Sequence[Delivery]) -> None:
        """Commit many at once: one mark for each stretch of neighbours.

        Raises:
            ClosedError: one of them was committed or rolled back before, or is named twice; nothing was
                committed.
            DeliveryExpiredError, OutcomeUnknownError: as `Delivery.commit`, for some of them; the others
                are committed.
        """
        self._birthplace.check("the popper")
        finish_all(deliveries, "committed")
        self._committer.commit(deliveries)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._buffer.is_closing

    def close(self) -> None:
        """Stop taking, give back what was not handed out, let the claims go.

        Deliveries in consumers' hands may still be committed while their leases run. May be called twice;
        does nothing in a forked child.
        """
        if not self._birthplace.is_here or not self._buffer.close():
            return
        self._feeding.join()
        if self._grouped:
            self._grouped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Popper {self.name}>"
