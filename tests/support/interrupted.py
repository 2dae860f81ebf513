"""A storage between whose calls something happens: a failure, a death, or what somebody else does.

Owns that it happens once, beside the next call of a name. Refuses to choose which call that is.
"""

from collections.abc import Callable
from typing import Any

from cassq.errors import OutcomeUnknownError, StorageUnavailableError


class Interrupted:
    """A storage of which a call may do something else before it is carried out, or after.

    Attributes:
        before, after: by name of a call what the next one does besides; it is given what the call is given.
    """

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.before: dict[str, Callable[..., object]] = {}
        self.after: dict[str, Callable[..., object]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            self.before.pop(name, _go_on)(*values, **named)
            answer = getattr(self._storage, name)(*values, **named)
            self.after.pop(name, _go_on)(*values, **named)
            return answer

        return call


class Killed(BaseException):
    """Ends a call as the death of its process does."""


def die(*_: object, **__: object) -> None:
    """End the process."""
    raise Killed


def lose(*_: object, **__: object) -> None:
    """Lose the question, or the answer."""
    raise OutcomeUnknownError("lost")


def refuse(*_: object, **__: object) -> None:
    """Be out of reach."""
    raise StorageUnavailableError("away")


def _go_on(*_: object, **__: object) -> None:
    pass
