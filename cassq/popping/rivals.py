"""The line of the hungry as one popper sees it: the others that wait for what it could take, or has.

Owns which of them a call is about: those that take messages of some types. Refuses to decide when to be
hungry, or whom to leave what. What must not break: a popper never wakes itself.
"""

from collections.abc import Callable, Collection, Iterable

from cassq.catalog.queue_context import QueueContext
from cassq.coordination.port import name_in_line
from cassq.model.uses import EVERY_POPPER, bits_of, types_of, uses_types, wanted_bits


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
        self._holder = holder
        self._types = tuple(types)
        self._name = self._tell_name()

    def count(self, types: Iterable[str] | None = None) -> int:
        """Return how many of them wait for messages of these types; None: of some that this popper takes."""
        return self._coordinator.hungry(self._queue, besides=self._name, types=self._bits(types))

    def count_all(self) -> int:
        """Return how many of them wait for anything."""
        return self._coordinator.hungry(self._queue, besides=self._name, types=EVERY_POPPER)

    def wake(self, count: int, types: Iterable[str] | None = None) -> int:
        """Wake up to so many of those; return how many were woken."""
        return self._coordinator.wake(self._queue, count, besides=self._name, types=self._bits(types))

    def pass_on(self, found: Collection[str] = ()) -> int:
        """Wake one of them for each type that this popper may have been woken for; return how many.

        Args:
            found: types of which it has found messages.
        """
        settings = self._context.settings
        if not uses_types(settings):
            return 0 if found else self.wake(1)
        takes = self._types or ("", *types_of(settings))
        names = [name for name in ("", *types_of(settings)) if name in takes and name not in found]
        return sum(self.wake(1, (name,)) for name in names if self.count((name,)))

    def count_looking(self, others: int, before: int) -> int:
        """Return how many of those that wait look for all that this popper waits for, too.

        Args:
            others: those that wait for some of it.
            before: those of them that stood in line before it, and take whatever it takes.
        """
        return before if uses_types(self._context.settings) else others

    def announce(self, wake: Callable[[], None], on_crowded: Callable[[], None]) -> int:
        """Join the line; see `Coordinator.announce_hunger`."""
        self._name = self._tell_name()  # somebody may have pushed the first message of a type since
        return self._coordinator.announce_hunger(self._queue, self._name, wake, on_crowded=on_crowded)

    def withdraw(self) -> None:
        """Leave the line."""
        self._coordinator.withdraw_hunger(self._queue, self._name)

    def _bits(self, types: Iterable[str] | None) -> int:
        settings = self._context.settings
        return wanted_bits(settings, self._types) if types is None else bits_of(settings, types)

    def _tell_name(self) -> str:
        wanted = wanted_bits(self._context.settings, self._types) if self._types else None
        return name_in_line(self._holder, wanted)
