"""Requests in the order in which lanes take them: the highest priority first, then the oldest first.

Refuses to know who waits; the buffer's lock guards it. What must not break: of one priority none overtakes
another.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from cassq.pushing.push_request import PushRequest


class RequestLines:
    """A line for each priority that was ever pushed with."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[int, deque[PushRequest]] = {0: deque()}

    def __bool__(self) -> bool:
        return any(self._lines.values())

    def __iter__(self) -> Iterator[PushRequest]:
        return chain.from_iterable(self._lines.values())

    def append(self, request: PushRequest) -> None:
        """Append a request to the line of its priority."""
        priority = request.label.priority
        if priority not in self._lines:
            lines = {**self._lines, priority: deque[PushRequest]()}
            self._lines = dict(sorted(lines.items(), reverse=True))
        self._lines[priority].append(request)

    def next_line(self) -> deque[PushRequest]:
        """Return the line whose turn it is; an empty one where nothing waits."""
        return next(filter(None, self._lines.values()), deque())

    def cut(self, is_meant: Callable[[PushRequest], bool]) -> list[PushRequest]:
        """Take those out that are meant, wherever they stand."""
        meant = [request for request in self if is_meant(request)]
        if meant:
            for priority, line in self._lines.items():
                self._lines[priority] = deque(request for request in line if not is_meant(request))
        return meant
