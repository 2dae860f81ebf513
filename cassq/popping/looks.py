"""The looks for messages, as consumers rely on them: which began, which ended, and why the last one failed.

Owns their numbers: a consumer that asked before look 7 began may be told by look 7 that there is nothing. The
buffer's lock guards it. What must not break: the number of the last look that ended never falls.
"""

from collections.abc import Callable

from cassq.errors import CassqError, CoordinationUnavailableError, StorageUnavailableError


class Looks:
    """Looks by their numbers, from 1 on.

    Args:
        silent_service: names the coordination service while a look waits for it; else it is the database.

    Attributes:
        begun: the number of the last look that began.
        done: the highest number of a look that ended.
        trouble: why the look that ended last failed; None when it did not.
    """

    __slots__ = ("_silent_service", "begun", "done", "trouble")

    def __init__(self, silent_service: Callable[[], str | None]) -> None:
        self._silent_service = silent_service
        self.begun = 0
        self.done = 0
        self.trouble: CassqError | None = None

    def begin(self) -> int:
        """Note that a look begins; return its number."""
        self.begun += 1
        return self.begun

    def end(self, number: int, trouble: CassqError | None) -> bool:
        """Note that a look ended, and why it failed if it did; True when that is news."""
        is_news = trouble is not None and type(trouble) is not type(self.trouble)
        self.trouble = trouble
        self.done = max(self.done, number)
        return is_news

    def no_answer(self, waited_s: float) -> CassqError:
        """Return what to tell a consumer for whom no look ended in time."""
        words = (
            f"no look at the queue ended within {waited_s:.2g} s, so it is not known whether messages wait"
        )
        service = self._silent_service()
        if service:
            return CoordinationUnavailableError(f"{words}: {service} does not answer")
        return StorageUnavailableError(f"{words}: the database does not answer, or is slow")
