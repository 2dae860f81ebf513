"""How long messages wait until they are due, in classes.

Owns which lead makes which class, and what a class means for a pipe. Pure. What must not break: all messages
of a pipe are of one class, and a class never changes.

What is due soon goes into a pipe as any other: a popper takes it and holds it. What is due later goes into
a *pile*, of messages whose leads are alike, that nobody looks at until the first of them is near. What is
listed as due is sorted, unless it is soon: so a popper takes up to the first message that is not near.

The classes are part of the protocol: by them processes of other versions judge whether a pusher must be dead.
"""

from typing import Final

from cassq.model.settings import QueueSettings

#: The class of messages without a due time, and of those that are due within SOON_S.
AT_ONCE: Final = 0
SOON: Final = 1

#: From this lead on messages go into piles; each class of them has leads up to four times as long as the one
#: before.
SOON_S = 15
STEP = 4

#: A message is due five years from now at most.
LEAD_MAX_S = 5 * 366 * 86400

#: A pile takes messages for this part of the least lead of its class: so it is sealed long before one is due.
PILE_PART = 3

#: What waited to be stored still goes into a pile of its class while it is due in this part of the least
#: lead of that, or later: by then the pile is sealed, and there is time to sort it.
WAITED_PART = 2

#: A popper takes what is due so soon ahead, and holds it.
AHEAD_MS = 2000

#: A pile, or a sorted pipe, that is due so soon is made ready for poppers.
NEAR_S = 60


def class_of(lead_s: float) -> int:
    """Return the class of messages that are due in so many seconds; of those that should have been: SOON."""
    due_class, least_s = SOON, SOON_S
    while lead_s >= least_s:
        due_class, least_s = due_class + 1, least_s * STEP
    return due_class


def class_left(due_class: int, lead_s: float) -> int:
    """Return the class of messages that waited to be stored, of which the first is due in so many seconds."""
    return min(due_class, class_of(lead_s * WAITED_PART))


def is_pile(due_class: int) -> bool:
    """Tell whether messages of a class wait in piles."""
    return due_class > SOON


def least_lead_s(due_class: int) -> float:
    """Return the least lead of a class of piles."""
    return SOON_S * float(STEP) ** (due_class - SOON - 1)


def open_max_s(due_class: int, settings: QueueSettings) -> float:
    """Return for how many seconds a pipe of a class takes messages."""
    if is_pile(due_class):
        return least_lead_s(due_class) / PILE_PART
    return settings.push_age_max.total_seconds()
