"""Messages that were taken ahead of their due times.

Owns which is due next; the buffer's lock guards it. Refuses to hand anything out: what is due goes to the
hand. What must not break: nothing leaves before it is due, but to be given back.
"""

import heapq
from collections.abc import Callable, Iterator

from cassq.model.message import Batch
from cassq.model.ranges import Ranges
from cassq.pipes.held_run import HeldRun
from cassq.popping.delivery import BatchSlice

#: Neighbours that are due within so long of each other are held together, until the last of them is.
TICK_S = 0.005


class Holding:
    """Stretches of batches, in the order in which they come due.

    Args:
        until_shown: as of the clock; what it says of a due time comes nearer as more answers are heard.

    Attributes:
        count, size: how many messages there are, and how many bytes they have; Ctrl-C may spoil both.
        next_at: the clock's reading from which the next ones are due.
    """

    __slots__ = ("_heap", "_number", "_parts", "_until_shown", "count", "next_at", "size")

    def __init__(self, until_shown: Callable[[int], float]) -> None:
        self._until_shown = until_shown
        self._heap: list[tuple[int, int, Batch, BatchSlice]] = []
        self._number = 0
        # Of each run how many parts: where Ctrl-C came in between too many, never too few, so no lease ends.
        self._parts: dict[HeldRun, int] = {}
        self.count = self.size = 0
        self.next_at = float("inf")

    def add(self, batch_slice: BatchSlice) -> None:
        """Hold the messages of a slice until each is due."""
        batch = batch_slice.batch
        if not batch.dues:
            return
        tick_ms = 1000 * TICK_S
        first, earliest, latest = batch.first, batch.dues[0], batch.dues[0]
        for seq, due_ms in enumerate(batch.dues, batch.first):
            if due_ms > earliest + tick_ms or due_ms < latest - tick_ms:
                self._push(batch_slice, first, seq - 1, latest)
                first, earliest, latest = seq, due_ms, due_ms
            elif due_ms > latest:
                latest = due_ms
            elif due_ms < earliest:
                earliest = due_ms
        self._push(batch_slice, first, batch.last, latest)
        self.count += batch.count
        self.size += batch.size
        self.plan()

    def _push(self, batch_slice: BatchSlice, first: int, last: int, due_ms: int) -> None:
        part = batch_slice.batch.part(first, last)
        self._number += 1  # so that the heap never compares batches
        self._parts[batch_slice.run] = self._parts.get(batch_slice.run, 0) + 1
        heapq.heappush(self._heap, (due_ms, self._number, part, batch_slice))

    def plan(self) -> float:
        """Return from when on the next ones are due, as far as is known by now."""
        self.next_at = self._until_shown(self._heap[0][0]) if self._heap else float("inf")
        return self.next_at

    def release(self, now: float) -> Iterator[BatchSlice]:
        """Yield what is due, as slices."""
        heap = self._heap
        while heap and self._until_shown(heap[0][0]) <= now:
            _, _, part, batch_slice = heapq.heappop(heap)
            run = batch_slice.run
            self.count -= part.count
            self.size -= part.size
            self._parts[run] -= 1
            if not self._parts[run]:
                del self._parts[run]
            if run.is_live:  # or it comes again
                yield BatchSlice(run, part, batch_slice.committer)
        self.plan()
        if not heap:
            self.count = self.size = 0
            self._parts.clear()

    def __bool__(self) -> bool:
        return bool(self._heap)

    def runs(self) -> dict[HeldRun, None]:
        """Return the runs of its messages, those that were taken first first."""
        return dict.fromkeys(self._parts)

    def take_back(self) -> dict[HeldRun, Ranges]:
        """Empty it; return what was in it, by run."""
        back: dict[HeldRun, Ranges] = {}
        for _, _, part, batch_slice in self._heap:
            back.setdefault(batch_slice.run, Ranges()).add(part.first, part.last)
        self._heap.clear()
        self._parts.clear()
        self.count, self.size, self.next_at = 0, 0, float("inf")
        return back
