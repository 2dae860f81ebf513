"""What a popping command waits for.

Owns the wait in small steps, so that a signal is heard, and what is said of an outage meanwhile.
"""

from dataclasses import dataclass
from datetime import timedelta

import cassq
from cassq.cli.output import say
from cassq.cli.signals import Wish
from cassq.runtime.clock import SystemClock

#: How soon a waiting command notices a signal.
TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The messages that a command gets, one lot after the other.

    Attributes:
        patience: how long to wait for the next; None waits for ever, and through outages.
    """

    popper: cassq.Popper
    wish: Wish
    patience: timedelta | None

    def next(self, count: int) -> list[cassq.Delivery]:
        """Return up to `count` messages; empty when none came in time, or a signal did.

        Raises: UnavailableError: nothing came in time because a service is out of reach.
        """
        told = ""
        clock = SystemClock()
        until = float("inf") if self.patience is None else clock.now() + self.patience.total_seconds()
        while not self.wish:
            try:
                deliveries = self.popper.pop_many(count, min(TICK_S, max(0.0, until - clock.now())))
            except cassq.UnavailableError as error:
                if clock.now() >= until:
                    raise
                if self.patience is None and str(error) != told:
                    told = str(error)
                    say(f"cassq: {told}")
            else:
                if deliveries or clock.now() >= until:
                    return deliveries
        return []

    def tell_none(self) -> None:
        """Say that nothing came."""
        if self.patience is not None and not self.wish:
            say(f"cassq: no message came within {self.patience.total_seconds():g} s")
