"""The threads that call a handler for one message after the other, and what all crews share.

Owns how a call and the end of its message follow each other. Refuses to know when it is time to stop: the
popper that is closed ends them. What must not break: a message ends after its handler and its hooks have, and
no error of a handler ends a thread.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from cassq.errors import CassqError, ClosedError, InvalidOptionError
from cassq.model.retrying import reason_of
from cassq.popping.delivery import Delivery
from cassq.popping.popper import Popper
from cassq.popping.shared_intake import CommitMode
from cassq.worker.outcomes import Ending, check_done, ending_of, failure_of
from cassq.worker.watchdog import Watchdog

_log = logging.getLogger("cassq.worker")

#: Something around a handler's call, as a transaction or a measurement.
Hook = Callable[[Delivery], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Duty:
    """What a crew does.

    Attributes:
        handler: called with each delivery.
        concurrency: so many messages at a time.
        timeout_s: so long a handler may take.
        hooks: the first is the outermost.
        commit: whether a message waits for its commit, or is committed with others later.
    """

    handler: Callable[[Any], object]
    concurrency: int
    timeout_s: float
    hooks: Sequence[Hook]
    commit: CommitMode

    def around(self, delivery: Delivery) -> AbstractContextManager[object]:
        """Return what enters the hooks; they leave with its block."""
        return self._enter(delivery) if self.hooks else nullcontext()

    @contextmanager
    def _enter(self, delivery: Delivery) -> Iterator[None]:
        with ExitStack() as stack:
            for hook in self.hooks:
                stack.enter_context(hook(delivery))
            yield


class ThreadCrew:
    """Threads that call a plain function.

    Args:
        on_end: called with the error, or None, when one of them has ended.
    """

    def __init__(
        self, popper: Popper, duty: Duty, watchdog: Watchdog, on_end: Callable[[BaseException | None], None]
    ) -> None:
        self._popper = popper
        self._duty = duty
        self._watchdog = watchdog
        self._on_end = on_end

    def start(self) -> int:
        """Start; return how many ends there will be."""
        for number in range(self._duty.concurrency):
            name = f"cassq-work-{self._popper.queue}-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return self._duty.concurrency

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            for delivery in self._popper:
                self._serve(delivery)
        except BaseException as raised:
            error = raised
        self._on_end(error)

    def _serve(self, delivery: Delivery) -> None:
        error: BaseException | None = None
        with self._watchdog.holding(delivery, self._duty.timeout_s):
            span = delivery.begin_work()
            try:
                with self._duty.around(delivery):
                    check_done(self._duty.handler(delivery))
            except BaseException as raised:
                error = raised
            trouble = end(delivery, judge(delivery, error))
            if span:
                span.end(failure_of(error) or trouble)


def judge(delivery: Delivery, error: BaseException | None) -> Ending | None:
    """Return how a message is to end, and log its failure; None where it has ended already."""
    ending = ending_of(error)
    if ending.is_failure and not delivery.has_ended:
        _log.warning("%r failed", delivery, exc_info=error)
    return None if delivery.has_ended else ending


def end(delivery: Delivery, ending: Ending | None) -> CassqError | None:
    """End a message so; log, and return, why that cannot be done: the next message follows all the same."""
    try:
        if ending:
            getattr(delivery, ending.verb)(**ending.arguments)
    except InvalidOptionError as refusal:  # a delay of weeks
        return end(delivery, Ending("rollback", {"reason": reason_of(refusal)}))
    except CassqError as trouble:
        log_trouble(delivery, trouble)
        return trouble
    return None


def log_trouble(delivery: Delivery, trouble: CassqError) -> None:
    """Log that the end of a message could not be written."""
    if not isinstance(trouble, ClosedError):  # it was taken away, or given back as the worker ended
        _log.warning("%r comes again, or may: %s", delivery, trouble)
