"""What is between the thread that takes messages and the consumers that pop them.

Owns the one lock of a popper, who waits for what, and what wakes whom. Knows neither pipes nor the database.
What must not break: a delivery whose lease has ended never leaves the buffer, and a consumer is never told
"nothing" without a look that began after it asked, unless the popper is listening to be woken.
"""

import threading
from collections import deque
from collections.abc import Iterable
from enum import Enum

from cassq.clock import Clock
from cassq.delivery import Delivery
from cassq.errors import CassqError, ClosedError, UsageError
from cassq.held_run import HeldRun
from cassq.model.appetite import Appetite

#: A pop without time still gets one honest look, but waits for it no longer than this.
LOOK_TIMEOUT_S = 10.0

#: A popper counts as waited for so long after its last consumer left: one that pops in a loop is back soon.
LINGER_S = 0.05

#: A popper from which nobody pops for so long gives its buffer and its claims back, and takes nothing.
IDLE_S = 5.0


class Heard(Enum):
    """Why the feeding thread stops listening."""

    NOTHING = "nothing"
    WOKEN = "woken"
    CROWDED = "crowded"
    ASKED = "asked"
    ALONE = "alone"
    CLOSING = "closing"


class DeliveryBuffer:
    """Deliveries in hand, and the consumers that wait for more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The lock itself is several times faster to enter than the condition around it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._deliveries: deque[Delivery] = deque()
        self._appetite = Appetite()
        self._demand = 0
        self._waiting = 0
        self._rounds_begun = 0
        self._rounds_done = 0
        self._is_woken = False
        self._is_crowded = False
        self._is_listening = False
        self._is_look_asked = False
        self._is_closing = False
        self._trouble: CassqError | None = None
        self._popped_at = clock.now()
        # The feeding thread rests until so few are left; below 0 while it does not rest for that.
        self._refill_at = -1

    def get(self, count: int, deadline: float) -> list[Delivery]:
        """Return up to `count` live deliveries, as soon as there are any; none when `deadline` passes.

        Raises:
            ClosedError: the popper is closed.
            CassqError: nothing came in time, and this is why.
        """
        consumer = threading.get_ident()
        with self._lock:
            now = self._clock.now()
            self._appetite.note_call(consumer, now)
            # A popper that listens has looked and would be woken; only who cannot wait asks it to look anew.
            is_hurried = deadline <= now
            look = self._rounds_begun + 1 if is_hurried or not self._is_listening else 0
            self._is_look_asked = self._is_look_asked or is_hurried
            self._demand += count
            self._waiting += 1
            try:
                given = self._wait(count, deadline, look)
            finally:
                self._demand -= count
                self._waiting -= 1
                self._popped_at = self._clock.now()
            self._appetite.note_given(consumer, len(given), self._popped_at)
            # Waking the feeding thread for nothing would cost more than the pop.
            if self._is_listening or len(self._deliveries) <= self._refill_at:
                self._changed.notify_all()
        return given

    def _wait(self, count: int, deadline: float, look: int) -> list[Delivery]:
        while not (given := self._live(count)):
            if self._is_closing:
                raise ClosedError("the popper is closed: make a new one with queue.popper()")
            if isinstance(self._trouble, UsageError):
                raise self._trouble  # waiting will not help
            now = self._clock.now()
            if now >= deadline and (self._rounds_done >= look or now >= deadline + LOOK_TIMEOUT_S):
                if self._trouble:
                    raise self._trouble
                return []
            # A popper that came to listen meanwhile, and left the look to others in line, is asked for one.
            self._is_look_asked = self._is_look_asked or (now >= deadline and self._rounds_begun < look)
            self._changed.notify_all()
            until = deadline if now < deadline else deadline + LOOK_TIMEOUT_S
            self._clock.wait(self._changed, None if until == float("inf") else until - now)
        return given

    def _live(self, count: int) -> list[Delivery]:
        given: list[Delivery] = []
        checked: HeldRun | None = None
        while self._deliveries and len(given) < count:
            delivery = self._deliveries.popleft()
            if delivery.run is not checked:
                if not delivery.run.is_live:
                    continue  # it comes again
                checked = delivery.run
            given.append(delivery)
        return given

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """Add deliveries, and wake who waits for them."""
        with self._lock:
            self._deliveries.extend(deliveries)
            self._changed.notify_all()

    def take_back(self) -> list[Delivery]:
        """Empty the buffer."""
        with self._lock:
            back, self._deliveries = list(self._deliveries), deque()
            return back

    def runs(self) -> list[HeldRun]:
        """Return the runs of what is in hand, those that were taken first first."""
        with self._lock:
            return list(dict.fromkeys(delivery.run for delivery in self._deliveries))

    def is_idle(self) -> bool:
        """Tell whether nobody waits, and nobody has popped for a while."""
        with self._lock:
            return self._is_idle()

    def _is_idle(self) -> bool:
        return not self._waiting and self._clock.now() - self._popped_at > IDLE_S

    def wanted(self) -> int:
        """Return how many messages to take now; 0 when there are enough, or nobody comes for them."""
        with self._lock:
            return self._wanted()

    def _wanted(self) -> int:
        if self._is_idle():
            return 0  # however fast they were: what is taken now would only go back
        ahead = self._ahead()
        if len(self._deliveries) > ahead // 2 and self._demand <= len(self._deliveries):
            return 0
        return self._demand + ahead - len(self._deliveries)

    def _ahead(self) -> int:
        return self._appetite.ahead(self._waiting, self._clock.now())

    def is_starving(self) -> bool:
        """Tell whether somebody waits and nothing is in hand."""
        with self._lock:
            return self._waiting > 0 and not self._deliveries

    def begin_round(self) -> int:
        """Note that a look begins; return its number."""
        with self._lock:
            self._is_look_asked = False
            self._rounds_begun += 1
            return self._rounds_begun

    def take_woken(self) -> bool:
        """Tell whether somebody woke this popper since the last call."""
        with self._lock:
            was_woken, self._is_woken = self._is_woken, False
            return was_woken

    def end_round(self, number: int, trouble: CassqError | None = None) -> bool:
        """Note that look `number` ended, and why it failed if it did; True when that is news."""
        with self._lock:
            is_news = trouble is not None and type(trouble) is not type(self._trouble)
            self._trouble = trouble
            self._rounds_done = max(self._rounds_done, number)
            self._changed.notify_all()
            return is_news

    def rest_while_full(self, seconds: float) -> None:
        """Wait until more is wanted, `seconds` at most."""
        with self._lock:
            if not self._is_closing and self._wanted() <= 0:
                self._refill_at = self._ahead() // 2
                self._clock.wait(self._changed, seconds)
                self._refill_at = -1

    def rest_while_fed(self, seconds: float) -> None:
        """Wait until somebody waits in vain, or something changes, `seconds` at most."""
        with self._lock:
            if not self._is_closing and (self._deliveries or not self._waiting):
                self._clock.wait(self._changed, seconds)

    def pause(self, seconds: float) -> None:
        """Wait after a failure; only closing, or a consumer that cannot wait, ends it early."""
        deadline = self._clock.now() + seconds
        with self._lock:
            while not (self._is_closing or self._is_look_asked):
                left = deadline - self._clock.now()
                if left <= 0:
                    return
                self._clock.wait(self._changed, left)

    def listen(self, seconds: float) -> Heard:
        """Wait, while consumers wait, for somebody to wake this popper or ask it to look."""
        deadline = self._clock.now() + seconds
        with self._lock:
            self._is_listening = True
            try:
                while (heard := self._heard(deadline)) is None:
                    left = deadline - self._clock.now()
                    self._clock.wait(self._changed, left if self._waiting else LINGER_S)
                    if not self._waiting and self._heard(deadline) is None:
                        return Heard.ALONE
                return heard
            finally:
                self._is_listening = False

    def _heard(self, deadline: float) -> Heard | None:
        if self._is_closing:
            return Heard.CLOSING
        if self._is_woken:
            return Heard.WOKEN
        if self._is_crowded:
            self._is_crowded = False
            return Heard.CROWDED
        if self._is_look_asked:
            return Heard.ASKED
        return Heard.NOTHING if self._clock.now() >= deadline else None

    def wake(self) -> None:
        """Hear that there may be something to take."""
        with self._lock:
            self._is_woken = True
            self._changed.notify_all()

    def crowd(self) -> None:
        """Hear that other poppers are hungry too."""
        with self._lock:
            self._is_crowded = True
            self._changed.notify_all()

    def close(self) -> bool:
        """Let consumers and the feeding thread end; False when it was closed before."""
        with self._lock:
            was_open, self._is_closing = not self._is_closing, True
            self._changed.notify_all()
            return was_open

    @property
    def is_woken(self) -> bool:
        """Whether somebody woke this popper."""
        return self._is_woken

    @property
    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._is_closing
