"""Hands messages to consumers.

Owns the buffer between the feeder and the consumers' threads, the leases of what is in it, and the honest
order of closing. What must not break: a delivery whose lease has ended never leaves the buffer, and what
was not handed out goes back without counting as an attempt.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Literal, Self

from cassq.clock import Clock
from cassq.committer import GroupedCommitter
from cassq.coordination.port import Coordinator
from cassq.delivery import Committer, Delivery, DirectCommitter
from cassq.errors import CassqError, ClosedError, InvalidOptionError, UsageError
from cassq.feeder import Feeder
from cassq.held_run import HeldRun, Return, group_by_run
from cassq.model.appetite import Appetite
from cassq.model.settings import QueueSettings
from cassq.process import Birthplace

_log = logging.getLogger("cassq.popper")

#: A hungry popper that nobody wakes looks by itself: soon at first, then this often at most.
POLL_S = 0.25
POLL_MAX_S = 2.0

#: A popper from which nobody pops for so long gives its buffer and its claims back.
IDLE_S = 5.0

#: `pop(timeout=0)` still makes one honest look, but no longer than this.
LOOK_TIMEOUT_S = 10.0


class Popper:
    """Pops messages from one queue; threads may share one.

    Made by `Queue.popper`. Close it, or use it as a context manager, so that what it has in hand goes back
    at once instead of when the leases end.

    Args:
        check_takes: returns False while the queue is paused, raises `QueueNotFoundError` once it is deleted.
    """

    def __init__(  # noqa: PLR0913 - collaborators are passed in
        self,
        feeder: Feeder,
        coordinator: Coordinator,
        queue: str,
        settings: QueueSettings,
        *,
        holder: str,
        clock: Clock,
        check_takes: Callable[[], bool] = lambda: True,
        commit: Literal["each", "grouped"] = "each",
    ) -> None:
        if commit not in {"each", "grouped"}:
            raise InvalidOptionError(f"commit={commit!r} is not a way to commit: use 'each' or 'grouped'")
        self._feeder = feeder
        self._coordinator = coordinator
        self._queue = queue
        self._lease_s = settings.lease.total_seconds()
        self.name = holder
        self._clock = clock
        self._check_takes = check_takes
        self._grouped = GroupedCommitter(clock) if commit == "grouped" else None
        self._committer: Committer = self._grouped or DirectCommitter()
        self._birthplace = Birthplace()
        self._changed = threading.Condition()
        self._buffer: deque[Delivery] = deque()
        self._appetite = Appetite()
        self._demand = 0
        self._waiting = 0
        self._rounds_begun = 0
        self._rounds_done = 0
        self._is_woken = False
        self._is_crowded = False
        self._is_closing = False
        self._trouble: CassqError | None = None
        self._popped_at = clock.now()
        self._thread = threading.Thread(target=self._run, name=f"cassq-pop-{queue}", daemon=True)
        self._thread.start()

    # -- consumers -------------------------------------------------------------------------------------

    def pop(self, timeout: float | timedelta | None = None) -> Delivery | None:
        """Return the next message, or None when none came in time.

        Args:
            timeout: seconds to wait; None waits for ever, 0 makes one look.

        Raises:
            ClosedError: the popper is closed.
            QueueNotFoundError: the queue was deleted.
            UnavailableError: nothing came in time because a service is out of reach; it says which.
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
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidOptionError(f"count={count!r} must be an int of 1 or more")
        self._birthplace.check("the popper")
        deadline = _deadline(timeout, self._clock)
        consumer = threading.get_ident()
        with self._changed:
            self._appetite.note_call(consumer, self._clock.now())
            look = self._rounds_begun + 1
            self._demand += count
            self._waiting += 1
            try:
                popped = self._from_buffer(count)
                while not popped:
                    if self._is_closing:
                        raise ClosedError("the popper is closed: make a new one with queue.popper()")
                    if isinstance(self._trouble, UsageError):
                        raise self._trouble  # waiting will not help
                    now = self._clock.now()
                    if now >= deadline and (self._rounds_done >= look or now >= deadline + LOOK_TIMEOUT_S):
                        if self._trouble:
                            raise self._trouble
                        return []
                    self._changed.notify_all()
                    left = deadline - now if now < deadline else deadline + LOOK_TIMEOUT_S - now
                    self._clock.wait(self._changed, None if left == float("inf") else left)
                    popped = self._from_buffer(count)
            finally:
                self._demand -= count
                self._waiting -= 1
                self._popped_at = self._clock.now()
            self._appetite.note_given(consumer, len(popped), self._clock.now())
            self._changed.notify_all()
        return popped

    def __iter__(self) -> Iterator[Delivery]:
        """Yield messages for ever, waiting through outages; ends when the popper is closed."""
        while True:
            try:
                delivery = self.pop(POLL_MAX_S)
            except ClosedError:
                return
            except CassqError as error:
                if error.exit_code != 75:  # not a matter of waiting
                    raise
                _log.warning("queue %s: %s", self._queue, error)
                continue
            if delivery:
                yield delivery

    def commit_many(self, deliveries: Sequence[Delivery]) -> None:
        """Commit many at once: one mark for each stretch of neighbours.

        Raises:
            ClosedError: one of them was committed or rolled back before; nothing was committed.
            DeliveryExpiredError, OutcomeUnknownError: as `Delivery.commit`, for some of them; the others
                are committed.
        """
        for delivery in deliveries:
            delivery.check_unfinished()
        for delivery in deliveries:
            delivery.finish("committed")
        self._committer.commit(deliveries)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closing

    def close(self) -> None:
        """Stop taking, give back what was not handed out, let the claims go.

        Deliveries in consumers' hands may still be committed while their leases run. May be called twice.
        """
        if not self._birthplace.is_here:
            return
        with self._changed:
            if self._is_closing:
                return
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
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

    # -- the feeding thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        pause = POLL_S
        while not self._is_closing:
            try:
                pause = self.run_once(pause)
            except CassqError as error:
                self._note_trouble(error)
                self._wait(POLL_S)
        self._give_back()
        self._coordinator.withdraw_hunger(self._queue, self.name)
        self._feeder.let_go()

    def run_once(self, pause: float) -> float:
        """Keep up the leases, feed the consumers once, or wait for a reason to; return the next pause."""
        self._keep_up()
        with self._changed:
            is_woken, self._is_woken = self._is_woken, False
            wanted = self._wanted()
            if wanted <= 0:
                self._clock.wait(self._changed, min(1.0, self._lease_s / 4))
                return POLL_S
            self._rounds_begun += 1
            is_starving = not self._buffer and self._waiting > 0
        if self._feed(wanted, is_woken=is_woken):
            return POLL_S
        if not is_starving:
            self._wait(POLL_S)
            return POLL_S
        return self._starve(wanted, pause)

    def _feed(self, wanted: int, *, is_woken: bool) -> bool:
        round_begun = self._rounds_begun
        haul = self._feeder.feed(wanted, is_woken=is_woken) if self._check_takes() else []
        with self._changed:
            for run, taken in haul:
                self._buffer.extend(Delivery(run, *message, self._committer) for message in taken.messages)
            self._rounds_done = round_begun
            self._trouble = None
            self._changed.notify_all()
        if haul:
            self._feeder.share()
        return bool(haul)

    def _starve(self, wanted: int, pause: float) -> float:
        """Announce hunger, look once more (somebody may have pushed before hearing of it), and wait."""
        with self._changed:
            self._is_crowded = False
        self._coordinator.announce_hunger(self._queue, self.name, self._wake, crowded=self._crowd)
        try:
            if self._feed(wanted, is_woken=True):
                return POLL_S
            seconds = min(pause, max(self._feeder.next_due(), 0.01))
            deadline = self._clock.now() + seconds
            while True:
                with self._changed:
                    left = deadline - self._clock.now()
                    if left <= 0 or self._is_woken or self._is_closing or not self._waiting:
                        break
                    if not self._is_crowded:
                        self._clock.wait(self._changed, left)
                        continue
                    self._is_crowded = False
                # Others wait too: whoever is woken first must find the pipes free.
                self._feeder.let_go()
        finally:
            if not self._is_woken:
                self._coordinator.withdraw_hunger(self._queue, self.name)
        return POLL_S if self._is_woken else min(2 * pause, POLL_MAX_S)

    def _wanted(self) -> int:
        ahead = self._appetite.ahead(self._waiting, self._clock.now())
        if len(self._buffer) > ahead // 2 and self._demand <= len(self._buffer):
            return 0
        return self._demand + ahead - len(self._buffer)

    def _keep_up(self) -> None:
        """Extend the leases of what is in the buffer, or give it back when nobody pops any more."""
        with self._changed:
            is_idle = not self._waiting and self._clock.now() - self._popped_at > IDLE_S
            runs = {delivery.run for delivery in self._buffer}
        if is_idle:
            self._give_back()
            self._feeder.let_go()
            return
        for run in runs:
            if run.is_live and run.left_s < self._lease_s / 2:
                try:
                    run.extend()
                except CassqError as error:
                    _log.info("queue %s: a buffered run was not extended: %s", self._queue, error)

    def _give_back(self) -> None:
        with self._changed:
            back, self._buffer = list(self._buffer), deque()
        for run, seqs in group_by_run((each.run, each.seq) for each in back).items():
            run.give_back(seqs, Return(is_counted=False))

    def _from_buffer(self, count: int) -> list[Delivery]:
        popped: list[Delivery] = []
        checked: HeldRun | None = None
        while self._buffer and len(popped) < count:
            delivery = self._buffer.popleft()
            if delivery.run is not checked:
                if not delivery.run.is_live:
                    continue  # it comes again
                checked = delivery.run
            popped.append(delivery)
        return popped

    def _wake(self) -> None:
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def _crowd(self) -> None:
        with self._changed:
            self._is_crowded = True
            self._changed.notify_all()

    def _wait(self, seconds: float) -> None:
        with self._changed:
            if not self._is_closing:
                self._clock.wait(self._changed, seconds)

    def _note_trouble(self, error: CassqError) -> None:
        with self._changed:
            if self._trouble is None or type(self._trouble) is not type(error):
                _log.warning("queue %s: %s", self._queue, error)
            self._trouble = error
            self._rounds_done = self._rounds_begun
            self._changed.notify_all()


def _deadline(timeout: float | timedelta | None, clock: Clock) -> float:
    if timeout is None:
        return float("inf")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidOptionError(f"timeout={timeout!r} must be a number of seconds, 0 or more, or None")
    return clock.now() + seconds
