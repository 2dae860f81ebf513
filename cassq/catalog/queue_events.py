"""What happens in one queue, in the form in which an observer is told of it.

Owns how a call becomes an event. Decides nothing: there is one only where the store has an observer.
"""

from collections.abc import Callable, Mapping

from cassq.model.events import (
    CommitsFailed,
    Committed,
    Extended,
    Popped,
    Pushed,
    Reaped,
    Rejected,
    RolledBack,
    code_of,
)
from cassq.runtime.clock import Clock
from cassq.runtime.event_buffer import EventBuffer


class QueueEvents:
    """Notes the events of one queue.

    Attributes:
        now: reads the clock; what it returned as a call began is what the other methods take as `begun`.
    """

    def __init__(self, queue: str, buffer: EventBuffer, clock: Clock) -> None:
        self._queue = queue
        self._buffer = buffer
        self._note = buffer.note
        self.now: Callable[[], float] = clock.now

    def note_pushed(self, begun: float, count: int, size: int, error: BaseException | None = None) -> None:
        """Note the end of a push; see `Pushed`."""
        self._note(Pushed(self._queue, count, size, self.now() - begun, code_of(error)))

    def note_popped(
        self, begun: float, count: int, pushed_at_ms: int | None, error: BaseException | None = None
    ) -> None:
        """Note the end of a pop.

        Args:
            pushed_at_ms: when the oldest message was pushed, by the database's clock.
        """
        age_s = None if pushed_at_ms is None else self._buffer.age_of(pushed_at_ms)
        self._note(Popped(self._queue, count, self.now() - begun, age_s, code_of(error)))

    def note_committed(self, begun: float, count: int, error: BaseException | None = None) -> None:
        """Note the end of a commit; see `Committed`."""
        self._note(Committed(self._queue, count, self.now() - begun, code_of(error)))

    def note_returned(
        self, begun: float, count: int, *, is_counted: bool, is_written: bool, error: BaseException | None
    ) -> None:
        """Note the end of a rollback; see `RolledBack`."""
        seconds = self.now() - begun
        self._note(RolledBack(self._queue, count, seconds, is_counted, is_written, code_of(error)))

    def note_rejected(
        self, begun: float, count: int, *, is_written: bool, error: BaseException | None
    ) -> None:
        """Note the end of a rejection; see `Rejected`."""
        self._note(Rejected(self._queue, count, self.now() - begun, is_written, code_of(error)))

    def note_extended(self, begun: float, error: BaseException | None = None) -> None:
        """Note the end of a consumer's `extend`; see `Extended`."""
        self._note(Extended(self._queue, self.now() - begun, code_of(error)))

    def note_reaped(self, begun: float, figures: Mapping[str, int], error: BaseException | None) -> None:
        """Note the end of a pass of the reaper.

        Args:
            figures: by name, those of `Reaped`.
        """
        self._note(Reaped(self._queue, self.now() - begun, **figures, error=code_of(error)))

    def note_commits_failed(self, count: int, error: Exception) -> None:
        """Note that grouped commits failed; see `CommitsFailed`."""
        self._note(CommitsFailed(self._queue, count, code_of(error) or ""))
