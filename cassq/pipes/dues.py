"""How far an owner takes from a pipe: which of its messages are near their due times.

Owns where a take stops: of what is sorted, and of all that nobody would hold, up to the first message
that is not near; of what is due soon all. What must not break: without somebody who holds it, nothing is
taken before it is due, by the earliest reading of the database's clock.
"""

from collections.abc import Iterable, Iterator, Sequence

from cassq.limits import NO_LIMIT
from cassq.model.message import Batch
from cassq.model.pipe import Run
from cassq.model.schedule import is_pile
from cassq.pipes.fenced_pipe import FencedPipe


class Horizon:
    """How far its owner takes from a pipe.

    Attributes:
        until: nothing behind this number is handed out for the first time.
        ahead_ms: messages are taken so long before they are due, for somebody who holds them until then.
    """

    def __init__(self, fenced: FencedPipe) -> None:
        self._fenced = fenced
        self._far: tuple[int, int] | None = None
        self.until = NO_LIMIT
        self.ahead_ms = 0

    @property
    def next_ms(self) -> int | None:
        """In how many milliseconds what waits next is near, as the last take found it; None: it saw all."""
        if self._far is None or self._fenced.head.cursor >= self._far[0]:
            return None
        if self._fenced.head.cursor + 1 < self._far[0]:
            return 0
        return max(0, self._far[1] - self.ahead_ms - self._fenced.earliest_now_ms())

    @property
    def is_in_sight(self) -> bool:
        """Whether the last take stopped before a message that is not near."""
        return self._far is not None

    def bound(self, batches: Sequence[Batch], until: int) -> int:
        """Return the last number up to which the messages that wait are near."""
        self._far = self._first_far(batches, self._fenced.head.cursor)
        return until if self._far is None else min(until, self._far[0] - 1)

    def count_near(self, run: Run, batches: Sequence[Batch]) -> int:
        """Return how many messages of a run that came back, from its first on, are near."""
        far = self._first_far(batches, run.first - 1)
        return self._fenced.progress.count_left(run.first, run.last if far is None else far[0] - 1)

    def _first_far(self, batches: Sequence[Batch], behind: int) -> tuple[int, int] | None:
        """Return the first message behind a number that is not near, and when it is due; None: none is."""
        if self.ahead_ms and not is_pile(self._fenced.entry.due_class):
            return None
        until_ms = self._fenced.earliest_now_ms() + self.ahead_ms
        return next(due_after(batches, behind, until_ms), None)


def due_after(batches: Iterable[Batch], behind: int, until_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the messages behind a number that are due after a time: their numbers, and when they are due."""
    for batch in batches:
        if batch.last > behind and batch.dues and max(batch.dues) > until_ms:
            for seq, due_ms in enumerate(batch.dues, batch.first):
                if seq > behind and due_ms > until_ms:
                    yield seq, due_ms
