"""Whoever writes commits.

Owns what a delivery asks of it: commits at once, or in groups, are `commits`' and `grouped_commits`'.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cassq.popping.delivery import Delivery  # it needs this module


class Committer(Protocol):
    """Whoever writes commits: at once, or in groups."""

    def commit(self, deliveries: "Sequence[Delivery]") -> None:
        """Commit deliveries that were claimed for it; raise as `Delivery.commit` says."""
        ...

    def commit_soon(self, delivery: "Delivery") -> "Future[None]":
        """Commit one that was claimed for it; the future ends as `Delivery.commit` says."""
        ...
