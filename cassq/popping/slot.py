"""One slot that this process has won: its pipes, from which it takes.

Owns which pipe is taken from, and that the slot's row is read again before anything of that is let out. Used
by the fetch thread alone; consumers' threads tell it of rows and marks. What must not break:

- what is known of a pipe was read after the row was won;
- where keys are in order, nothing is taken from a younger pipe of a source before all of the older is known.
"""

import threading
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from itertools import groupby
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.model.ids import Source
from cassq.model.pipe import Mark, PipeEntry, Run
from cassq.model.take_plan import Taken
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.popping.keyed_hand import KeyedHand
from cassq.popping.timing import LOOK_S, LOOK_SOON_S

#: So many messages are taken together: of those with one key only one is let out at a time.
TAKE_MIN = 100


class Slot:
    """The pipes of one slot, from the moment it was won.

    Args:
        op: that its row has for as long as it is this process's.
        on_pipe_over: called with pipes that may retire.

    Attributes:
        number: of the slot.
        hand: what was taken.
        is_lost: somebody else has won it since.
        types: messages of these are taken; None: of all.
        on_free: called, from consumers' threads, when a key may have become free.
    """

    def __init__(
        self, context: QueueContext, number: int, op: UUID, taker: Taker, on_pipe_over: Callable[[UUID], None]
    ) -> None:
        self._context = context
        self._storage = context.storage
        self._clock = context.clock
        self.number = number
        self._op = op
        self._taker = taker
        self._on_pipe_over = on_pipe_over
        self._thread = threading.get_ident()
        self._pipes: dict[UUID, OwnedPipe] = {}
        self._looked_at: dict[UUID, float] = {}
        self._left_out: dict[UUID, int] = {}
        self._asked_at = float("-inf")
        self._is_ordered = context.settings.keys == "ordered"
        self.hand = KeyedHand(context, taker.name, is_ordered=self._is_ordered)
        self.is_lost = False
        self.types: Container[str] | None = None
        self.on_free: Callable[[], None] = lambda: None

    def note_listed(self, entries: Sequence[PipeEntry]) -> None:
        """Load the pipes that were not known.

        Args:
            entries: all of the slot, in the order of their ranks.

        Raises: CassqError: one could not be loaded: nothing may be taken.
        """
        for pipe in self._pipes.keys() - {entry.pipe for entry in entries}:
            self._forget(pipe)  # it is gone
        for entry in entries:
            sent_at = self._clock.now()
            if entry.pipe not in self._pipes and (state := self._storage.load_pipe(entry.pipe)):
                self._pipes[entry.pipe] = OwnedPipe(self._context, entry, state, self._taker, sent_at)
                self._looked_at[entry.pipe] = sent_at
        self._pipes = {entry.pipe: self._pipes[entry.pipe] for entry in entries if entry.pipe in self._pipes}

    def let_out(self, wanted: int) -> list[tuple[HeldRun, Taken]]:
        """Return messages that are held, and whose keys are free, up to `wanted`, no two with one key.

        Raises: CassqError: none was let out; let the slot go.
        """
        return self.hand.let_out(self._pipes.values(), wanted)

    def feed(self, wanted: int, room: int, until: float = float("inf")) -> list[tuple[HeldRun, Taken]]:
        """Take messages, and return those whose keys are free, up to `wanted`, no two with one key.

        Where nothing may be held any more, what came back is taken all the same: the rest may wait for it.

        Args:
            room: so many more may be held.
            until: by the clock; once something was taken, nothing more is after that.

        Raises: CassqError: let the slot go.
        """
        if not self._take(min(room, max(TAKE_MIN, wanted)), until):
            return []
        incarnation = self._context.record.incarnation
        if self._storage.read_slot(incarnation, self.number, is_settled=False) != self._op:
            self.is_lost = True
            return []
        return self.let_out(wanted)

    @property
    def is_outdated(self) -> bool:
        """Whether the order of its keys was changed since it was won."""
        return self._is_ordered != (self._context.settings.keys == "ordered")

    @property
    def may_have_more(self) -> bool:
        """Whether something is held, or more is known to wait."""
        return bool(self.hand) or any(owned.may_have_more for owned in self._pipes.values())

    def has_for(self, types: Container[str]) -> bool:
        """Tell, by a read of each, whether pipes of these types have something; each LOOK_S at most."""
        meant = [owned for owned in self._pipes.values() if owned.entry.type in types]
        if not meant or self._clock.now() - self._asked_at < LOOK_S:
            return False
        self._asked_at = self._clock.now()
        return any(owned.has_due or owned.has_news() for owned in meant)

    def next_due(self) -> list[float]:
        """Return in how many seconds something of each pipe comes due, where something is out."""
        due = [owned.next_due() for owned in self._pipes.values() if self._is_wanted(owned)]
        return [seconds for seconds in due if seconds is not None]

    def _take(self, wanted: int, until: float) -> bool:
        """Take up to `wanted` messages; tell whether any were leased."""
        has_taken = False
        in_turn = list(self._in_turn())
        for owned in [each for each in self._pipes.values() if each not in in_turn]:
            # What others have there keeps its key busy here, too.
            if self._clock.now() - self._looked_at[owned.pipe] >= LOOK_S and self.hand.has_foreign(owned):
                self._look(owned)
        in_turn = [each for alike in _of_one_priority(in_turn) for each in sorted(alike, key=self._turn_of)]
        self._left_out = {}
        for place, owned in enumerate(in_turn):
            if has_taken and self._clock.now() >= until:
                self._left_out = {each.pipe: turn for turn, each in enumerate(in_turn[place:])}
                break
            owned.heed()
            if wanted <= 0 and not owned.has_due:
                if self._is_worth_a_look(owned, has_found=True):
                    self._look(owned)
                continue
            taken = self._take_from(owned, max(wanted, 1))
            wanted -= taken
            has_taken = has_taken or taken > 0
        return has_taken

    def _turn_of(self, owned: OwnedPipe) -> int:
        """Return what pipes of one priority are sorted by: else the oldest of them would have every turn.

        Those come first that had none when the time was over.
        """
        return self._left_out.get(owned.pipe, len(self._left_out))

    def _take_from(self, owned: OwnedPipe, wanted: int) -> int:
        result = owned.take(wanted)
        if result is None:  # somebody sealed it, returned what had expired, or cancelled
            self._look(owned)
            return 0
        for taken in result.runs:
            ends_at = result.sent_at + taken.run.lease_ms / 1000
            on_row_changed = partial(self._on_row_changed, owned, taken.run.lease_id)
            run = HeldRun(self._context, owned.entry, taken, ends_at, on_row_changed=on_row_changed)
            self.hand.hold(run, taken)
        for taken in result.dead:
            owned.bury(taken)
        if self._is_worth_a_look(owned, has_found=bool(result.runs or result.dead)):
            self._look(owned)
        elif owned.is_over:
            self._end(owned)
        return sum(taken.count for taken in result.runs)

    def _in_turn(self) -> Iterator[OwnedPipe]:
        unknown: set[Source] = set()
        for owned in list(self._pipes.values()):
            if owned.entry.source in unknown:
                continue
            if self._is_ordered and not owned.is_exhausted:
                unknown.add(owned.entry.source)
            if self._is_wanted(owned):
                yield owned

    def _is_wanted(self, owned: OwnedPipe) -> bool:
        return self.types is None or owned.entry.type in self.types

    def _is_worth_a_look(self, owned: OwnedPipe, *, has_found: bool) -> bool:
        """Tell whether to read a pipe anew: for its seal, and for what others do with what they have."""
        since = self._clock.now() - self._looked_at[owned.pipe]
        due = owned.next_due()
        if due is not None and due <= 0:
            return since >= LOOK_SOON_S
        if has_found:
            return since >= LOOK_S and self.hand.has_foreign(owned)
        has_successor = any(
            other.entry.source == owned.entry.source and other.pipe.time > owned.pipe.time
            for other in self._pipes.values()
        )
        return since >= (LOOK_SOON_S if has_successor and not owned.is_exhausted else LOOK_S)

    def _look(self, owned: OwnedPipe) -> None:
        self._looked_at[owned.pipe] = self._clock.now()
        if not owned.look():
            self._forget(owned.pipe)
        elif owned.is_over:
            self._end(owned)

    def _end(self, owned: OwnedPipe) -> None:
        self._forget(owned.pipe)
        self._on_pipe_over(owned.pipe)

    def _forget(self, pipe: UUID) -> None:
        del self._pipes[pipe], self._looked_at[pipe]
        self.hand.forget(pipe)

    def _on_row_changed(self, owned: OwnedPipe, lease_id: UUID, *notes: Mark | Run) -> None:
        """Tell the pipe of acknowledged marks or changed rows; called from consumers' threads.

        They may be told late: meanwhile the rows may have been read, and taken again.
        """
        owned.note(*notes, lease_id=lease_id)
        is_own = threading.get_ident() == self._thread  # it gives back, and needs no wake-up
        if not is_own and (self.hand or any(isinstance(note, Run) for note in notes)):
            self.on_free()


def _of_one_priority(pipes: Sequence[OwnedPipe]) -> Iterator[Iterator[OwnedPipe]]:
    """Yield neighbours in the order of ranks that have the same priority."""
    return (alike for _, alike in groupby(pipes, key=lambda owned: owned.entry.priority))
