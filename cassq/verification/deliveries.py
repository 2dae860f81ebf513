"""Deliveries, pieced together from what their holders noted.

Owns when one delivery of a message forbids another one after it. Pure. What must not break: a lease that was
alive, and a commit that returned, are held against whatever comes after them.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from cassq.verification.ledger import Line
from cassq.verification.put_back_rules import Place

_FOREVER = float("inf")


@dataclass(slots=True)
class NotedDelivery:
    """One delivery, pieced together from its holder's lines.

    `until` is when the lease ended for its holder, as known at the delivery or after the last extension that
    was noted: it never ended earlier, except by a rollback.
    """

    line: Line
    until: float
    freed_at: float = _FOREVER
    is_committing: bool = False
    is_given_up: bool = False
    commits: int = 0

    @property
    def place(self) -> Place:
        """Which message it is of, among those of one name."""
        return self.line.pipe, self.line.seq

    @property
    def free_at(self) -> float:
        """Since when it is in its holder's hands no longer."""
        return min(self.freed_at, self.until)

    def __str__(self) -> str:
        line = self.line
        return f"{line.who} (attempt {line.attempt}) at {line.at:.3f} until {self.until:.3f}"


def by_place(each: Iterable[NotedDelivery]) -> dict[Place, list[NotedDelivery]]:
    """Return the deliveries of one name by message; all together where somebody noted no place."""
    found: defaultdict[Place, list[NotedDelivery]] = defaultdict(list)
    for one in each:
        found[one.place].append(one)
    return {("", 0): [one for some in found.values() for one in some]} if ("", 0) in found else found


def objection(before: NotedDelivery, after: NotedDelivery) -> str:
    """Return why a message may not be delivered again after an earlier delivery; empty where it may."""
    if before.line.attempt == after.line.attempt:
        return "the same attempt twice"
    if before.commits:
        return "it was committed"
    if before.is_given_up:
        return "it was given up"
    if before.freed_at <= after.line.at:
        return ""
    return "the lease was alive" if after.line.at < before.until else ""
