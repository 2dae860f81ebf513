"""A queue that a signal handler may put into, while its own thread waits for it.

Owns that wait. What must not break: it ends when its time is over, whatever a handler does meanwhile. Where a
handler runs until then, `SimpleQueue.get` of CPython 3.11 goes on with the time that is left, which is below
zero, and to it that means for ever.
"""

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class SignalQueue(Generic[Item]):
    """What one thread waits for, and any thread or signal handler puts."""

    def __init__(self) -> None:
        self._items: SimpleQueue[Item] = SimpleQueue()
        self._bell = threading.Lock()  # free where there may be something
        self._bell.acquire()

    def put(self, item: Item) -> None:
        """Add an item, and wake who waits; never waits."""
        self._items.put(item)
        with suppress(RuntimeError):  # it is free already
            self._bell.release()

    def get(self, timeout: float) -> Item:
        """Return the next item.

        Raises: Empty: none came; it may be told early.
        """
        with suppress(Empty):
            return self._items.get_nowait()
        self._bell.acquire(timeout=timeout)
        return self._items.get_nowait()
