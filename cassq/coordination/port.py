"""The contract between poppers and a coordination service.

Claims only avoid wasted work: the fence in the pipe's head alone keeps two takers apart, so every claim may
be lost at any moment without harm. What must not break is the other direction: nothing here ever blocks a
popper for longer than one round trip, and a claim whose holder is gone or frozen is free again by itself.

    popper A                 coordination                  popper B
    | claim(P): held -------->                             |
    | (frozen)                 session of A ends           |
    |                          <------- claim(P): granted  |
    | take with the old op --> the database refuses it     | take, fresh op
    | lets P go, quietly                                   |

Threads: every method may be called from many threads at once. After a fork only the parent may call.
"""

import re
from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

_TYPES = re.compile("~([0-9a-f]{1,16})$")


def name_in_line(popper: str, types: int | None) -> str:
    """Return what a popper is announced as; the name tells of which types it takes messages, None for all.

    A type is a bit. Bit 0 is no type's: it stands for those that nobody has pushed yet.
    """
    return popper if types is None else f"{popper}~{types | 1:x}"


def takes(popper: str, types: int) -> bool:
    """Tell whether a popper of such a name takes messages of some of these types; 0: those without one."""
    found = _TYPES.search(popper) if "~" in popper else None
    return not found or int(found[1], 16) & types > 0


def takes_all_of(popper: str, other: str) -> bool:
    """Tell whether a popper of such a name takes whatever another one takes."""
    found, wanted = _TYPES.search(popper), _TYPES.search(other)
    if not found:
        return True
    return wanted is not None and not int(wanted[1], 16) & ~int(found[1], 16)


class Coordinator(Protocol):
    """One process's (or one store's) seat at the coordination service."""

    def may_take(self) -> bool:
        """Tell whether takes are allowed now; False while the session is suspended or lost.

        Never touches the network.
        """
        ...

    def claim(self, queue: str, pipe: UUID, holder: str) -> bool:
        """Try to claim a pipe for `holder`, without waiting.

        Returns: True when `holder` has the claim now (also if it had it already), False when somebody else
        has it.
        Guarantees: two holders have a claim at once only while one of them is about to learn that its
        session ended. A claim whose reply was lost counts as held by its holder: claiming again says True.
        If nobody claims it again, it is given up as soon as its fate is known.
        Raises: CoordinationUnavailableError: the service cannot be reached. AccessDeniedError: it refuses the
        user, here as in every method that raises the former.
        """
        ...

    def release(self, queue: str, pipe: UUID, holder: str) -> None:
        """Give a claim up; nothing happens when it is not held. Never raises for a lost session."""
        ...

    def is_held(self, queue: str, pipe: UUID, holder: str) -> bool:
        """Tell whether this claim still stands, as far as this process knows; never touches the network."""
        ...

    def holders(self, queue: str) -> Mapping[UUID, str]:
        """Return who holds which pipe of a queue, for statistics.

        Raises: CoordinationUnavailableError: the service cannot be reached.
        """
        ...

    def announce_hunger(
        self,
        queue: str,
        popper: str,
        wake: Callable[[], None],
        *,
        on_crowded: Callable[[], None] | None = None,
    ) -> int:
        """Let the others know that `popper` waits for messages.

        Announcing again replaces the callbacks and keeps the place in the line. Announce first, then look
        for messages once more, then wait: who pushed before the announcement woke nobody.

        Returns: how many others stood in line before it that take whatever it takes. Where some did, they
        have looked, or are about to, and whoever pushed since woke one of them: then the look may be left
        out.

        Args:
            queue: what it waits for.
            popper: who waits, as `name_in_line` tells of which types.
            wake: called once, and the announcement is over: when somebody wakes this popper, or when the
                session is back after it was lost.
            on_crowded: called when the number of other hungry poppers of the queue goes from none to some,
                also if there are some at the time of the announcement: who holds claims should let go. It
                ends nothing. A popper answers it without withdrawing and announcing afresh, or two idle
                poppers would keep each other busy.

        Guarantees: the callbacks run on any thread, perhaps on one that is inside a method of this port, so
        call these methods without holding a lock that a callback takes. Callbacks are brief.
        Raises: CoordinationUnavailableError: the service cannot be reached.
        """
        ...

    def withdraw_hunger(self, queue: str, popper: str) -> None:
        """Take the announcement back; nothing happens when there is none (any more)."""
        ...

    def hungry(self, queue: str, besides: str = "", *, types: int = 0) -> int:
        """Return how many poppers of a queue wait for messages of some types, not counting `besides`.

        Args:
            types: a bit for each; 0 for messages without a type.

        Answers from what the service last told; at most a moment old, cheap enough for every push.
        """
        ...

    def wake(self, queue: str, count: int, besides: str = "", *, types: int = 0) -> int:
        """Wake up to `count` hungry poppers that take some of the types, those that waited longest first.

        Never `besides`.

        Returns: how many were woken. A popper that was woken is no longer announced.
        Never raises: a wake-up that cannot be delivered is made good by the poppers' own polling.
        """
        ...

    def close(self) -> None:
        """Give up all claims and announcements, and end the session. May be called twice."""
        ...
