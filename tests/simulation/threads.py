"""What `threading`, `queue` and `concurrent.futures` are in a simulated history.

Owns stand-ins with the same behaviour over the scheduler's tasks, and their installation in the modules of
cassq. The library's own code runs as it is; only what it imported from the standard library is replaced.
"""

import logging
import secrets
import sys
import threading
import time
import types
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures import Future as RealFuture
from concurrent.futures import wait as real_wait
from functools import cache
from queue import Empty
from queue import SimpleQueue as RealSimpleQueue
from typing import Any, Self

from greenlet import GreenletExit
from scheduler import EPOCH_S, SimulationError, Task, world

from cassq.model.ids import TICKS_BEFORE_1970, TICKS_PER_MS
from cassq.runtime.fork_guard import process_name


class Lock:
    """A lock that one task holds; others wait in turn."""

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        here = world()
        here.maybe_switch()
        while self._owner is not None:
            if not blocking:
                return False
            task = here.current
            self._waiting.append(task)  # type: ignore[arg-type]
            # One that a release took off the line as its time was up was woken: nobody else was.
            if not here.park(None if timeout < 0 else timeout) and task in self._waiting:
                self._waiting.remove(task)  # type: ignore[arg-type]
                return False
        self._owner = here.current
        return True

    def release(self) -> None:
        self._owner = None
        if self._waiting:
            world().unpark(self._waiting.popleft())

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class RLock(Lock):
    """A lock that its holder may take again."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def _is_owned(self) -> bool:
        return self._owner is not None and self._owner is world().current

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._owner is not None and self._owner is world().current:
            self._depth += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._depth = 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            super().release()

    def let_go(self) -> int:
        """Release it however often it is held; return how often that was."""
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def take_back(self, depth: int) -> None:
        self.acquire()
        self._depth = depth


class Condition:
    """A condition variable."""

    def __init__(self, lock: RLock | None = None) -> None:
        self._lock = lock or RLock()
        self._waiting: list[Task] = []

    def acquire(self, *args: Any) -> bool:
        return self._lock.acquire(*args)

    def release(self) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        here = world()
        task = here.current
        if task is None:
            raise SimulationError("the hub must not wait")
        self._waiting.append(task)
        depth = self._lock.let_go()
        try:
            was_woken = here.park(timeout)
            if task in self._waiting:
                self._waiting.remove(task)
        finally:
            if not here.is_over:
                self._lock.take_back(depth)
        return was_woken

    def notify(self, n: int = 1) -> None:
        for task in self._waiting[:n]:
            self._waiting.remove(task)
            world().unpark(task)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


class Thread:
    """A thread of the process that makes it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, tuple(args), kwargs or {}
        self.name = name or "thread"
        self.daemon = daemon
        self._task: Task | None = None
        current = world().current
        if current is None:
            raise SimulationError("the hub makes no threads")
        self._process = current.process

    def start(self) -> None:
        self._task = world().spawn(self._process, self.name, self._run)
        self._task.thread = self

    def _run(self) -> None:
        if self._target:
            self._target(*self._args, **self._kwargs)

    def join(self, timeout: float | None = None) -> None:
        here = world()
        deadline = None if timeout is None else here.now + timeout
        while self.is_alive():
            left = None if deadline is None else deadline - here.now
            if left is not None and left <= 0:
                return
            self._task.joiners.append(here.current)  # type: ignore[union-attr, arg-type]
            here.park(left)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_done


class Future(RealFuture):  # type: ignore[type-arg]
    """A future that tasks wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = Condition()  # type: ignore[assignment]


def wait(futures: Iterable[Future], timeout: float | None = None) -> None:
    for future in futures:
        try:
            future.exception(timeout)
        except GreenletExit:
            raise
        except BaseException:
            continue


class SimpleQueue:
    """A queue between tasks."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._items: deque[Any] = deque()

    def put(self, item: object) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self) -> Any:
        with self._changed:
            while not self._items:
                self._changed.wait()
            return self._items.popleft()

    def get_nowait(self) -> Any:
        with self._changed:
            if not self._items:
                raise Empty
            return self._items.popleft()

    def empty(self) -> bool:
        return not self._items


class InlineExecutor(Executor):
    """Does the work at once, in the caller's task."""

    def __init__(self, *_args: object, **_named: object) -> None:
        pass

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_named: object) -> Iterator[Any]:
        return map(fn, *iterables)


def _get_ident() -> int:
    current = world().current
    return current.number if current else 0


def _current_thread() -> object:
    current = world().current
    return current.thread if current else None


class _Local:
    """A `threading.local` with the same values to begin with as the one that it stands for."""

    def __init__(self, real: threading.local) -> None:
        object.__setattr__(self, "_real", real)

    def __getattr__(self, name: str) -> object:
        current = world().current
        if current and name in current.here:
            return current.here[name]
        return getattr(type(self._real), name)

    def __setattr__(self, name: str, value: object) -> None:
        if current := world().current:
            current.here[name] = value


_threading = types.SimpleNamespace(
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Thread=Thread,
    get_ident=_get_ident,
    current_thread=_current_thread,
)


def _randbits(bits: int) -> int:
    return world().dice.getrandbits(bits)


_secrets = types.SimpleNamespace(randbits=_randbits)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(int=world().dice.getrandbits(128), version=4)


#: 100 ns intervals between the beginning of UUID time and that of the world.
_UUID_EPOCH = TICKS_BEFORE_1970 + EPOCH_S * 1000 * TICKS_PER_MS


def _uuid1(node: int, clock_seq: int) -> uuid.UUID:
    here = world()
    process = here.current.process if here.current else None
    seconds = here.now + (process.wall_offset_s if process else 0.0)
    ticks = _UUID_EPOCH + int(seconds * 10_000_000)
    fields = (ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF)
    return uuid.UUID(fields=(*fields, clock_seq >> 8 & 0x3F, clock_seq & 0xFF, node), version=1)


def _process_name() -> str:
    current = world().current
    return current.process.name if current else "nobody"


_REPLACED: dict[object, object] = {
    id(process_name): _process_name,
    id(threading): _threading,
    id(secrets): _secrets,
    id(uuid.uuid1): _uuid1,
    id(uuid.uuid4): _uuid4,
    id(RealFuture): Future,
    id(real_wait): wait,
    id(RealSimpleQueue): SimpleQueue,
    id(ThreadPoolExecutor): InlineExecutor,
    id(time): types.SimpleNamespace(perf_counter=lambda: 0.0),
}


class _ErrorsAreTrouble(logging.Handler):
    """What cassq logs as an error is something that nobody expected."""

    def emit(self, record: logging.LogRecord) -> None:
        if world().is_over:
            return
        error = record.exc_info[1] if record.exc_info else None
        world().fail(f"logged: {record.getMessage()}: {error!r}", error)


@cache
def install() -> None:
    """Replace what cassq's modules imported of threads, time and chance, for good.

    A process that simulates does nothing else.
    """
    for module_name, module in sorted(sys.modules.items()):
        if module_name != "cassq" and not module_name.startswith("cassq."):
            continue
        for name, value in list(vars(module).items()):
            if id(value) in _REPLACED:
                setattr(module, name, _REPLACED[id(value)])
            elif isinstance(value, threading.local):
                setattr(module, name, _Local(value))
    log = logging.getLogger("cassq")
    log.setLevel(logging.ERROR)
    log.propagate = False
    log.addHandler(_ErrorsAreTrouble(logging.ERROR))
