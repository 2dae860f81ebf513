"""The looks for messages, as consumers rely on them: which began, which ended, and why the last one failed.

Owns their numbers, and what consumers that wait are told by them: who asked before look 7 began may be told
by look 7 that there is nothing. The buffer's lock guards it. What must not break: the number of the last look
that ended never falls; and a consumer is never told "nothing" without a look that began after it asked,
unless the fetch thread is listening to be woken.
"""

from collections.abc import Callable

from cassq.catalog.queue_context import QueueContext
from cassq.coordination.watched import silent_service
from cassq.errors import (
    CassqError,
    ClosedError,
    CoordinationUnavailableError,
    StorageUnavailableError,
    UsageError,
)
from cassq.popping.alarm import Alarm
from cassq.popping.consumer_line import Asker, Consumer
from cassq.runtime.clock import Clock


class Looks:
    """Looks by their numbers, from 1 on.

    Args:
        alarm: what wakes the fetch thread, which looks.
        silent_service: names the coordination service while a look waits for it; else it is the database.

    Attributes:
        begun: the number of the last look that began.
        done: the highest number of a look that ended.
        trouble: why the look that ended last failed; None when it did not.
    """

    __slots__ = ("_alarm", "_clock", "_silent_service", "begun", "done", "trouble")

    def __init__(self, clock: Clock, alarm: Alarm, silent_service: Callable[[], str | None]) -> None:
        self._clock = clock
        self._alarm = alarm
        self._silent_service = silent_service
        self.begun = 0
        self.done = 0
        self.trouble: CassqError | None = None

    def begin(self) -> int:
        """Note that a look begins; return its number."""
        self._alarm.is_look_asked = False
        self.begun += 1
        return self.begun

    def end(self, number: int, trouble: CassqError | None) -> bool:
        """Note that a look ended, and why it failed if it did; True when that is news."""
        is_news = trouble is not None and type(trouble) is not type(self.trouble)
        self.trouble = trouble
        self.done = max(self.done, number)
        return is_news

    def number_for(self, *, is_own_needed: bool) -> int:
        """Return the number of the look that must have ended before one who comes now is told "nothing".

        Who listens has looked and would be woken.

        Args:
            is_own_needed: a look is needed that begins from now on.
        """
        return self.begun + 1 if is_own_needed or not self._alarm.is_listening else 0

    def wait_until(self, consumer: Consumer) -> float | None:
        """Return until when a consumer waits; None when its time is up.

        Raises: as `DeliveryBuffer.get`.
        """
        self.check_open(consumer.asker)
        now, deadline = self._clock.now(), consumer.deadline
        has_looked = self.done >= consumer.look
        if isinstance(self.trouble, UsageError) and has_looked:
            raise self.trouble  # waiting will not help
        if now >= deadline and self._alarm.is_listening:
            consumer.spare()
        if now >= deadline and (has_looked or now >= consumer.look_until):
            if self.trouble:
                raise self.trouble
            if not has_looked:
                raise self.no_answer(now - consumer.asked_at)
            return None
        if now >= deadline and self.begun < consumer.look:
            self._alarm.is_look_asked = True
        self._alarm.ring()
        return deadline if now < deadline else consumer.look_until

    def check_open(self, asker: Asker | None) -> None:
        """Raise `ClosedError` where the popper, or the buffer, is closed."""
        if self._alarm.is_closing or (asker and asker.is_closed):
            raise closed()

    def no_answer(self, waited_s: float) -> CassqError:
        """Return what to tell a consumer for whom no look ended in time."""
        words = (
            f"no look at the queue ended within {waited_s:.2g} s, so it is not known whether messages wait"
        )
        service = self._silent_service()
        if service:
            return CoordinationUnavailableError(f"{words}: {service} does not answer")
        return StorageUnavailableError(f"{words}: the database does not answer, or is slow")


def silence_of(context: QueueContext) -> Callable[[], str | None]:
    """Return what names the coordination service while it does not answer."""
    return lambda: silent_service(context.coordinator, context.queue)


def closed() -> ClosedError:
    """Return what the consumers of a closed popper are told."""
    return ClosedError("the popper is closed: make a new one with queue.popper()")
