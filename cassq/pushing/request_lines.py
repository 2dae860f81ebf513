"""Requests in the order in which lanes take them: the most urgent and the oldest in turn.

Refuses to know who waits; the buffer's lock guards it. What must not break: of one kind none overtakes
another, and however many urgent ones come, half of all turns are those of who came first. What has keys of
one slot always goes to the same lane, or two of them would be two sources of one key.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, count

from cassq.model.key import NO_SLOT
from cassq.model.label import UNLABELLED, Label
from cassq.pushing.push_request import PushRequest


class RequestLines:
    """A line for each priority, type and slot that was ever pushed with.

    Args:
        lanes: how many take turns, numbered from 0 on.
    """

    __slots__ = ("_is_turn_of_oldest", "_lanes", "_lines", "_numbers")

    def __init__(self, lanes: int = 1) -> None:
        self._lanes = lanes
        self._numbers = count()
        self._is_turn_of_oldest = False
        self._lines: dict[Label, deque[PushRequest]] = {UNLABELLED: deque()}  # the most urgent first

    def __bool__(self) -> bool:
        return any(self._lines.values())

    def __iter__(self) -> Iterator[PushRequest]:
        return chain.from_iterable(self._lines.values())

    def append(self, request: PushRequest) -> None:
        """Append a request to the line of its kind."""
        kind = request.label.of_pipe
        if kind not in self._lines:
            lines = {**self._lines, kind: deque[PushRequest]()}
            self._lines = dict(sorted(lines.items(), reverse=True))
        request.number = next(self._numbers)
        self._lines[kind].append(request)

    def has_for(self, lane: int) -> bool:
        """Tell whether anything waits that a lane may take."""
        return any(self._lines_for(lane))

    def _lines_for(self, lane: int) -> Iterator[deque[PushRequest]]:
        for kind, line in self._lines.items():
            if kind.slot == NO_SLOT or kind.slot % self._lanes == lane:
                yield line

    def take_turn(self, lane: int = 0) -> deque[PushRequest]:
        """Return the line whose turn it is, which ends the turn; an empty one where none is for the lane."""
        if len(self._lines) == 1:
            return self._lines[UNLABELLED]
        waiting = [line for line in self._lines_for(lane) if line]
        if len(waiting) < 2:
            return waiting[0] if waiting else deque()
        is_of_oldest, self._is_turn_of_oldest = self._is_turn_of_oldest, not self._is_turn_of_oldest
        if not is_of_oldest:
            highest = waiting[0][0].label.priority
            waiting = [line for line in waiting if line[0].label.priority == highest]
        return min(waiting, key=lambda line: line[0].number)

    def has_late(self, now: float) -> bool:
        """Tell whether who waits longest in a line waits too long; callable without the lock.

        Raises: IndexError: another thread took it meanwhile.
        """
        return any(line[0].deadline <= now for line in self._lines.values() if line)

    def cut(self, is_meant: Callable[[PushRequest], bool]) -> list[PushRequest]:
        """Take those out that are meant, wherever they stand."""
        meant = [request for request in self if is_meant(request)]
        if meant:
            for kind, line in self._lines.items():
                self._lines[kind] = deque(request for request in line if not is_meant(request))
        return meant
