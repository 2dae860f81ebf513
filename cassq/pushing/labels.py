"""The labels of what callers push, or move: what they ask for, made ready for the queue.

Owns that a queue's record tells of such messages before there is one, that what has a delay is dated, and
what has a key gets its slot. Refuses to push. What must not break: nothing is pushed, or moved, before the
record tells of such messages.
"""

from collections.abc import Callable
from datetime import timedelta

from cassq.catalog.first_uses import FirstUses
from cassq.catalog.queue_context import QueueContext
from cassq.errors import InvalidOptionError
from cassq.model.key import slot_of
from cassq.model.label import Label, to_delay, to_label
from cassq.model.options import PushOptions
from cassq.model.schedule import SOON
from cassq.model.uses import is_told
from cassq.pushing.due_clock import DueClock


class Labels:
    """Makes the labels of one queue's messages.

    Args:
        first_uses: has the record tell.
        due_clock: the database's clock.
        check_usable: raises where the queue is closed.
    """

    def __init__(
        self,
        context: QueueContext,
        first_uses: FirstUses,
        due_clock: DueClock,
        check_usable: Callable[[], None],
    ) -> None:
        self._context = context
        self._first_uses = first_uses
        self._due_clock = due_clock
        self._check_usable = check_usable

    def of_push(self, options: PushOptions, timeout: float | timedelta) -> Label:
        """Return the label of messages that are pushed with these options."""
        label = self.placed(to_label(options))
        self._check_usable()
        if not is_told(self._context.settings, label):
            self._first_uses.tell([label], timeout)
        return self._due_clock.dated(label, to_delay(options), timeout) if label.due_class else label

    def is_ready(self, options: PushOptions) -> bool:
        """Tell whether `of_push` reads nothing for these options, and changes no record."""
        label = self.placed(to_label(options))
        return is_told(self._context.settings, label) and (not label.due_class or self._due_clock.is_fresh)

    def placed(self, label: Label) -> Label:
        """Return the label with the slot that its key has in this queue."""
        return (
            label._replace(slot=slot_of(label.key, self._context.settings.key_slots)) if label.key else label
        )

    def of_move(self, options: PushOptions, timeout: float | timedelta) -> Label:
        """Return the label of a message that is to have another priority, or another due time.

        Args:
            options: a priority; or a delay or a due time.
        """
        label = to_label(options)
        self._check_usable()
        is_dated = "priority" not in options
        if is_dated and options["delay"] is None and options["due"] is None:
            raise InvalidOptionError("give a delay or a due time: delay=timedelta(0) is at once")
        self._first_uses.tell([label._replace(due_class=SOON)], timeout, "not moved")
        return self._due_clock.dated(label, to_delay(options), timeout) if is_dated else label
