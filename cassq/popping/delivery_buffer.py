"""What is between the thread that takes messages and the consumers that pop them.

Owns the one lock between them, who waits for what, and what wakes whom. Knows neither pipes nor the database.
Consumers that wait stand in line: who puts messages in hands them to the first in line and wakes nobody else,
so that a hundred consumers cost no more than one. What must not break: a delivery whose lease has ended never
leaves the buffer, and a consumer is never told "nothing" without a look that began after it asked, unless the
fetch thread is listening to be woken.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from cassq.errors import (
    CassqError,
    ClosedError,
    CoordinationUnavailableError,
    StorageUnavailableError,
    UsageError,
)
from cassq.model.ranges import Ranges
from cassq.pipes.held_run import HeldRun
from cassq.popping.delivery import BatchSlice, Delivery
from cassq.popping.prefetch_size import PrefetchSize
from cassq.popping.timing import IDLE_S, LINGER_S, LOOK_TIMEOUT_S
from cassq.runtime.clock import Clock
from cassq.runtime.reentry import check_may_wait, refusal


class Heard(Enum):
    """Why the fetch thread stops listening."""

    NOTHING = "nothing"
    WOKEN = "woken"
    CROWDED = "crowded"
    ASKED = "asked"
    ALONE = "alone"
    CLOSING = "closing"


#: Some messages of a batch slice, from the first to the last.
_Portion = tuple[BatchSlice, int, int]


class Asker(Protocol):
    """Whose consumers pop: a popper, which may be closed while the buffer goes on for others."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        ...


class _Consumer:
    """A consumer that waits in a pop.

    Attributes:
        asked_at: when it came.
        look_until: when it gives up waiting for that look.
        look: the number of the look that must have ended before it is told that there is nothing.
        given: what it was handed; then it stands in line no more.
    """

    __slots__ = ("asked_at", "asker", "changed", "count", "deadline", "given", "look", "look_until", "thread")

    def __init__(  # noqa: PLR0913 - what a consumer is
        self,
        changed: threading.Condition,
        asker: Asker | None,
        count: int,
        *,
        asked_at: float,
        deadline: float,
        look: int,
    ) -> None:
        self.asked_at = asked_at
        self.look_until = max(deadline, asked_at + LOOK_TIMEOUT_S)
        self.thread = threading.get_ident()
        self.asker = asker
        self.changed = changed
        self.count = count
        self.deadline = deadline
        self.look = look
        self.given: list[_Portion] = []


