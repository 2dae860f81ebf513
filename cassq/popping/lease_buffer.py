"""What is between the thread that takes messages and the clients that lease them.

Owns that a client gets whole runs, and that nothing is taken which nobody in line asked for. What must not
break: no two clients get messages of one run; what fits nobody goes back, uncounted.
"""

from collections.abc import Iterable
from functools import partial
from itertools import islice, takewhile

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError
from cassq.limits import TAKE_RUNS_MAX
from cassq.model.lease import holder_of
from cassq.model.portions import Portions
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.popping.delivery import BatchSlice
from cassq.popping.delivery_buffer import DeliveryBuffer
from cassq.popping.hand import Hand, Portion
from cassq.popping.looks import silence_of


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
        taker: takes what they want, cut into their portions.
    """

    def __init__(self, context: QueueContext) -> None:
        super().__init__(context.clock, silence_of(context))
        self._hand = WholeRuns(context.clock.until_shown)
        self._portions = Portions()
        self._found: list[BatchSlice] = []
        self.taker = Taker(holder_of(context.queue), portions=self._portions)

    def wanted(self) -> int:
        """Return how many messages to take now: what the first in line ask for."""
        with self._lock:
            return 0 if self.is_idle(self.slow_s) else sum(self._asked())

    def begin_round(self) -> int:
        """Note that a look begins, for those who are in line now; return its number."""
        with self._lock:
            self._portions.begin(self._asked())
            return super().begin_round()

    def put(self, slices: Iterable[BatchSlice]) -> None:
        """Add messages once the look ends: who is in line gets what was cut for them, of several pipes."""
        self._found += slices

    def end_round(self, number: int, trouble: CassqError | None = None) -> bool:
        """Hand out what a look found, and note that it ended; see `DeliveryBuffer.end_round`."""
        found, self._found = self._found, []
        super().put(found)
        return super().end_round(number, trouble)

    def _asked(self) -> list[int]:
        """Return how much each of the first in line wants; what is in hand goes to them before, or back."""
        return [each.count for each in islice(self._line.all, TAKE_RUNS_MAX)]

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
