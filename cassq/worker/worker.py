"""What users hold of a worker: which functions it calls for which queues, and when it ends.

Owns the order of an end: take no more, give back what nobody has begun, let handlers finish, give back what
the others have. Decides nothing about one message. What must not break: a worker that is stopped costs no
message an attempt, whatever its handlers do.
"""

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from queue import Empty
from typing import TYPE_CHECKING, Any, TypeVar

from cassq.errors import CassqError, ClosedError, InvalidOptionError, UsageError
from cassq.model.arguments import check_count, to_seconds
from cassq.model.ids import check_name
from cassq.model.label import to_types
from cassq.popping.popper import Popper
from cassq.popping.shared_intake import CommitMode
from cassq.runtime.clock import DEAF_S, Clock, SystemClock
from cassq.runtime.signal_queue import SignalQueue
from cassq.store import Store
from cassq.worker.crews import Duty, Hook, ThreadCrew
from cassq.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from cassq.worker.task_crew import TaskCrew

_Handler = TypeVar("_Handler", bound=Callable[..., object])

#: What handlers may take unless a worker says otherwise, and what they get when it is stopped.
TIMEOUT = timedelta(minutes=5)
DRAIN = timedelta(seconds=30)

#: Tasks that are cancelled as the worker ends have so long to clean up.
GRACE_S = 2.0


class Worker:
    """Calls a function for each message of a queue, many at a time, until it is stopped.

    A handler that returns commits its message. One that raises rolls it back, with the error as the reason:
    the queue's retry settings say when it is delivered again. `cassq.Reject` and `cassq.Retry` choose
    otherwise. While a handler works, the lease of its message is extended.

    Args:
        store: stays open.
        concurrency: so many messages of each queue at a time: threads, or tasks of one event loop where the
            handler is a coroutine function.
        timeout: so long a handler may take, in seconds or as a timedelta; None for ever. Then its message is
            rolled back, and its task is cancelled; a thread goes on, and what it does to the message comes to
            nothing.
        hooks: called with each delivery; what they return is entered around the handler, the first outermost.

    Attributes:
        is_stopping: whether a handler that has much to do had better come to an end.
    """

    def __init__(
        self,
        store: Store,
        *,
        concurrency: int = 16,
        timeout: float | timedelta | None = TIMEOUT,
        hooks: Sequence[Hook] = (),
    ) -> None:
        check_count(concurrency)
        self._store = store
        self._concurrency = concurrency
        self._timeout_s = float("inf") if timeout is None else to_seconds(timeout)
        self._hooks = tuple(hooks)
        self._clock: Clock = SystemClock()
        self._watchdog = Watchdog(self._clock)
        # By queue and types.
        self._duties: dict[tuple[str, frozenset[str]], Duty] = {}
        # What the run under way hears, or the next one; a signal handler may put something in.
        self._news: SignalQueue[tuple[str, Any]] = SignalQueue()
        self._running = threading.Lock()
        self.is_stopping = False
        self._is_started = False

    def on(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        timeout: float | timedelta | None = None,
        commit: CommitMode = "each",
        types: Iterable[str] | None = None,
    ) -> Callable[[_Handler], _Handler]:
        """Return a decorator: the function is called with each delivery of a queue.

        The queue is created with the default settings if there is none of this name.

        Args:
            queue: its name; each message of it has one handler.
            concurrency, timeout: as of the worker, for this handler; None for what that says.
            commit, types: see `Queue.popper`.
        """
        name, kinds = check_name(queue), to_types(types)
        for other, theirs in self._duties:
            if other == name and (not (kinds and theirs) or kinds & theirs):
                both = f" for {', '.join(sorted(kinds & theirs))}" if kinds & theirs else ""
                raise InvalidOptionError(
                    f"queue {queue!r} has a handler{both}: a worker has one for each queue, or, where all of "
                    "them name types, one for each type"
                )
        if concurrency is not None:
            check_count(concurrency)

        def note(handler: _Handler) -> _Handler:
            if not callable(handler):
                raise InvalidOptionError(f"{handler!r} is no handler: give a function of one delivery")
            timeout_s = self._timeout_s if timeout is None else to_seconds(timeout)
            self._duties[queue, kinds] = Duty(
                handler, concurrency or self._concurrency, timeout_s, self._hooks, commit
            )
            return handler

        return note

    def run(self) -> None:
        """Work until `stop` is called, or a queue cannot be popped from any more.

        Raises:
            UsageError: no handler is there, or it runs already.
            CassqError: a queue cannot be opened, or was deleted; the handlers at work were let finish.
        """
        if not self._duties:
            raise UsageError("the worker has no handler: decorate a function with @worker.on(QUEUE)")
        if not self._running.acquire(blocking=False):
            raise UsageError("the worker runs already")
        try:
            self.is_stopping = False
            self._run()
        finally:
            self._is_started = False
            self._news = SignalQueue()  # handlers that go on will tell the old one
            self._running.release()

    def stop(self, *, drain: float | timedelta = DRAIN) -> None:
        """Have `run` return: take no more, and let handlers finish. Before `run` it has that return at once.

        May be called from any thread, from a signal handler, and again with less time.

        Args:
            drain: handlers have so long; then the messages of those that are left go back without an attempt
                counted, and their tasks are cancelled.
        """
        self._news.put(("stop", to_seconds(drain)))

    @property
    def is_ready(self) -> bool:
        """Whether it runs, takes messages, and is not stopping."""
        return self._is_started and not self.is_stopping

    @property
    def slots(self) -> int:
        """How many handlers may work at a time."""
        return sum(duty.concurrency for duty in self._duties.values())

    @property
    def done(self) -> int:
        """For how many messages handlers have ended, however."""
        return self._watchdog.done

    @property
    def busy(self) -> int:
        """How many handlers are at work."""
        return self._watchdog.busy

    @property
    def late(self) -> int:
        """How many of them go on beyond their time-outs: their threads are lost until they end."""
        return self._watchdog.late

    def _run(self) -> None:
        with ExitStack() as stack:
            queues = {name: self._store.queue(name) for name, _ in self._duties}
            poppers = [
                stack.enter_context(queues[name].popper(commit=duty.commit, types=types or None))
                for (name, types), duty in self._duties.items()
            ]
            stack.enter_context(self._watchdog.open())
            crews = [self._crew(*each) for each in zip(poppers, self._duties.values(), strict=True)]
            end = _End(sum(crew.start() for crew in crews), self._news, self._clock)
            self._is_started = True
            try:
                end.wait()
            except BaseException:  # Ctrl-C, or a signal handler that raises
                self._wind_up(poppers, end, 0.0)
                raise
            self._wind_up(poppers, end)
        if end.error:
            raise end.error

    def _wind_up(self, poppers: Sequence[Popper], end: "_End", seconds: float | None = None) -> None:
        self.is_stopping = True
        for popper in poppers:  # in threads: each waits for the database
            threading.Thread(target=popper.close, name="cassq-stop", daemon=True).start()
        if not end.wait_for_all(seconds):
            self._watchdog.give_back_all()
            end.wait_for_all(GRACE_S)

    def _crew(self, popper: Popper, duty: Duty) -> "ThreadCrew | TaskCrew":
        news = self._news

        def on_end(error: BaseException | None) -> None:
            news.put(("ended", error))

        if not _is_awaited(duty.handler):
            return ThreadCrew(popper, duty, self._watchdog, on_end)
        from cassq.worker.task_crew import TaskCrew  # noqa: PLC0415 - asyncio takes long to import

        return TaskCrew(popper, duty, self._watchdog, on_end)


