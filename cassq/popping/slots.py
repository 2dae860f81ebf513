"""The slots of messages with keys that one popper has won, and those that it may win.

Owns which slots are won and given up. A claim spares the fight for a slot, and decides nothing: its row does.
What must not break: what is known of a slot was read after its row was known to have this popper's op.

    popper A                        slot, pipes 1 and 2           popper B
    | wins, loads: 1 and 2 wait     |                             |
    | (frozen)                      | <-- wins ------------------ | loads: all waits
    | takes from 1: applied ------> |                             |
    |                               | <-- takes from 2: applied - |
    |                               | <-- reads the row: its ---- | hands out
    | reads the row: B's ---------> |                             |
    | gives back                    |                             |
"""

import logging
from collections.abc import Callable, Container
from contextlib import ExitStack
from functools import partial
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, CorruptError, OutcomeUnknownError
from cassq.limits import BUFFER_BYTES_MAX
from cassq.model.ids import new_token
from cassq.model.key import slot_claim
from cassq.model.pipe import PipeEntry
from cassq.model.shelf import Shelf
from cassq.model.take_plan import Taken
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.pipe_order import as_far_as, in_order, is_younger, newest_of
from cassq.popping.slot import Slot
from cassq.popping.timing import BUSY_S, LOOK_S, POLL_MAX_S, REST_S
from cassq.runtime.outage_log import log_trouble

_log = logging.getLogger("cassq.popper")

#: So many messages wait for their keys at most, in one popper: those behind them wait in their pipes. Each
#: slot has an equal share, so that a long backlog of one key keeps no other slot.
HELD_MAX = 2000

#: What was taken is handed out after so long, or an eighth of its lease, however many pipes may have more:
#: each take is a transaction.
TAKE_S_MAX = 0.5


