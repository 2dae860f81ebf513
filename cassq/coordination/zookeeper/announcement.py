"""A hungry popper's node in ZooKeeper: its name, and who is told when it goes."""

from collections.abc import Callable
from dataclasses import dataclass

_DIGITS = 10  # ZooKeeper's own format of a sequential node's number


def popper_of(node: str) -> str:
    """Return whose node it is."""
    return node[: -_DIGITS - 1]


def number_of(node: str) -> str:
    """Return its place in the line, as text that sorts."""
    return node[-_DIGITS:]


@dataclass(slots=True, eq=False)
class Announcement:
    """A popper of this process that waits; it stands as long as `node` does."""

    node: str
    wake: Callable[[], None]
    on_crowded: Callable[[], None] | None
    is_crowded: bool = False
