"""One slot that this process has won: its pipes, and what was taken of them and waits for its key.

Owns what is taken, held back and let out, as the gate says. Used by the fetch thread alone; consumers'
threads tell it of rows and marks. What must not break:

- nothing is let out before the slot's row was read again, after the take was applied;
- what is known of a pipe was read after the row was won.

A message that waits for its key stays leased. Its lease is extended while all that was handed out of its run
was so for less than a lease: whoever falls silent with one of them loses it as ever, and the rest goes back.
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError
from cassq.limits import BUFFER_MESSAGES_MAX
from cassq.model.ids import Source
from cassq.model.message import Batch
from cassq.model.pipe import Mark, PipeEntry, Run, RunState
from cassq.model.ranges import Range, Ranges
from cassq.model.take_plan import Taken
from cassq.pipes.batch_reader import BatchReader
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.pipes.run_rows import Return
from cassq.popping.key_gate import PipeKeys, Place, Standing, judge
from cassq.popping.timing import LOOK_S, LOOK_SOON_S

_log = logging.getLogger("cassq.popper")

#: So many messages are taken together: of those with one key only one is let out at a time.
TAKE_MIN = 100

#: What waits for others goes back, and rests for so long.
AGAIN_MS = 500


class _Handed(NamedTuple):
    """A message that was let out: with which run, and when."""

    run: HeldRun
    at: float


class LostSlotError(CassqError):
    """Somebody else has won the slot since."""


class Slot:
    """The pipes of one slot, from the moment it was won.

    Args:
        number: of the slot.
        op: that its row has, as long as it is this process's.
        taker: who takes.
        types: messages of these are taken; None: of all.
        on_free: called, from consumers' threads, when a key may have become free.
        on_pipe_over: called with pipes that may retire.
    """

    def __init__(
        self,
        context: QueueContext,
        number: int,
        op: UUID,
        taker: Taker,
        *,
        types: Container[str] | None,
        on_free: Callable[[], None],
        on_pipe_over: Callable[[UUID], None],
    ) -> None:
        self._context = context
        self._storage = context.storage
        self._clock = context.clock
        self._taker = taker
        self._types = types
        self._on_free = on_free
        self._on_pipe_over = on_pipe_over
        self.number = number
        self._op = op
        self._pipes: dict[UUID, OwnedPipe] = {}
        self._looked_at: dict[UUID, float] = {}
        self._keys: dict[UUID, dict[int, str]] = {}
        self._held: dict[Place, tuple[HeldRun, Batch]] = {}
        self._handed: dict[Place, _Handed] = {}
        self._own: set[UUID] = set()

    def note_listed(self, entries: Sequence[PipeEntry]) -> None:
        """Load the pipes that were not known; the entries are all of the slot, in the order of their ranks.

        Raises: CassqError: one could not be loaded, so that nothing may be taken.
        """
        for entry in entries:
            if entry.pipe not in self._pipes:
                sent_at = self._clock.now()
                state = self._storage.load_pipe(entry.pipe)
                if state:
                    self._pipes[entry.pipe] = OwnedPipe(self._context, entry, state, self._taker, sent_at)
                    self._looked_at[entry.pipe] = sent_at
        listed = {entry.pipe: None for entry in entries if entry.pipe in self._pipes}
        # One that is not listed any more is gone.
        for pipe in self._pipes.keys() - listed.keys():
            self._forget(pipe)
        self._pipes = {pipe: self._pipes[pipe] for pipe in listed}

    def feed(self, wanted: int, room: int) -> list[tuple[HeldRun, Batch]]:
        """Return messages whose keys are free, `wanted` at most, one of a key; take some where there are none.

        Args:
            room: so many may be held more.

        Raises:
            LostSlotError: somebody else has the slot; what was taken was given back.
            CassqError: let the slot go.
        """
        found = self._let_out(wanted)
        if len(found) < wanted and self._take(min(room, max(TAKE_MIN, wanted))):
            if self._storage.read_slot(self._context.record.incarnation, self.number, is_settled=False) != self._op:
                raise LostSlotError(f"slot {self.number} of queue {self._context.queue!r} was won by another popper")
            found += self._let_out(wanted - len(found))
        return found

    @property
    def count(self) -> int:
        """How many messages are held."""
        return len(self._held)

    @property
    def may_have_more(self) -> bool:
        """Whether something is held, or more is known to wait."""
        return bool(self._held) or any(owned.may_have_more for owned in self._pipes.values())

    def next_due(self) -> float | None:
        """Return in how many seconds something comes due again; None when nothing is out."""
        due = [seconds for owned in self._pipes.values() if (seconds := owned.next_due()) is not None]
        return min(due, default=None)

    def keep_up(self) -> None:
        """Extend the leases of what is held, or give it back."""
        now = self._clock.now()
        for run in dict.fromkeys(run for run, _ in self._held.values()):
            if run.is_live and run.left_s < run.lease_s / 2:
                handed = [each.at for each in self._handed.values() if each.run is run]
                if handed and now - min(handed) > run.lease_s:
                    self._give_back(place for place, (own, _) in list(self._held.items()) if own is run)
                    continue
                try:
                    run.extend()
                except CassqError as error:
                    _log.info("queue %s: a held run was not extended: %s", self._context.queue, error)

    def close(self) -> None:
        """Give back what is held."""
        self._give_back(list(self._held))

    def _take(self, wanted: int) -> bool:
        """Take up to `wanted` messages; tell whether any were leased."""
        has_taken = False
        for owned in self._in_turn():
            if wanted <= 0:
                break
            taken = self._take_from(owned, wanted)
            wanted -= taken
            has_taken = has_taken or taken > 0
        return has_taken

    def _take_from(self, owned: OwnedPipe, wanted: int) -> int:
        result = owned.take(wanted)
        if result is None:
            self._look(owned)  # somebody sealed it, returned what had expired, or cancelled
            return 0
        for taken in result.runs:
            ends_at = result.sent_at + taken.run.lease_ms / 1000
            on_row_changed = partial(self._on_row_changed, owned)
            self._hold(HeldRun(self._context, owned.entry, taken, ends_at, on_row_changed=on_row_changed), taken)
        for taken in result.dead:
            owned.bury(taken)
        if not result.runs and not result.dead and self._is_worth_a_look(owned):
            self._look(owned)
        elif owned.is_over:
            self._end(owned)
        return sum(taken.count for taken in result.runs)

    def _hold(self, run: HeldRun, taken: Taken) -> None:
        self._own.add(taken.run.lease_id)
        keys = self._keys.setdefault(run.pipe, {})
        for part in taken.parts:
            for seq in range(part.first, part.last + 1):
                place = Place(run.pipe, seq)
                keys[seq] = _key_of(part, seq)
                self._held[place] = run, part
                self._handed.pop(place, None)

    def _in_turn(self) -> Iterator[OwnedPipe]:
        """Yield the pipes to take from: of each source the younger ones once the older are known to the end."""
        is_ordered = self._context.settings.keys == "ordered"
        unknown: set[Source] = set()
        for owned in list(self._pipes.values()):
            owned.heed()
            if owned.entry.source in unknown:
                continue
            if is_ordered and not owned.is_exhausted:
                unknown.add(owned.entry.source)
            if self._types is None or owned.entry.type in self._types:
                yield owned

    def _is_worth_a_look(self, owned: OwnedPipe) -> bool:
        since = self._clock.now() - self._looked_at[owned.pipe]
        has_successor = any(
            other.entry.source == owned.entry.source and other.pipe.time > owned.pipe.time
            for other in self._pipes.values()
        )
        due = owned.next_due()
        is_soon = (has_successor and not owned.is_exhausted) or (due is not None and due <= 0)
        return since >= (LOOK_SOON_S if is_soon else LOOK_S)

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
        del self._pipes[pipe]
        self._keys.pop(pipe, None)
        for places in (self._held, self._handed):
            for place in [place for place in places if place.pipe == pipe]:
                del places[place]

    def _let_out(self, wanted: int) -> list[tuple[HeldRun, Batch]]:
        """Let out up to `wanted` messages that are held, and give back what waits for others."""
        if not self._held:
            return []
        judged = judge(map(self._known, self._pipes.values()), is_ordered=self._context.settings.keys == "ordered")
        self._give_back(judged.hopeless, Return(AGAIN_MS, is_counted=False))
        found: list[tuple[HeldRun, Batch]] = []
        for place in judged.free:
            if len(found) >= wanted:
                break
            run, part = self._held.pop(place)
            self._handed[place] = _Handed(run, self._clock.now())
            if run.is_live:  # else it comes again, and its key is busy until then
                found.append((run, part.part(place.seq, place.seq)))
        return found

    def _known(self, owned: OwnedPipe) -> PipeKeys:
        """Return what is known of a pipe; reads the keys of what others took."""
        owned.heed()
        standings: dict[int, Standing] = {}
        for run in sorted(owned.progress.runs.values(), key=lambda run: run.first):
            for part in _busy_of(owned, run):
                for seq in range(part.first, part.last + 1):
                    standings[seq] = self._standing(Place(owned.pipe, seq), run)
        for place in [each for each in self._handed if each.pipe == owned.pipe]:
            if standings.get(place.seq) is not Standing.OUT:
                del self._handed[place]
        known = self._keys.get(owned.pipe, {})
        keys = self._keys[owned.pipe] = {seq: known[seq] for seq in standings if seq in known}
        for run in owned.progress.runs.values():
            if any(seq not in keys for part in _busy_of(owned, run) for seq in range(part.first, part.last + 1)):
                for batch in BatchReader(self._storage, owned.pipe, is_outline=True).read_run(run, run.last):
                    keys.update((seq, _key_of(batch, seq)) for seq in range(batch.first, batch.last + 1))
        return PipeKeys(owned.entry.source, owned.pipe, standings, keys)

    def _standing(self, place: Place, run: Run) -> Standing:
        if run.state is RunState.RETURNED:
            self._held.pop(place, None)
            return Standing.RESTING
        if run.lease_id not in self._own:
            self._held.pop(place, None)
            return Standing.FOREIGN
        return Standing.HELD if place in self._held else Standing.OUT

    def _give_back(self, places: Iterable[Place], how: Return = Return(is_counted=False)) -> None:
        back: dict[HeldRun, Ranges] = {}
        for place in places:
            run, _ = self._held.pop(place)
            back.setdefault(run, Ranges()).add(place.seq, place.seq)
        for run, parts in back.items():
            with suppress(CassqError):  # they come again when the lease ends
                run.give_back(parts, how)

    def _on_row_changed(self, owned: OwnedPipe, *notes: Mark | Run) -> None:
        owned.note(*notes)
        self._on_free()


def _busy_of(owned: OwnedPipe, run: Run) -> Iterable[Range]:
    """Return what of a run keeps its keys: what has not ended, or all where marks of other attempts cover it."""
    left = list(owned.progress.left_of(run))
    return left or [Range(run.first, run.last)]


def _key_of(batch: Batch, seq: int) -> str:
    return batch.keys[seq - batch.first] if batch.keys else ""


def room_in(slots: Iterable[Slot]) -> int:
    """Return how many messages may be held more."""
    return max(0, BUFFER_MESSAGES_MAX - sum(slot.count for slot in slots))