class DeliveryBuffer:
    """Messages in hand, and the consumers that wait for more: of the two, one is always empty.

    Args:
        silent_service: names the coordination service while a look waits for it; else it is the database.
    """

    def __init__(self, clock: Clock, silent_service: Callable[[], str | None] = lambda: None) -> None:
        self._clock = clock
        self._silent_service = silent_service
        # The lock itself is several times faster to enter than the condition around it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # only the fetch thread waits for it
        # Tells a call that interrupted another one of its own thread: the lock alone would let it in.
        self.is_inside: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        self._slices: deque[BatchSlice] = deque()
        self._in_hand = 0
        self._appetite = PrefetchSize()
        self._demand = 0
        self._line: deque[_Consumer] = deque()
        self._rounds_begun = 0
        self._rounds_done = 0
        self._is_woken = False
        self._is_crowded = False
        self._is_listening = False
        self._is_look_asked = False
        self._is_closing = False
        self._has_surplus = False
        self._trouble: CassqError | None = None
        self._popped_at = clock.now()
        # The fetch thread rests until so few are left; below 0 while it does not rest for that.
        self._refill_at = -1

    def get(self, count: int, deadline: float, asker: Asker | None = None) -> list[Delivery]:
        """Return up to `count` live deliveries, as soon as there are any; none when `deadline` passes.

        Args:
            asker: the popper that is asked.

        Raises:
            ClosedError: the popper, or the buffer, is closed.
            UsageError: the call interrupted another one of its thread.
            CassqError: nothing came in time, and this is why.
        """
        if self.is_inside():
            raise refusal("pop()")
        thread = threading.get_ident()
        with self._lock:
            if asker:
                _check_open(asker)
            now = self._clock.now()
            self._appetite.note_call(thread, now)
            given = self._cut(count)
            if not given:
                given = self._wait(asker, count, deadline, now)
                now = self._clock.now()
            self._popped_at = now
            self._appetite.note_given(thread, _count(given), now)
            # Waking the fetch thread for nothing would cost more than the pop.
            if self._is_listening or self._in_hand <= self._refill_at:
                self._changed.notify()
        # Others need not wait until a thousand messages have become objects.
        deliveries: list[Delivery] = []
        for batch_slice, first, last in given:
            deliveries += batch_slice.deliveries(first, last)
        return deliveries

    def _wait(self, asker: Asker | None, count: int, deadline: float, now: float) -> list[_Portion]:
        check_may_wait("pop()")
        # Who listens has looked and would be woken; only who cannot wait asks for a look anew.
        # What was refused to the look before may be allowed by now: only a look of its own tells.
        is_hurried = deadline <= now or isinstance(self._trouble, UsageError)
        look = self._rounds_begun + 1 if is_hurried or not self._is_listening else 0
        self._is_look_asked = self._is_look_asked or is_hurried
        changed = threading.Condition(self._lock)
        consumer = _Consumer(changed, asker, count, asked_at=now, deadline=deadline, look=look)
        self._line.append(consumer)
        self._demand += count
        try:
            while not consumer.given:
                if not self._wait_once(consumer):
                    return []
                if consumer.given:
                    self._drop_ended(consumer)
            given, consumer.given = consumer.given, []
            return given
        finally:
            self._popped_at = self._clock.now()
            if consumer.given:  # an interrupt came between: the next in line shall have them
                self._put_back(consumer.given)
            elif consumer in self._line:
                self._line.remove(consumer)
                self._demand -= count

    def _wait_once(self, consumer: _Consumer) -> bool:
        """Wait until the consumer is called; False when its time is up."""
        if consumer.asker:
            _check_open(consumer.asker)
        if self._is_closing:
            raise _closed()
        now, deadline = self._clock.now(), consumer.deadline
        has_looked = self._rounds_done >= consumer.look
        if isinstance(self._trouble, UsageError) and has_looked:
            raise self._trouble  # waiting will not help
        if now >= deadline and self._is_listening:
            # Not stuck: it left the look to others in line, and is asked for one now.
            consumer.look_until = max(consumer.look_until, deadline + LOOK_TIMEOUT_S)
        if now >= deadline and (has_looked or now >= consumer.look_until):
            if self._trouble:
                raise self._trouble
            if not has_looked:
                raise self._look_trouble(now - consumer.asked_at)
            return False
        self._is_look_asked = self._is_look_asked or (now >= deadline and self._rounds_begun < consumer.look)
        self._changed.notify()
        until = deadline if now < deadline else consumer.look_until
        self._clock.wait(consumer.changed, None if until == float("inf") else until - now)
        return True

    def _look_trouble(self, waited_s: float) -> CassqError:
        words = (
            f"no look at the queue ended within {waited_s:.2g} s, so it is not known whether messages wait"
        )
        service = self._silent_service()
        if service:
            return CoordinationUnavailableError(f"{words}: {service} does not answer")
        return StorageUnavailableError(f"{words}: the database does not answer")

    def _drop_ended(self, consumer: _Consumer) -> None:
        """Drop what ended before its consumer looked; who has nothing then stands first in line again."""
        consumer.given = [portion for portion in consumer.given if portion[0].run.is_live]
        if not consumer.given:
            self._line.appendleft(consumer)
            self._demand += consumer.count
            self._serve()

    def _cut(self, count: int) -> list[_Portion]:
        """Take up to `count` messages out of the hand; drop what has no lease any more: it comes again."""
        given: list[_Portion] = []
        slices = self._slices
        while slices and count:
            batch_slice = slices[0]
            first, last = batch_slice.next, batch_slice.last
            if batch_slice.run.is_live:
                if last >= first + count:
                    last = first + count - 1
                    batch_slice.next = last + 1
                count -= last - first + 1
                given.append((batch_slice, first, last))
            self._in_hand -= last - first + 1
            if last == batch_slice.last:
                slices.popleft()
        return given

    def put(self, slices: Iterable[BatchSlice]) -> None:
        """Add messages, and hand them to who waits for them."""
        with self._lock:
            for batch_slice in slices:
                self._slices.append(batch_slice)
                self._in_hand += batch_slice.last - batch_slice.next + 1
            self._serve()

    def _put_back(self, given: list[_Portion]) -> None:
        for batch_slice, first, last in reversed(given):
            part = BatchSlice(batch_slice.run, batch_slice.batch.part(first, last), batch_slice.committer)
            self._slices.appendleft(part)
            self._in_hand += last - first + 1
        self._serve()

    def _serve(self) -> None:
        while self._line and (given := self._cut(self._line[0].count)):
            consumer = self._line.popleft()
            self._demand -= consumer.count
            consumer.given = given
            # It counts from now on, not only when its turn comes among many threads.
            self._popped_at = self._clock.now()
            self._appetite.note_given(consumer.thread, _count(given), self._popped_at)
            consumer.changed.notify()

    def _call(self, *, is_over: bool) -> None:
        """Wake those in line that have no time left; all where it is over."""
        now = self._clock.now()
        for consumer in self._line:
            if is_over or consumer.deadline <= now:
                consumer.changed.notify()

    def leave(self, asker: Asker) -> None:
        """Let the consumers of one popper end, which is closed already; the others go on.

        What is in hand is to be given back, and nothing to be taken ahead until it is known anew how fast the
        others are: how much was meant for those who left nobody knows.
        """
        with self._lock:
            self._appetite = PrefetchSize()
            self._has_surplus = self._in_hand > 0
            self._changed.notify()
            for consumer in self._line:
                if consumer.asker is asker:
                    consumer.changed.notify()

    def take_back(self) -> dict[HeldRun, Ranges]:
        """Empty the buffer; return what was in it, by run."""
        back: dict[HeldRun, Ranges] = {}
        with self._lock:
            for batch_slice in self._slices:
                back.setdefault(batch_slice.run, Ranges()).add(batch_slice.next, batch_slice.last)
            self._slices.clear()
            self._in_hand = 0
        return back

    def runs(self) -> list[HeldRun]:
        """Return the runs of what is in hand, those that were taken first first."""
        with self._lock:
            return list(dict.fromkeys(batch_slice.run for batch_slice in self._slices))

    def is_idle(self) -> bool:
        """Tell whether nobody waits, and nobody has popped for a while."""
        with self._lock:
            return self._is_idle()

    def _is_idle(self) -> bool:
        return not self._line and self._clock.now() - self._popped_at > IDLE_S

    def take_surplus(self) -> bool:
        """Tell whether what is in hand is more than there are consumers for, since the last call."""
        with self._lock:
            had_surplus, self._has_surplus = self._has_surplus, False
            return had_surplus

    def wanted(self) -> int:
        """Return how many messages to take now; 0 when there are enough, or nobody comes for them."""
        with self._lock:
            return self._wanted()

    def _wanted(self) -> int:
        if self._is_idle():
            return 0  # however fast they were: what is taken now would only go back
        ahead = self._ahead()
        if self._in_hand > ahead // 2 and self._demand <= self._in_hand:
            return 0
        return self._demand + ahead - self._in_hand

    def _ahead(self) -> int:
        return self._appetite.ahead(len(self._line), self._clock.now())

    def is_starving(self) -> bool:
        """Tell whether somebody waits and nothing is in hand."""
        with self._lock:
            return bool(self._line) and not self._in_hand

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
            self._call(is_over=isinstance(trouble, UsageError))
            return is_news

    def rest_while_full(self, seconds: float) -> None:
        """Wait until more is wanted, `seconds` at most."""
        with self._lock:
            if not (self._is_closing or self._is_woken) and self._wanted() <= 0:
                self._refill_at = self._ahead() // 2
                self._clock.wait(self._changed, seconds)
                self._refill_at = -1

    def rest_while_fed(self, seconds: float) -> None:
        """Wait until somebody waits in vain, or something changes, `seconds` at most."""
        with self._lock:
            if not (self._is_closing or self._is_woken) and (self._in_hand or not self._line):
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
                    was_alone = not self._line
                    left = deadline - self._clock.now()
                    self._clock.wait(self._changed, min(left, LINGER_S) if was_alone else left)
                    if was_alone and not self._line and self._heard(deadline) is None:
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
            self._changed.notify()

    def call(self) -> None:
        """Wake the fetch thread for somebody who waits for it, and cannot in the middle of a pop."""
        if self.is_inside():
            raise refusal("a rollback or extend()")
        self.wake()

    def crowd(self) -> None:
        """Hear that other poppers are hungry too."""
        with self._lock:
            self._is_crowded = True
            self._changed.notify()

    def close(self) -> None:
        """Let consumers and the fetch thread end. May be called twice."""
        with self._lock:
            self._is_closing = True
            self._changed.notify()
            self._call(is_over=True)

    @property
    def is_woken(self) -> bool:
        """Whether somebody woke this popper."""
        return self._is_woken

    @property
    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._is_closing


def _count(given: list[_Portion]) -> int:
    count = 0
    for _, first, last in given:
        count += last - first + 1
    return count


def _check_open(asker: Asker) -> None:
    if asker.is_closed:
        raise _closed()


def _closed() -> ClosedError:
    return ClosedError("the popper is closed: make a new one with queue.popper()")
