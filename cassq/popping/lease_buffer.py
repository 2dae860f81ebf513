"""What is between the thread that takes messages and the clients that lease them.

Owns that a client gets whole runs, and that nothing is taken which nobody in line asked for. What must not
break: no two clients get messages of one run; what fits nobody goes back, uncounted.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice, takewhile

from cassq.limits import TAKE_RUNS_MAX
from cassq.model.portions import Portions
from cassq.pipes.held_run import HeldRun
from cassq.popping.consumer_line import Consumer
from cassq.popping.delivery import BatchSlice
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.hand import Hand, Portion
from cassq.runtime.clock import Clock


def _is_of(run: HeldRun, batch_slice: BatchSlice) -> bool:
    return batch_slice.run is run


class WholeRuns(Hand):
    """A hand that gives whole runs, of which all that was taken is due."""

    def add(self, slices: Iterable[BatchSlice], now: float) -> None:  # noqa: ARG002 - nothing is held
        """Add messages behind the others."""
        for batch_slice in slices:
            self._slices.append(batch_slice)
            self.count += batch_slice.last - batch_slice.next + 1

    def cut(self, count: int) -> list[Portion]:
        """Cut off whole runs of up to `count` messages; drop what has no lease any more."""
        given: list[Portion] = []
        while self._slices:
            run = self._slices[0].run
            own = [(each, each.next, each.last) for each in takewhile(partial(_is_of, run), self._slices)]
            size = sum(last - first + 1 for _, first, last in own)
            if run.is_live:
                if size > count:
                    break
                given += own
                count -= size
            for _ in own:
                self._slices.popleft()
            self.count -= size
        return given


class LeaseBuffer(DeliveryBuffer):
    """Runs for clients in line.

    Attributes:
        portions: what they want, as the takes of a round cut it.
    """

    def __init__(self, clock: Clock, silent_service: Callable[[], str | None]) -> None:
        super().__init__(clock, silent_service)
        self._hand = WholeRuns(clock.until_shown)
        self.portions = Portions()

    def begin_round(self) -> int:
        """Note that a look begins, for those who are in line now; return its number."""
        with self._lock:
            line: Iterable[Consumer] = self._line.all
            # What is in hand goes to the first of them, or back.
            self.portions.begin(each.count for each in islice(line, TAKE_RUNS_MAX))
            return super().begin_round()

    def take_surplus(self) -> bool:
        """Tell whether what is in hand is for none of those who wait."""
        with self._lock:
            return super().take_surplus() or bool(self._line and self._hand.count)

    @property
    def room_to_hold(self) -> int:
        """Nothing is taken ahead of its due time."""
        return 0

    def _ahead(self) -> int:
        return 0
