"""The line of the hungry as one popper sees it: the others that wait for what it could take, or has.

Owns which of them a call is about: those that take messages of some types. Refuses to decide when to be
hungry, or whom to leave what. What must not break: a popper never wakes itself.
"""

from collections.abc import Callable, Iterable

from cassq.catalog.queue_context import QueueContext
from cassq.coordination.port import name_in_line
from cassq.model.uses import bits_of


class Rivals:
    """The other poppers of one queue.

    Args:
        holder: this popper.
        types: of the messages that it takes; none for all.
    """

    def __init__(self, context: QueueContext, holder: str, types: Iterable[str] = ()) -> None:
        self._context = context
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._types = bits_of(context.settings, types)
        self._name = name_in_line(holder, self._types)

    def count(self, types: Iterable[str] | None = None) -> int:
        """Return how many of them wait for messages of these types; None: of some that this popper takes."""
        return self._coordinator.hungry(self._queue, besides=self._name, types=self._bits(types))

    def wake(self, count: int, types: Iterable[str] | None = None) -> int:
        """Wake up to so many of those; return how many were woken."""
        return self._coordinator.wake(self._queue, count, besides=self._name, types=self._bits(types))

    def announce(self, wake: Callable[[], None], on_crowded: Callable[[], None]) -> int:
        """Join the line; see `Coordinator.announce_hunger`."""
        return self._coordinator.announce_hunger(self._queue, self._name, wake, on_crowded=on_crowded)

    def withdraw(self) -> None:
        """Leave the line."""
        self._coordinator.withdraw_hunger(self._queue, self._name)

    def _bits(self, types: Iterable[str] | None) -> int:
        return self._types if types is None else bits_of(self._context.settings, types)