class Slots:
    """The slots of one queue, for one popper; used by the fetch thread alone.

    Args:
        holder: the name of the claims.
        taker: who takes.
        on_pipe_over: called with pipes that may retire.

    Attributes:
        types: messages of these are taken; None: of all.
        on_free: called, from consumers' threads, when a key may have become free.
    """

    def __init__(
        self, context: QueueContext, holder: str, taker: Taker, on_pipe_over: Callable[[UUID], None]
    ) -> None:
        self._context = context
        self._storage = context.storage
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._clock = context.clock
        self._holder = holder
        self._taker = taker
        self._on_pipe_over = on_pipe_over
        self.types: Container[str] | None = None
        self.on_free: Callable[[], None] = lambda: None
        self._won: dict[int, Slot] = {}
        self._listed: dict[int, list[PipeEntry]] = {}
        self._listed_at = float("-inf")
        self._busy_until: dict[int, float] = {}

    def __bool__(self) -> bool:
        return bool(self._won)

    def retry(self) -> None:
        """Try at the next look for what others had: this popper was woken."""
        self._busy_until.clear()

    def feed(self, wanted: int, *, is_listing: bool) -> list[tuple[HeldRun, Taken]]:
        """Return up to `wanted` messages whose keys are free, no two with one key.

        Args:
            is_listing: look for pipes, and slots, that are not known yet.

        Raises: CassqError: nothing was found, and this is why.
        """
        trouble: CassqError | None = None
        if is_listing or self._clock.now() - self._listed_at >= LOOK_S:
            try:
                trouble = self._look_around()
            except CassqError as error:  # what is known of the slots stands
                trouble = error
        found: list[tuple[HeldRun, Taken]] = []
        until = self._clock.now() + min(TAKE_S_MAX, self._context.settings.lease.total_seconds() / 8)
        # What is in hand first: a take reads each open pipe.
        for step in (Slot.let_out, partial(self._take, until=until)):
            for number, slot in list(self._won.items()):
                if len(found) >= wanted or (found and self._clock.now() >= until):
                    break
                try:
                    found += step(slot, wanted - len(found))
                except CassqError as error:
                    trouble = error
                    self._give_up(number, error)
                    continue
                if slot.is_lost:
                    self._let_go(number)
            if found:
                break
        if trouble and not found:
            raise trouble
        return found

    def _take(self, slot: Slot, wanted: int, *, until: float) -> list[tuple[HeldRun, Taken]]:
        self._won[slot.number] = self._won.pop(slot.number)  # the others come first next time
        is_full = sum(each.hand.size for each in self._won.values()) >= BUFFER_BYTES_MAX
        share = max(1, HELD_MAX // len(self._won))
        return slot.feed(wanted, 0 if is_full else share - len(slot.hand), until)

    @property
    def is_holding(self) -> bool:
        """Whether something waits for its key, and its lease is to be kept up."""
        return any(slot.hand for slot in self._won.values())

    @property
    def has_any(self) -> bool:
        """Whether there was a pipe of a slot when they were last listed."""
        return bool(self._listed)

    def keep_up(self) -> list[HeldRun]:
        """Extend the leases of what waits for its key; return the runs of that."""
        for number, slot in list(self._won.items()):
            if self._coordinator.is_held(self._queue, self._claim_of(number), self._holder):
                slot.hand.keep_up()
            else:  # the session may have lasted all the same: a claim that nobody knew of would keep the slot
                self._let_go(number)
        return [run for slot in self._won.values() for run in slot.hand.runs()]

    def next_due(self) -> float:
        """Return in how many seconds something that was taken comes due again."""
        return min(
            (seconds for slot in self._won.values() for seconds in slot.next_due()), default=float("inf")
        )

    def types_there(self) -> tuple[set[str], set[str]]:
        """Return of which types its slots have pipes, as last listed: of those it takes, and of others."""
        there = {entry.type for number in self._won for entry in self._listed.get(number, ())}
        own = {kind for kind in there if self.types is None or kind in self.types}
        return own, there - own

    def leave_some(self) -> int:
        """Give up half of the slots that have something, for others; return how many that were."""
        full = [number for number, slot in self._won.items() if slot.may_have_more]
        left = full[: len(full) // 2]
        for number in left:
            self._let_go(number, POLL_MAX_S)
        return len(left)

    def leave_for(self, types: Container[str], *, is_held_kept: bool = False) -> int:
        """Give up the slots that have something of these types; return how many that were.

        Args:
            is_held_kept: but for those of which something is held.
        """
        asked = [item for item in self._won.items() if not (is_held_kept and item[1].hand)]
        left = [number for number, slot in asked if slot.has_for(types)]
        for number in left:
            self._let_go(number, POLL_MAX_S)
        return len(left)

    def leave_empty(self) -> None:
        """Give up the slots of which nothing is held."""
        for number in [number for number, slot in self._won.items() if not slot.hand]:
            self._let_go(number)

    def let_all_go(self) -> None:
        """Give up every slot."""
        with ExitStack() as letting_go:  # an error of one keeps no other
            for number in self._won:
                letting_go.callback(self._let_go, number)

    def _look_around(self) -> CassqError | None:
        """Win what nobody has, and tell each slot of its pipes; return why that was not done with one.

        Raises: CassqError: they could not be listed.
        """
        trouble: CassqError | None = None
        for slot in [slot for slot in self._won.values() if slot.is_outdated]:
            self._let_go(slot.number, 0.0)  # what was taken in another order is no order
        self._list()
        before = set(self._won)
        for number, entries in self._listed.items():
            is_wanted = self.types is None or any(entry.type in self.types for entry in entries)
            try:
                if number not in self._won and is_wanted:
                    self._win(number)
            except CassqError as error:
                trouble = error
                self._give_up(number, error)
        if self._won.keys() - before:
            self._list()  # what was listed before a row was won counts for nothing
        for number, slot in list(self._won.items()):
            try:
                slot.note_listed(self._listed.get(number, ()))
            except CassqError as error:
                trouble = error
                self._give_up(number, error)
        return trouble

    def _list(self) -> None:
        known = newest_of(entry for entries in self._listed.values() for entry in entries)
        entries = self._storage.list_pipes(self._queue, shelf=Shelf.KEYED).entries
        if self._context.settings.keys == "ordered" and any(is_younger(each, known) for each in entries):
            again = self._storage.list_pipes(self._queue, shelf=Shelf.KEYED)
            entries = as_far_as(entries, again.entries)
        self._listed_at = self._clock.now()
        self._listed = {}
        for entry in in_order(entries, self._context.settings.ageing):
            self._listed.setdefault(entry.slot, []).append(entry)

    def _win(self, number: int) -> None:
        """Win a slot, if no other popper has it."""
        if self._busy_until.get(number, 0.0) > self._clock.now():
            return
        is_claimed = self._coordinator.claim(self._queue, self._claim_of(number), self._holder)
        op = self._write_op(number) if is_claimed else None
        if op is None:
            self._let_go(number, POLL_MAX_S)
            return
        slot = self._won[number] = Slot(self._context, number, op, self._taker, self._on_pipe_over)
        slot.types, slot.on_free = self.types, self.on_free

    def _write_op(self, number: int) -> UUID | None:
        """Write a fresh op into the row of a slot; None where somebody else did so meanwhile."""
        incarnation, op = self._context.record.incarnation, new_token()
        seen = self._storage.read_slot(incarnation, number)
        try:
            return op if self._storage.change_slot(incarnation, number, seen, op) else None
        except OutcomeUnknownError:
            return op if self._storage.read_slot(incarnation, number) == op else None

    def _give_up(self, number: int, error: CassqError) -> None:
        """Give up a slot that cannot be worked on."""
        log_trouble(_log, error, "queue %s: slot %d is left alone: %s", self._queue, number, error)
        self._let_go(number, REST_S if isinstance(error, CorruptError) else BUSY_S)

    def _let_go(self, number: int, rest_s: float = BUSY_S) -> None:
        """Give up a slot; leave it alone for so long, unless this popper is woken."""
        slot = self._won.pop(number, None)
        self._busy_until[number] = self._clock.now() + rest_s
        try:
            if slot:
                slot.hand.give_all_back()
        finally:
            self._coordinator.release(self._queue, self._claim_of(number), self._holder)

    def _claim_of(self, number: int) -> UUID:
        return slot_claim(self._context.record.incarnation, number)
