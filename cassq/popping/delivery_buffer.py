"""What is between the thread that takes messages and the consumers that pop them.

Owns who is handed what, and the one lock, which its parts share: the hand, the line, the alarm, the looks.
Consumers that wait stand in line: who puts messages in hands them to the first in line and wakes nobody else,
so that a hundred consumers cost no more than one. What must not break: a delivery whose lease has ended never
leaves the buffer.
"""

import threading
from collections.abc import Callable, Iterable

from cassq.errors import CassqError, UsageError
from cassq.limits import BUFFER_BYTES_MAX, BUFFER_MESSAGES_MAX
from cassq.model.ranges import Ranges
from cassq.pipes.held_run import HeldRun
from cassq.popping.alarm import Alarm
from cassq.popping.consumer_line import Asker, Consumer, ConsumerLine
from cassq.popping.delivery import BatchSlice, Delivery
from cassq.popping.hand import Hand, Portion, count_of, to_deliveries
from cassq.popping.looks import Looks, closed
from cassq.popping.pop_future import PopFuture, PopFutures
from cassq.popping.prefetch_size import PrefetchSize
from cassq.popping.timing import IDLE_S
from cassq.runtime.clock import Clock
from cassq.runtime.reentry import check_may_wait, refusal


class DeliveryBuffer:
    """Messages in hand, and the consumers that wait for more: of the two, one is always empty.

    Args:
        silent_service: names the coordination service while a look waits for it; else it is the database.

    Attributes:
        alarm: what wakes the fetch thread.
        answers: the thread that ends futures; its owner shuts it down.
        slow_s: when nobody popped for so long, no more is taken.
        is_inside: tells a call that interrupted another one of its own thread: the lock would let it in.
    """

    def __init__(self, clock: Clock, silent_service: Callable[[], str | None] = lambda: None) -> None:
        self._clock = clock
        self._lock = threading.RLock()  # several times faster to enter than a condition around it
        self.is_inside: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        self._hand = Hand(clock.until_shown)
        self._line = ConsumerLine()
        self.alarm = Alarm(clock, self._lock, self._line)
        self.alarm.next_at, self.alarm.hand_out = self._hand.held.plan, self._hand_out_due
        self._looks = Looks(clock, self.alarm, silent_service)
        self._appetite = PrefetchSize(clock.now())
        self._has_surplus = False
        self.slow_s = IDLE_S
        # The fetch thread rests until so few are left; below 0 while it does not rest for that.
        self._refill_at = -1
        self._futures = PopFutures(clock, self._lock, self._line, self._looks, self)
        self.answers = self._futures.answers

    def get(self, count: int, deadline: float | None, asker: Asker | None = None) -> list[Delivery]:
        """Return up to `count` live deliveries, as soon as there are any; none when `deadline` passes.

        Args:
            deadline: None for what is in hand, be it nothing.

        Raises:
            ClosedError: the popper, or the buffer, is closed.
            UsageError: the call interrupted another one of its thread.
            CassqError: nothing came in time, and this is why.
        """
        if self.is_inside():
            raise refusal("pop()")
        thread = threading.get_ident()
        with self._lock:
            if asker and asker.is_closed:
                raise closed()
            now = self._clock.now()
            self._appetite.note_call(thread, now)
            if self._hand.held.next_at <= now:
                self._hand_out_due()
            given = self._hand.cut(count)
            if not given and deadline is not None:
                given = self._wait(asker, count, deadline, now)
                now = self._clock.now()
            self._appetite.note_given(thread, count_of(given), now)
            # Waking the fetch thread for nothing would cost more than the pop.
            if self.alarm.is_listening or self._hand.count <= self._refill_at:
                self.alarm.ring()
        # Others need not wait until a thousand messages have become objects.
        return to_deliveries(given)

    def get_soon(self, count: int, asker: Asker | None = None) -> PopFuture:
        """Return a future of up to `count` live deliveries.

        Raises:
            ClosedError, UsageError: as `get`.
            OverloadedError: too many wait already.
        """
        if self.is_inside():
            raise refusal("pop_soon()")
        self.answers.start()  # not with the lock held, and not when it is too late for a thread
        with self._lock:
            self._looks.check_open(asker)
            now = self._clock.now()
            if self._hand.held.next_at <= now:
                self._hand_out_due()
            consumer, future = self._futures.make(asker, count, now)
            self._appetite.note_call(consumer.thread, now)
            consumer.given = self._hand.cut(count)
            if consumer.given:
                self._note_served(consumer)
            else:
                self._futures.stand_in_line(consumer)
            if self.alarm.is_listening or self._hand.count <= self._refill_at:
                self.alarm.ring()
        return future

    def _wait(self, asker: Asker | None, count: int, deadline: float, now: float) -> list[Portion]:
        check_may_wait("pop()")
        # Only who cannot wait asks for a look anew.
        # What was refused to the look before may be allowed by now: only a look of its own tells.
        is_hurried = deadline <= now or isinstance(self._looks.trouble, UsageError)
        look = self._looks.number_for(is_own_needed=is_hurried)
        if is_hurried:
            self.alarm.is_look_asked = True
        changed = threading.Condition(self._lock)
        consumer = Consumer(changed, asker, count, asked_at=now, deadline=deadline, look=look)
        self._line.join(consumer)
        try:
            while not consumer.given:
                until = self._looks.wait_until(consumer)
                if until is None:
                    return []
                # The fetch thread hands out what comes due, but for while it waits for the database.
                until = min(until, self._hand.held.plan() if self._line.first is consumer else until)
                self._clock.wait(changed, None if until == float("inf") else until - self._clock.now())
                self._hand_out_due()
                if consumer.given:
                    self.drop_ended(consumer)
            given, consumer.given = consumer.given, []
            return given
        finally:
            self._appetite.popped_at = self._clock.now()
            if consumer.given:  # an interrupt came between: the next in line shall have them
                self._hand.put_back(consumer.given)
                self._serve()
            else:
                self._line.leave(consumer)

    def drop_ended(self, consumer: Consumer) -> None:
        """Drop what ended before its consumer looked; who has nothing then stands first in line again.

        With the lock held.
        """
        consumer.given = [portion for portion in consumer.given if portion[0].run.is_live]
        if not consumer.given:
            self._line.stand_first(consumer)
            self._serve()

    def put_back(self, given: list[Portion]) -> bool:
        """Hand what nobody got to the next in line; False: it is closing. With the lock held."""
        if self.alarm.is_closing:
            return False
        self._hand.put_back(given)
        self._serve()
        return True

    def put(self, slices: Iterable[BatchSlice]) -> None:
        """Add messages, and hand them to who waits for them."""
        with self._lock:
            now = self._clock.now()
            held, before = self._hand.held, self._hand.held.next_at
            self._hand.add(slices, now)
            if held.next_at <= now:
                self._hand.release(now)
            self._serve()
            first = self._line.first
            if first and held.next_at < before:
                first.changed.notify()  # it waits until then itself, while the fetch thread does other things

    def _hand_out_due(self) -> None:
        if self._hand.release(self._clock.now()):
            self._serve()

    @property
    def is_holding(self) -> bool:
        """Whether it has messages that are not due."""
        return bool(self._hand.held)

    @property
    def room_to_hold(self) -> int:
        """How many messages may be taken ahead of their due times."""
        held = self._hand.held
        return max(0, BUFFER_MESSAGES_MAX - held.count) if held.size < BUFFER_BYTES_MAX else 0

    def excess(self, moments: int) -> int:
        """Return how many messages came due beyond what consumers here work off in so many moments."""
        with self._lock:
            return self._hand.count - moments * self._ahead() - self._line.demand

    def take_last(self, count: int) -> dict[HeldRun, Ranges]:
        """Take out up to `count` messages of those that came due last; return them, by run."""
        with self._lock:
            return self._hand.cut_last(count)

    def _serve(self) -> None:
        while (first := self._line.first) and (given := self._hand.cut(first.count)):
            consumer = self._line.take_first()
            consumer.given = given
            self._note_served(consumer)

    def _note_served(self, consumer: Consumer) -> None:
        # It counts from now on, not only when its turn comes among many threads.
        self._appetite.note_given(consumer.thread, count_of(consumer.given), self._clock.now())
        consumer.changed.notify()

    def leave(self, asker: Asker) -> None:
        """Let the consumers of one popper end, which is closed already; the others go on.

        What is in hand is to be given back, and nothing taken ahead until it is known how fast they are.
        """
        with self._lock:
            self._appetite = PrefetchSize(self._appetite.popped_at)
            self._has_surplus = self._hand.count > 0
            self.alarm.ring()
            self._line.call_those_of(asker)

    def take_back(self) -> dict[HeldRun, Ranges]:
        """Empty the buffer; return what was in it, by run."""
        with self._lock:
            return self._hand.take_back()

    def runs(self) -> list[HeldRun]:
        """Return the runs of what is in hand, those that were taken first first."""
        with self._lock:
            return self._hand.runs()

    def is_idle(self, seconds: float) -> bool:
        """Tell whether nobody waits, and nobody has popped for so long."""
        with self._lock:
            return not self._line and self._clock.now() - self._appetite.popped_at > seconds

    def take_surplus(self) -> bool:
        """Tell whether what is in hand is more than there are consumers for, since the last call."""
        with self._lock:
            had_surplus, self._has_surplus = self._has_surplus, False
            return had_surplus

    def wanted(self) -> int:
        """Return how many messages to take now; 0 when there are enough, or nobody comes for them."""
        with self._lock:
            if self.is_idle(self.slow_s):
                return 0  # however fast they were: what is taken now would only go back
            ahead, in_hand, demand = self._ahead(), self._hand.count, self._line.demand
            if in_hand > ahead // 2 and demand <= in_hand:
                return 0
            return demand + ahead - in_hand

    def _ahead(self) -> int:
        return self._appetite.ahead(len(self._line), self._clock.now())

    def is_starving(self) -> bool:
        """Tell whether somebody waits and nothing is in hand."""
        return bool(self._line) and not self._hand.count

    def begin_round(self) -> int:
        """Note that a look begins; return its number."""
        with self._lock:
            return self._looks.begin()

    def end_round(self, number: int, trouble: CassqError | None = None) -> bool:
        """Note that look `number` ended, and why it failed if it did; True when that is news."""
        with self._lock:
            is_news = self._looks.end(number, trouble)
            self._line.call(self._clock.now(), is_over=isinstance(trouble, UsageError))
            return is_news

    def rest_while_full(self, seconds: float) -> None:
        """Wait until more is wanted, `seconds` at most."""
        with self._lock:
            if not self.alarm.is_due and self.wanted() <= 0:
                self._refill_at = self._ahead() // 2
                self.alarm.rest(seconds)
                self._refill_at = -1

    def rest_while_fed(self, seconds: float) -> None:
        """Wait until somebody waits in vain, or something changes, `seconds` at most."""
        with self._lock:
            if not self.alarm.is_due and (self._hand.count or not self._line):
                self.alarm.rest(seconds)

    def call(self) -> None:
        """Wake the fetch thread for somebody who waits for it, and cannot in the middle of a pop."""
        if self.is_inside():
            raise refusal("a rollback or extend()")
        self.alarm.wake()

    def close(self) -> None:
        """Let consumers and the fetch thread end. May be called twice."""
        with self._lock:
            self.alarm.close()
            self._line.call(self._clock.now(), is_over=True)
