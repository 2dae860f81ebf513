"""The lines of hungry poppers as ZooKeeper last told them, and the watches that keep them so.

Owns which lines are watched, how often each is looked at, and how old an answer may be. Refuses to know which
nodes are this process's own. What must not break: a line that somebody relies on without asking is watched.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType

from cassq.coordination.zookeeper.announcement import number_of
from cassq.coordination.zookeeper.session import ZooKeeperSession
from cassq.errors import AccessDeniedError, CoordinationUnavailableError
from cassq.runtime.clock import Clock

#: The longer the line, the less often it is looked at: so long for each popper in it.
LOOK_PER_POPPER_S = 0.006

#: For so long after a pusher asked about a line it stays watched.
INTEREST_S = 60.0

#: A popper that asked how many are hungry does not ask again for so long; of a long line, for longer.
FRESH_S = 0.05
FRESH_MAX_S = 0.5


class LineHost(Protocol):
    """Whoever has poppers of its own in the lines."""

    def is_alone(self, queue: str) -> bool:
        """Tell whether a popper of this process wants to hear of the next one to come; the lock is held."""
        ...

    def on_line_seen(self, queue: str) -> None:
        """Hear that a line was told anew."""
        ...


class SeenLines:
    """Every line that this process has to do with, by queue.

    Args:
        root: the node above the queues'.
        lock: the host's, so that a line and what stands in it change together.
        host: hears of changes.
    """

    def __init__(
        self, session: ZooKeeperSession, root: str, clock: Clock, lock: threading.RLock, host: LineHost
    ) -> None:
        self._session = session
        self._root = root
        self._clock = clock
        self._lock = lock
        self._host = host
        self._lines: dict[str, tuple[str, ...]] = {}
        # One for each queue: what kazoo is given again is called once.
        self._watches: dict[str, Callable[[Any], None]] = {}
        self._looked_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        self._interest_ends: dict[str, float] = {}

    def of(self, queue: str) -> tuple[str, ...]:
        """Return a line as it was last told, who waited longest first."""
        return self._lines.get(queue, ())

    def drop(self, queue: str, *nodes: str) -> None:
        """Take nodes out of a line that are about to go."""
        with self._lock:
            self._lines[queue] = tuple(each for each in self._lines.get(queue, ()) if each not in nodes)

    def clear(self) -> None:
        """Forget who stands in the lines, with the lock held; the watches are set again by `look_again`."""
        self._lines = dict.fromkeys(self._lines, ())

    def path(self, queue: str, node: str = "") -> str:
        """Return the path of a line, or of a node in it."""
        return f"{self._root}/{queue}/{node}" if node else f"{self._root}/{queue}"

    def ask(self, queue: str) -> None:
        """Ask for a line, and note the answer."""
        self._asked_at[queue] = self._clock.now()
        self._take_line(queue, list(self.read(queue)))

    def read(self, queue: str) -> tuple[str, ...]:
        """Ask for a line."""
        try:
            nodes = self._session.answer(self._session.client.get_children_async(self.path(queue)))
        except NoNodeError:
            return ()
        return tuple(sorted(nodes, key=number_of))

    def is_fresh(self, queue: str) -> bool:
        """Tell whether the line was asked for a moment ago."""
        fresh_s = min(max(FRESH_S, self._pause_s(queue)), FRESH_MAX_S)
        return self._clock.now() - self._asked_at.get(queue, float("-inf")) < fresh_s

    def note_interest(self, queue: str) -> None:
        """Watch a line for a while: a pusher has no time to ask."""
        self._interest_ends[queue] = self._clock.now() + INTEREST_S
        self.watch(queue)

    def is_of_interest(self, queue: str) -> bool:
        """Tell whether somebody relies on a line being watched."""
        has_pusher = self._clock.now() < self._interest_ends.get(queue, float("-inf"))
        with self._lock:
            return has_pusher or self._host.is_alone(queue)

    def watch(self, queue: str) -> None:
        """Watch a line from now on, without waiting for it."""
        if queue in self._watches:
            return
        with self._lock:
            if queue in self._watches:
                return
            self._watches[queue] = partial(self._on_change, queue)
            self._lines.setdefault(queue, ())
        self.look_soon(queue)

    def look_soon(self, queue: str) -> None:
        """Look at a line that is watched, on the session's own thread."""
        self._session.call_soon(partial(self._look, queue))

    def look_again(self) -> None:
        """Look at all that are watched, and set their watches again."""
        with self._lock:
            queues = list(self._watches)
        for queue in queues:
            self._look(queue)

    def _look(self, queue: str) -> None:
        if not self._session.is_connected:
            return  # `look_again` does
        watch = self._watches.get(queue)
        if watch is None:
            return
        self._looked_at[queue] = self._clock.now()
        reply = self._session.client.get_children_async(self.path(queue), watch=watch)
        reply.rawlink(partial(self._on_line, queue))

    def _look_for_first(self, queue: str) -> None:
        try:
            self._session.ensure(self.path(queue), is_again=True)
        except (CoordinationUnavailableError, AccessDeniedError):
            with self._lock:
                self._watches.pop(queue, None)  # whoever asks next tries again
            raise
        self._look(queue)

    def _on_change(self, queue: str, event: Any) -> None:  # noqa: ANN401 (kazoo has no types)
        if event.type == EventType.NONE:
            return
        with self._lock:
            if not self.is_of_interest(queue):
                self._watches.pop(queue, None)  # whoever pushes or waits next watches again
                return
        # Every seat hears of every change in the line. Where many wait, one look serves several changes.
        left = self._looked_at.get(queue, 0.0) + self._pause_s(queue) - self._clock.now()
        if left <= 0:
            self._look(queue)
            return
        timer = threading.Timer(left, self._look, (queue,))
        timer.daemon = True
        timer.start()

    def _on_line(self, queue: str, reply: Any) -> None:  # noqa: ANN401
        if isinstance(reply.exception, NoNodeError):
            self._session.call_soon(partial(self._look_for_first, queue))
        elif reply.exception is None:
            self._take_line(queue, reply.value)

    def _take_line(self, queue: str, nodes: list[str]) -> None:
        with self._lock:
            self._lines[queue] = tuple(sorted(nodes, key=number_of))
        self._host.on_line_seen(queue)

    def _pause_s(self, queue: str) -> float:
        return LOOK_PER_POPPER_S * len(self._lines.get(queue, ()))
