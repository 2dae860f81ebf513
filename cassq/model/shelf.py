"""Which of a queue's lists a pipe stands in.

Owns the names. A pipe stands in one of them, but for the moment in which it moves on: then in two. Who looks
for a pipe that may move reads the lists in the order of `MOVING`, and so never misses it.
"""

from enum import Enum

from cassq.model.key import NO_SLOT
from cassq.model.schedule import is_pile


class Shelf(Enum):
    """A list of pipes.

    Attributes:
        READY: what poppers see: messages that may be delivered at once.
        DUE: what poppers see, too, where messages of the queue have due times: they are near.
        KEYED: what poppers see, too, where messages of the queue have keys. None of these moves.
        SCHEDULED: messages that are due later. Keepers look at it.
        MOVED: messages that were moved to another pipe: it tells which.
        STAGED: what a bulk write fills, and has not published.
        SORTED: what messages are moved to, and is not published.
    """

    READY = "ready"
    DUE = "due"
    KEYED = "keyed"
    SCHEDULED = "scheduled"
    MOVED = "moved"
    STAGED = "staged"
    SORTED = "sorted"


#: Each list before those that pipes move on to from it. None comes back to one that it has left:
#: what is deleted from a list stays deleted.
MOVING = (Shelf.STAGED, Shelf.READY, Shelf.SORTED, Shelf.SCHEDULED, Shelf.DUE, Shelf.MOVED)


def first_shelf(due_class: int, slot: int) -> Shelf:
    """Return the list in which a pipe comes to light, by what its messages have."""
    if slot != NO_SLOT:
        return Shelf.KEYED
    return Shelf.SCHEDULED if is_pile(due_class) else Shelf.DUE if due_class else Shelf.READY
