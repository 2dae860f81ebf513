"""Clocks that tests move by hand."""

from cassq.runtime.clock import SystemClock


class HandClock(SystemClock):
    """Stands until somebody moves it; the owner's clock and the database's are the same."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.missed = 0.0

    def now(self) -> float:
        return self.seconds

    def latest(self) -> float:
        return self.seconds + self.missed
