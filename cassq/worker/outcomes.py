"""What a handler's end means for its message.

Owns the exceptions by which a handler chooses, and what each other one comes to. What must not break: only a
handler that returns, and returns nothing that is still to be awaited, commits.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from cassq.model.arguments import to_seconds
from cassq.model.retrying import reason_of


class Reject(Exception):  # noqa: N818 - a handler's choice is no error
    """Raised by a handler to give its message up: it becomes a dead letter, whatever attempts are left.

    Args:
        reason: why, for people; the dead letter has it.
    """

    reason = ""

    def __init__(self, reason: object = "") -> None:
        super().__init__(reason)
        self.reason = str(reason)


class Retry(Exception):  # noqa: N818
    """Raised by a handler to have its message delivered again; it counts as a failed attempt.

    Args:
        after: not before so long, in seconds or as a timedelta. None: as the queue's retry settings say.
        reason: why, for people.

    Raises: InvalidOptionError: `after` is no duration.
    """

    after: timedelta | None = None
    reason = ""

    def __init__(self, after: float | timedelta | None = None, reason: object = "") -> None:
        super().__init__(reason)
        self.after = None if after is None else timedelta(seconds=to_seconds(after))
        self.reason = str(reason)


@dataclass(frozen=True, slots=True)
class Ending:
    """The call of a delivery that ends it.

    Attributes:
        verb: the name of the method.
        arguments: by name.
        is_failure: whether the handler failed, in a way that it did not choose.
    """

    verb: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    is_failure: bool = False


_COMMIT = Ending("commit")


def ending_of(error: BaseException | None) -> Ending:
    """Return how a message ends whose handler returned, or raised `error`."""
    if error is None:
        return _COMMIT
    if isinstance(error, Reject):
        return Ending("reject", {"reason": error.reason})
    if isinstance(error, Retry):
        return Ending("rollback", {"delay": error.after, "reason": error.reason})
    return Ending("rollback", {"reason": reason_of(error)}, is_failure=True)


def failure_of(error: BaseException | None) -> BaseException | None:
    """Return what a handler raised where that was not its choice."""
    return error if ending_of(error).is_failure else None


def check_done(result: object) -> None:
    """Raise `TypeError` for what a handler returned if its work has not even begun."""
    if result is None:  # as mostly
        return
    is_generator = inspect.isgenerator(result) or inspect.isasyncgen(result)
    if not (is_generator or inspect.isawaitable(result)):
        return
    if inspect.iscoroutine(result):
        result.close()  # or Python warns of it, later and elsewhere
    raise TypeError(
        f"the handler returned {result!r}, which has not run: give the worker the coroutine function itself"
    )
