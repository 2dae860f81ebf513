"""The coordinator of a store that names no coordination service: pushes go on, pops say what is missing."""

from collections.abc import Callable, Mapping
from uuid import UUID

from cassq.errors import InvalidOptionError

_MISSING = (
    "this store names no coordination service, so it can push but not pop: "
    "add ?zookeeper=HOST:PORT to the URL"
)


class AbsentCoordinator:
    """Knows nobody and grants nothing."""

    def __str__(self) -> str:
        return "no coordination service"

    def may_take(self) -> bool:
        """Raise: popping without coordination is a mistake in the URL, not an outage."""
        raise InvalidOptionError(_MISSING)

    def claim(self, queue: str, pipe: UUID, holder: str) -> bool:  # noqa: ARG002 - the port's words
        """Raise, as `may_take`."""
        raise InvalidOptionError(_MISSING)

    def release(self, queue: str, pipe: UUID, holder: str) -> None:
        """Do nothing: nothing is held."""

    def is_held(self, queue: str, pipe: UUID, holder: str) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def holders(self, queue: str) -> Mapping[UUID, str]:  # noqa: ARG002
        """Return nobody."""
        return {}

    def announce_hunger(
        self,
        queue: str,  # noqa: ARG002
        popper: str,  # noqa: ARG002
        wake: Callable[[], None],  # noqa: ARG002
        *,
        on_crowded: Callable[[], None] | None = None,  # noqa: ARG002
    ) -> int:
        """Return 0: nobody hears it."""
        return 0

    def withdraw_hunger(self, queue: str, popper: str) -> None:
        """Do nothing."""

    def hungry(self, queue: str, besides: str = "", *, types: int = 0) -> int:  # noqa: ARG002
        """Return 0: poppers of other processes find what is pushed by polling."""
        return 0

    def wake(self, queue: str, count: int, besides: str = "", *, types: int = 0) -> int:  # noqa: ARG002
        """Return 0."""
        return 0

    def close(self) -> None:
        """Do nothing."""
