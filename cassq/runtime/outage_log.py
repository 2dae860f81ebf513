"""What is logged while the database or the coordination service is out of reach.

Owns that an outage is one line when it begins, one a minute while it lasts, and one when it is over, for a
store and not for each of its queues: the ports tell each failure and each answer. What an actor would say of
the same failure goes to DEBUG. A transaction that others' kept waiting begins none while other calls are
answered. The drivers' own loggers are held to one line a minute and kind. What must not break: an error that
is no outage is never held back.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from cassq.errors import CassqError, OutcomeUnknownError, UnavailableError
from cassq.runtime.clock import Clock, SystemClock

_log = logging.getLogger("cassq.store")

#: What tells of an outage, rather than of a message, a pipe or a caller.
OUTAGES = (UnavailableError, OutcomeUnknownError)

#: An outage that lasts is told again this often.
REPEAT_S = 60.0

#: It is over once calls are answered, and none fails, for so long: with some nodes away some succeed, as
#: reads of a locked file do, while a write waits for as long as it may.
QUIET_S = 20.0

#: Transactions that were kept waiting, and not one answer: after so long that is an outage, too.
DOUBT_S = 5.0

#: A library whose messages are no templates must not fill the memory.
KINDS_MAX = 500

DATABASE = "the database"
COORDINATION = "the coordination service"


def log_trouble(log: logging.Logger, error: CassqError, words: str, *values: object) -> None:
    """Log an error that an actor waits out: as a warning, unless the store tells of it as an outage."""
    log.log(logging.DEBUG if isinstance(error, OUTAGES) else logging.WARNING, words, *values)


@dataclass(slots=True)
class _Outage:
    began_at: float
    told_at: float | None = None
    failures: int = 0
    answered_at: float | None = None
    failing: set[str] = field(default_factory=set)  # calls that failed and were not answered since


class OutageLog:
    """Tells of the outages of one store; safe to use from many threads.

    Args:
        store: the store's URL, without a password.
    """

    def __init__(self, store: str, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler may come in between, and call the store
        self._outages: dict[str, _Outage] = {}

    def note_failure(self, service: str, error: CassqError, call: str = "") -> None:
        """Note that a call of a service failed; `call` names what was called."""
        now = self._clock.now()
        with self._lock:
            outage = self._outages.setdefault(service, _Outage(now))
            outage.failures += 1
            outage.failing.add(call)
            outage.answered_at = None
            lasted_s, failures = now - outage.began_at, outage.failures
            told_at = outage.told_at
            is_doubtful = isinstance(error, OutcomeUnknownError) and error.is_contended
            is_new = told_at is None and not (is_doubtful and lasted_s < DOUBT_S)
            is_due = told_at is not None and now - told_at >= REPEAT_S
            if is_new or is_due:
                outage.told_at = now
        # Not under the lock: a handler of the application may use the store.
        if is_new:
            _log.warning("%s: %s is out of reach: %s", self._store, service, error)
        elif told_at is None:
            _log.info("%s: a transaction was kept waiting by others: %s", self._store, error)
        elif is_due:
            _log.warning(
                "%s: %s is out of reach for %.0f s, %d calls failed; the last: %s",
                *(self._store, service, lasted_s, failures, error),
            )

    def note_answer(self, service: str, call: str = "") -> None:
        """Note that a call of a service was answered; costs nothing where there is no outage.

        An outage is over once nothing failed for QUIET_S. It lasted until a call that had failed was answered
        again, where one was, rather than until the first answer to any: a locked file answers reads.
        """
        if service not in self._outages:
            return
        now = self._clock.now()
        with self._lock:
            outage = self._outages.get(service)
            if outage is None:
                return
            if outage.told_at is None:
                del self._outages[service]
                return
            if outage.answered_at is None or call in outage.failing:
                outage.answered_at = now
                outage.failing.discard(call)
            if now - outage.answered_at < QUIET_S:
                return
            self._outages.pop(service, None)
        lasted_s = outage.answered_at - outage.began_at
        _log.warning(
            "%s: %s is back after %.1f s; %d calls failed", self._store, service, lasted_s, outage.failures
        )


class OncePerMinute(logging.Filter):
    """Lets each kind of line of a library's logger through once a minute, with how many were left out.

    A kind is a message before its values are filled in. Nothing is held back from a logger that is enabled
    for DEBUG.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._lock = threading.RLock()  # a signal handler may come in between, and call the store
        self._kinds: dict[object, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record may pass; says in it how many did not."""
        if logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            return True
        kind = (record.name, str(record.msg))
        now = self._now()
        with self._lock:
            told_at, left_out = self._kinds.get(kind, (now - REPEAT_S, 0))
            if now - told_at < REPEAT_S:
                self._kinds[kind] = (told_at, left_out + 1)
                return False
            if len(self._kinds) >= KINDS_MAX:
                self._kinds.clear()
            self._kinds[kind] = (now, 0)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more like this were left out)", ()
        return True


def spare(library: str) -> None:
    """Let the loggers of a library that are there by now repeat themselves once a minute only.

    They stay the application's: levels, handlers and propagation are as it sets them.
    """
    names = [library, *(each for each in logging.root.manager.loggerDict if each.startswith(f"{library}."))]
    for name in names:
        logger = logging.getLogger(name)
        # A filter of a logger does not hold for its children, so each has its own.
        if not any(isinstance(each, OncePerMinute) for each in logger.filters):
            logger.addFilter(OncePerMinute(SystemClock().now))
