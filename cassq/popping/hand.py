"""Messages in hand: taken for consumers, and not handed out yet.

Owns their order and their number. Refuses to know who waits; the buffer's lock guards it. What must not
break: a message whose lease has ended is never cut off for a consumer.
"""

from collections import deque
from collections.abc import Callable, Iterable

from cassq.model.ranges import Ranges
from cassq.pipes.held_run import HeldRun
from cassq.popping.delivery import BatchSlice, Delivery
from cassq.popping.holding import Holding

#: In so many parts a run may go back of which messages came due in another order than they have in the pipe.
PARTS_MAX = 8

#: Some messages of a batch slice, from the first to the last.
Portion = tuple[BatchSlice, int, int]


class Hand:
    """Slices of batches, those that were taken first first.

    Args:
        until_shown: as of the clock.

    Attributes:
        count: how many messages there are, without those that are held.
        held: what is not due yet.
    """

    __slots__ = ("_slices", "_until_shown", "count", "held")

    def __init__(self, until_shown: Callable[[int], float]) -> None:
        self._until_shown = until_shown
        self._slices: deque[BatchSlice] = deque()
        self.count = 0
        self.held = Holding(until_shown)

    def add(self, slices: Iterable[BatchSlice], now: float) -> None:
        """Add messages behind the others; what is not due is held."""
        for batch_slice in slices:
            dues = batch_slice.batch.dues
            if dues and self._until_shown(max(dues)) > now:
                self.held.add(batch_slice)
            else:
                self._slices.append(batch_slice)
                self.count += batch_slice.last - batch_slice.next + 1

    def release(self, now: float) -> bool:
        """Add what was held and is due; tell whether that is anything."""
        before = self.count
        for batch_slice in self.held.release(now):
            self._slices.append(batch_slice)
            self.count += batch_slice.last - batch_slice.next + 1
        return self.count > before

    def put_back(self, given: list[Portion]) -> None:
        """Add messages before the others: they were cut off, and nobody got them."""
        for batch_slice, first, last in reversed(given):
            part = BatchSlice(batch_slice.run, batch_slice.batch.part(first, last), batch_slice.committer)
            self._slices.appendleft(part)
            self.count += last - first + 1

    def cut(self, count: int) -> list[Portion]:
        """Cut off up to `count` messages; drop what has no lease any more: it comes again."""
        given: list[Portion] = []
        slices = self._slices
        while slices and count:
            batch_slice = slices[0]
            first, last = batch_slice.next, batch_slice.last
            if batch_slice.run.is_live:
                if last >= first + count:
                    last = first + count - 1
                    batch_slice.next = last + 1
                count -= last - first + 1
                given.append((batch_slice, first, last))
            self.count -= last - first + 1
            if last == batch_slice.last:
                slices.popleft()
        return given

    def cut_last(self, count: int) -> dict[HeldRun, Ranges]:
        """Cut off up to `count` of the messages that came due last; return them, by run.

        What has no due times stays: others may be past it in its pipe, and it would come out of order. A run
        stays, too, that would go back in many parts: each is a row from then on, which whoever claims the
        pipe reads, and takes by itself.
        """
        back: dict[HeldRun, Ranges] = {}
        last_ones: list[BatchSlice] = []
        while self._slices and count > 0:
            batch_slice = self._slices.pop()
            last_ones.append(batch_slice)
            if not batch_slice.batch.dues:
                continue
            first, last = max(batch_slice.next, batch_slice.last - count + 1), batch_slice.last
            back.setdefault(batch_slice.run, Ranges()).add(first, last)
            count -= last - first + 1
        back = {run: parts for run, parts in back.items() if len(list(parts)) <= PARTS_MAX}
        for batch_slice in reversed(last_ones):
            for part in back.get(batch_slice.run, Ranges()).within(batch_slice.next, batch_slice.last):
                batch_slice.last = part.first - 1
                self.count -= part.size
            if batch_slice.next <= batch_slice.last:
                self._slices.append(batch_slice)
        return back

    def take_back(self) -> dict[HeldRun, Ranges]:
        """Empty the hand; return what was in it, or held, by run."""
        back = self.held.take_back()
        for batch_slice in self._slices:
            back.setdefault(batch_slice.run, Ranges()).add(batch_slice.next, batch_slice.last)
        self._slices.clear()
        self.count = 0
        return back

    def runs(self) -> list[HeldRun]:
        """Return the runs of its messages, and of those that are held, those that were taken first first."""
        runs = dict.fromkeys(batch_slice.run for batch_slice in self._slices)
        return list(runs | self.held.runs() if self.held else runs)


def count_of(given: list[Portion]) -> int:
    """Return how many messages were cut off."""
    count = 0
    for _, first, last in given:
        count += last - first + 1
    return count


def to_deliveries(given: list[Portion]) -> list[Delivery]:
    """Return the messages that were cut off, as their consumer gets them."""
    deliveries: list[Delivery] = []
    for batch_slice, first, last in given:
        deliveries += batch_slice.deliveries(first, last)
    return deliveries
