"""Which queues have labels of their own.

Owns the bound: a program with a queue for each user must not make a series for each of them.
"""

import threading

#: So many queues have a label of their own; the others share one.
QUEUES_MAX = 500
OTHER = "other"


class QueueLabels:
    """The names that stand in a metric's label `queue`; safe to use from many threads."""

    def __init__(self, queues_max: int = QUEUES_MAX) -> None:
        self._queues_max = queues_max
        self._names: set[str] = set()
        self._adding = threading.Lock()

    def label(self, queue: str) -> str:
        """Return the name of a queue, or `other` where as many others came first."""
        if queue in self._names:
            return queue
        with self._adding:
            if len(self._names) < self._queues_max:
                self._names.add(queue)
        return queue if queue in self._names else OTHER
