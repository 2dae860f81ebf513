"""Has a queue's record say what its messages have, before the first one has it.

Owns how long that is tried. Refuses to know what is pushed then. What must not break: nobody goes on before
the record says so.
"""

from collections.abc import Callable, Collection
from datetime import timedelta

from cassq.catalog.cached_record import CachedRecord
from cassq.errors import OutcomeUnknownError, StorageUnavailableError
from cassq.model.arguments import to_seconds
from cassq.model.label import Label
from cassq.model.uses import is_told, with_uses
from cassq.runtime.clock import Clock, rest
from cassq.runtime.deadline import Deadline
from cassq.runtime.reentry import check_may_wait

#: So long rests who could not change the queue's record.
RETRY_S = 0.1


class FirstUses:
    """What one queue is used with for the first time.

    Args:
        has_given_up: tells whether to try no longer.
    """

    def __init__(self, record: CachedRecord, clock: Clock, has_given_up: Callable[[], bool]) -> None:
        self._record = record
        self._clock = clock
        self._has_given_up = has_given_up

    def tell(self, labels: Collection[Label], timeout: float | timedelta, undone: str = "not pushed") -> None:
        """Return once the record says that there are messages with these labels.

        Args:
            undone: what an error says that did not happen.

        Raises:
            StorageUnavailableError: it could not be changed in time.
            InvalidOptionError: the queue would have too many types.
        """
        if all(is_told(self._record.settings, label) for label in labels):
            return
        check_may_wait("the first push with a ttl, a priority, a type, a key or a due time")
        deadline = self._clock.now() + to_seconds(timeout)
        while True:
            try:
                with Deadline(deadline):
                    self._record.change(lambda record: with_uses(record, *labels))
            except (StorageUnavailableError, OutcomeUnknownError) as error:
                left_s = deadline - self._clock.now()
                if left_s <= 0 or self._has_given_up():
                    raise StorageUnavailableError(f"{undone}: {error}") from error
                rest(self._clock, min(RETRY_S, left_s))
            else:
                return
