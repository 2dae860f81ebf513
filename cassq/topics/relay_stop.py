"""One partition of a subscription in the hands of an operator, who relays nothing.

What must not break: the pipe that a relay was filling has ended before relays go on elsewhere, or nowhere.
"""

from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CorruptError, PartitionLostError
from cassq.runtime.clock import rest
from cassq.topics.relayed_partition import NOBODY, OPERATOR, RelayedPartition
from cassq.topics.topic_context import TopicContext
from cassq.topics.wishes import Wishes

#: The pause while a popper holds a window.
WINDOW_REST_S = 0.1


class RelayStop(RelayedPartition):
    """What stops relays of a partition, or has them go on elsewhere.

    Args:
        target: the queue that they fill.
        group: the id of the subscription's group.
        is_end: no relay is to take a partition over after it.
    """

    def __init__(self, context: TopicContext, target: QueueContext, group: UUID, *, is_end: bool) -> None:
        member, nothing = NOBODY if is_end else OPERATOR, Wishes(lambda _: False)
        super().__init__(context, target, group, member, wishes=nothing, on_pushed=lambda _: None)

    def stop_at(self, partition: int, offset: int | None = None) -> bool:
        """Have relays go on at another offset, and nothing come that was under way.

        Args:
            offset: None: nobody goes on.

        Returns: False: others came between.
        """
        try:
            if not self.take_over(partition):
                return False
            while self._progress.pipe and self._is_in_use():
                rest(self._context.clock, WINDOW_REST_S)  # a popper holds a window
            if offset is not None or self._progress.pipe:
                self._write(offset or self._progress.next, None)
        except PartitionLostError:
            return False
        return True

    def _is_in_use(self) -> bool:
        """Leave the named pipe; tell whether it could not be left yet. One that is damaged tells nothing."""
        try:
            self._leave()
        except CorruptError:
            return False
        return self._progress.pipe is not None
