"""What goes on beside handlers: their leases are extended, and messages that take too long are taken away.

Owns which handlers are at work. A thread cannot be interrupted without leaving locks and connections in any
state, so a handler that is late goes on; its message does not wait for it. What must not break: a handler
beyond its time-out keeps no message, and what it does to that message then comes to nothing.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from cassq.errors import CassqError, ClosedError
from cassq.popping.delivery import Delivery
from cassq.runtime.clock import Clock
from cassq.runtime.periodic_thread import PeriodicStep, PeriodicThread

_log = logging.getLogger("cassq.worker")

#: A lease is extended once less of it is left; it is looked at so often in its time.
EXTEND_AT = 2 / 3
LOOKS_PER_LEASE = 12

#: Time-outs are looked at this often, and leases that are longer.
LOOK_S = 0.5


@dataclass(slots=True, eq=False)
class _Call:
    """A handler at work; a context manager, because a generator would cost more than the rest."""

    watchdog: "Watchdog"
    delivery: Delivery
    deadline: float
    timeout_s: float
    cancel: Callable[[], object] | None
    is_late: bool = False

    def __enter__(self) -> None:
        self.watchdog.calls.add(self)  # one step, as `discard` and `list` are

    def __exit__(self, *_: object) -> None:
        self.watchdog.calls.discard(self)
        with self.watchdog.lock:
            self.watchdog.done += 1


class Watchdog:
    """Watches the handlers at work: see the module.

    Attributes:
        calls: the handlers at work.
        done: for how many messages handlers have ended.
        lock: of that number.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lock = threading.Lock()
        self.calls: set[_Call] = set()
        self.done = 0
        self._thread = PeriodicThread("cassq-watchdog", clock)
        self._step: PeriodicStep | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Look after leases and time-outs until the block ends."""
        self._step = self._thread.repeat("the leases of handlers", self.look, LOOK_S)
        try:
            yield
        finally:
            self._step.close()

    def holding(
        self, delivery: Delivery, timeout_s: float, cancel: Callable[[], object] | None = None
    ) -> AbstractContextManager[None]:
        """Look after a message, and its handler, until the block ends.

        Args:
            timeout_s: so long the handler may take.
            cancel: stops the handler, where that can be done.
        """
        seconds = delivery.run.lease_s / LOOKS_PER_LEASE  # a queue's lease may be altered at any time
        if self._step and seconds < self._step.seconds:
            self._step.seconds = seconds
            self._step.poke(seconds)
        return _Call(self, delivery, self._clock.now() + timeout_s, timeout_s, cancel)

    def look(self) -> None:
        """Take away what is late, and extend each other lease of which a third has passed."""
        now = self._clock.now()
        for call in self._all():
            if now > call.deadline and not call.is_late:
                call.is_late = True
                self._take_away(call)
        # Messages that share a lease are extended by one of them.
        for call in self._all():
            run = call.delivery.run
            if not call.delivery.has_ended and run.is_live and run.left_s < EXTEND_AT * run.lease_s:
                self._extend(call.delivery)

    def _take_away(self, call: _Call) -> None:
        reason = f"the handler took longer than its timeout of {call.timeout_s:g} s"
        _log.warning("%r: %s", call.delivery, reason)
        if not call.delivery.has_ended:
            _end(call.delivery, lambda: call.delivery.rollback(reason=reason))
        if call.cancel:
            call.cancel()

    def _extend(self, delivery: Delivery) -> None:
        try:
            delivery.extend()
        except ClosedError:  # its handler has ended it meanwhile
            pass
        except CassqError as error:  # the next look tries again, while the lease runs
            _log.warning("%r: its lease is not extended: %s", delivery, error)

    def give_back_all(self) -> None:
        """Give back the messages of all handlers at work, which counts as no attempt; cancel tasks."""
        for call in self._all():
            if not call.delivery.has_ended:
                _end(call.delivery, call.delivery.give_back)
            if call.cancel:
                call.cancel()

    @property
    def busy(self) -> int:
        """How many handlers are at work."""
        return len(self.calls)

    @property
    def late(self) -> int:
        """How many of them go on beyond their time-outs."""
        return sum(call.is_late for call in self._all())

    def _all(self) -> list[_Call]:
        return list(self.calls)


def _end(delivery: Delivery, end: Callable[[], object]) -> None:
    try:
        end()
    except ClosedError:  # its handler was quicker
        pass
    except CassqError as error:
        _log.warning("%r comes again when its lease ends: %s", delivery, error)
