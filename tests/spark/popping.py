"""Popping a known number of messages, however many a single pop gives."""

from cassq import Delivery, Popper


def pop_exactly(popper: Popper, count: int) -> list[Delivery]:
    """Pop `count` messages; fails if the queue has fewer."""
    popped: list[Delivery] = []
    while len(popped) < count:
        more = popper.pop_many(count - len(popped), timeout=5)
        assert more, f"{count} messages wanted, and only {len(popped)} found"
        popped += more
    return popped
