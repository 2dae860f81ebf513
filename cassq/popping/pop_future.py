"""What callers of `pop_soon` hold until their messages come.

Owns how such a future ends, and what becomes of one that its caller cancels, hurries or gives back. Refuses
to know who is handed what; the buffer's lock guards it. What must not break: a future that says it is
cancelled is given no message, and each other one hears once of what its consumer was given.

    caller              line, under the lock            fetch thread            the futures' thread
    | pop_soon -------> | consumer stands in it         |                       |
    |                   | given <---------------------- | puts messages in      |
    |                   | rings ------------------------------------------------> | takes what was given
    | <-------------------------------------------------------------------------- | set_result, callbacks
    | cancel: False, messages are on their way          |                       |
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from cassq.errors import CassqError, OverloadedError
from cassq.popping.consumer_line import Asker, Consumer, ConsumerLine
from cassq.popping.delivery import Delivery
from cassq.popping.delivery_groups import finish_all, give_all_back, portions_of, unended
from cassq.popping.hand import Portion, to_deliveries
from cassq.popping.looks import Looks
from cassq.runtime.background_thread import AnsweredFuture, BackgroundThread
from cassq.runtime.clock import Clock
from cassq.runtime.reentry import check_outside

_log = logging.getLogger("cassq.popper")

#: So many futures of one intake may wait at once.
WAITERS_MAX = 20_000


class PopFuture(AnsweredFuture[list[Delivery]]):
    """The future of up to `count` messages; it waits without a thread.

    It ends with messages as soon as there are any, with an error as `Popper.pop` raises, and with an empty
    list only after `hurry`. A message that it has ended with is its caller's, to be committed, rolled back or
    given back, however late the caller looks. Callbacks are called on a thread of their own, one after the
    other; those of a cancelled one by the thread that cancels it.

    Args:
        thread: the one that ends it.
        leave: takes its consumer out of the line; returns False where it stands there no more.
        hurry: has its consumer wait for one look and no longer.
        put_back: lets others have what it has ended with.
    """

    def __init__(
        self,
        thread: BackgroundThread,
        leave: Callable[[], bool],
        hurry: Callable[[bool], None],
        put_back: Callable[[list[Delivery]], None],
    ) -> None:
        super().__init__(thread, "a pop")
        self._leave = leave
        self._hurry = hurry
        self._put_back = put_back

    def cancel(self) -> bool:
        """Wait no longer. False: messages are on their way, or it has ended: look what it ended with.

        Raises: UsageError: the call interrupted another one of its thread.
        """
        self._thread.birthplace.check(self._what)
        if not self._leave():
            return self.cancelled()
        super().cancel()
        self.set_running_or_notify_cancel()  # tells `concurrent.futures.wait`
        return True

    def give_back(self) -> None:
        """Want nothing of it: cancel it, or give back what it ends with, or has ended with.

        That counts as no attempt, and the next consumer in line receives it. What its caller has ended stays
        ended.

        Raises: UsageError: the call interrupted another one of its thread.
        """
        if not self.cancel():
            self.add_done_callback(lambda _: None if self.exception() else self._put_back(self.result()))

    def hurry(self, *, is_looking: bool = True) -> None:
        """Have one look made, and end with what it finds, be it nothing.

        A later call ends it with an error where no look has ended for 2 seconds.

        Args:
            is_looking: False ends it without a look where the popper would have been woken by a push.

        Raises: UsageError: the call interrupted another one of its thread.
        """
        self._thread.birthplace.check(self._what)
        self._hurry(is_looking)


class Server(Protocol):
    """Serves consumers, with the lock held: the buffer."""

    def drop_ended(self, consumer: Consumer) -> None:
        """Drop what ended before its consumer looked."""
        ...

    def put_back(self, given: list[Portion]) -> bool:
        """Hand what nobody got to the next in line; False: it is closing."""
        ...


class PopFutures:
    """The consumers that wait in no thread.

    Args:
        lock, line, looks: the buffer's.

    Attributes:
        answers: the thread that ends futures.
    """

    def __init__(
        self, clock: Clock, lock: threading.RLock, line: ConsumerLine, looks: Looks, server: Server
    ) -> None:
        self._clock = clock
        self._lock = lock
        self._line = line
        self._looks = looks
        self._server = server
        # Callbacks may do what the fetch thread is needed for, as a rollback and `extend` are.
        self.answers = BackgroundThread("cassq-futures")

    def make(self, asker: Asker | None, count: int, now: float) -> tuple[Consumer, PopFuture]:
        """Return a consumer with all the time there is, and its future."""
        bell = _FutureBell(self.answers)
        # What was refused to the look before may be allowed by now: only a look of its own tells.
        look = self._looks.number_for(is_own_needed=bool(self._looks.trouble))
        consumer = Consumer(bell, asker, count, asked_at=now, deadline=float("inf"), look=look)
        future = PopFuture(
            self.answers, partial(self._leave, consumer), partial(self._hurry, consumer), self._put_back
        )
        bell.answer = partial(self._answer, consumer, future)
        return consumer, future

    def stand_in_line(self, consumer: Consumer) -> None:
        """Let a consumer stand in line; with the lock held.

        Raises: OverloadedError: too many do already.
        """
        if len(self._line) >= WAITERS_MAX:
            raise OverloadedError(f"{WAITERS_MAX} pops wait already: let some of them end first")
        self._line.join(consumer)
        self._looks.wait_until(consumer)  # asks for what it waits for

    def _answer(self, consumer: Consumer, future: PopFuture) -> None:
        """End a future, if it is time for that."""
        error: CassqError | None = None
        with self._lock:
            if consumer.given:
                self._server.drop_ended(consumer)
            given, consumer.given = consumer.given, []
            if not given:
                if consumer not in self._line:
                    return  # it was cancelled, or has ended
                try:
                    if self._looks.wait_until(consumer) is not None:
                        return
                except CassqError as told:
                    error = told
                self._line.leave(consumer)
        if error:
            future.set_exception(error)
        else:
            future.set_result(to_deliveries(given))

    def _leave(self, consumer: Consumer) -> bool:
        check_outside(self._lock, "cancel()")
        with self._lock:
            is_there = consumer in self._line
            self._line.leave(consumer)
            return is_there

    def _hurry(self, consumer: Consumer, is_looking: bool) -> None:  # noqa: FBT001 - for a partial
        check_outside(self._lock, "hurry()")
        with self._lock:
            if consumer in self._line:
                look = self._looks.begun + 1 if is_looking else consumer.look
                consumer.hurry(self._clock.now(), look)
                consumer.changed.notify()

    def _put_back(self, deliveries: list[Delivery]) -> None:
        check_outside(self._lock, "give_back()")
        left = unended(deliveries)
        # The buffer extends a lease in time only of what it has had in hand for most of it.
        lasting = [each for each in left if each.run.left_s > each.run.lease_s / 2]
        with self._lock:
            finish_all(lasting, "given back")
            if not self._server.put_back(portions_of(lasting)):
                for each in lasting:
                    each.unfinish()
        left = unended(left)
        if left:
            # What is in hand may have gone back before; and this need not wait for the database.
            thread = BackgroundThread("cassq-give-back")
            thread.submit(_give_back, left)
            thread.shutdown(wait=False)


def _give_back(deliveries: list[Delivery]) -> None:
    try:
        give_all_back(deliveries)
    except CassqError as error:
        _log.warning("%d messages come again when their leases end: %s", len(deliveries), error)


class _FutureBell:
    """Has a future's consumer looked after on the futures' thread."""

    answer: Callable[[], None]

    def __init__(self, thread: BackgroundThread) -> None:
        self._thread = thread

    def notify(self) -> None:
        self._thread.submit(self.answer)