def _is_awaited(handler: Callable[..., object]) -> bool:
    """Tell whether it is a coroutine function, an object that is called as one, or wraps such."""
    inner: object = handler
    while inner is not None:
        if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__):
            return True
        inner = getattr(inner, "func" if isinstance(inner, functools.partial) else "__wrapped__", None)
    return False


class _End:
    """Waits for the end of those at work.

    Attributes:
        error: why one of them ended by itself, if one did.
    """

    def __init__(self, count: int, news: "SignalQueue[tuple[str, Any]]", clock: Clock) -> None:
        self._left = count
        self._news = news
        self._clock = clock
        self._until = float("inf")
        self.error: BaseException | None = None

    def wait(self) -> None:
        """Return once the worker is to stop."""
        while self._until == float("inf"):
            self._hear(DEAF_S)

    def wait_for_all(self, seconds: float | None = None) -> bool:
        """Return True once all have ended; False when these seconds, or those of the stop, are over."""
        until = None if seconds is None else self._clock.now() + seconds
        while self._left:
            left_s = (self._until if until is None else until) - self._clock.now()
            if left_s <= 0:
                return False
            self._hear(min(left_s, DEAF_S))
        return True

    def _unasked_end(self) -> CassqError | None:
        if self._until < float("inf"):
            return None
        return ClosedError("a queue of the worker was deleted, or the store was closed: it pops no more")

    def _hear(self, seconds: float) -> None:
        """Hear one piece of news, if one comes so soon."""
        try:
            kind, value = self._news.get(timeout=seconds)
        except Empty:
            return
        if kind == "ended":
            self._left -= 1
            self.error = self.error or value or self._unasked_end()
            value = DRAIN.total_seconds()  # where one cannot go on, none is to
        self._until = min(self._until, self._clock.now() + value)
