"""The slots of keyed messages that one popper has won, and those it may win.

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
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from uuid import NAMESPACE_OID, UUID, uuid5

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, OutcomeUnknownError
from cassq.model.ids import new_token
from cassq.model.message import Batch
from cassq.model.pipe import PipeEntry
from cassq.model.shelf import Shelf
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.pipe_order import in_order
from cassq.popping.slot import LostSlotError, Slot, room_in
from cassq.popping.timing import BUSY_S

_log = logging.getLogger("cassq.popper")


class Slots:
    """The slots of one queue, for one popper; used by the fetch thread alone.

    Args:
        holder: the name of the claims.
        taker: who takes.
        types: messages of these are taken; None: of all.
        on_free: called, from consumers' threads, when a key may have become free.
        on_pipe_over: called with pipes that may retire.
    """

    def __init__(
        self,
        context: QueueContext,
        holder: str,
        taker: Taker,
        *,
        types: Container[str] | None,
        on_free: Callable[[], None],
        on_pipe_over: Callable[[UUID], None],
    ) -> None:
        self._context = context
        self._storage = context.storage
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._clock = context.clock
        self._holder = holder
        self._taker = taker
        self._types = types
        self._on_free = on_free
        self._on_pipe_over = on_pipe_over
        self._won: dict[int, Slot] = {}
        self._listed: dict[int, list[PipeEntry]] = {}
        self._busy_until: dict[int, float] = {}

    def feed(self, wanted: int, *, is_listing: bool) -> list[tuple[HeldRun, Batch]]:
        """Return up to about `wanted` messages, no two with one key.

        Args:
            is_listing: look for pipes, and slots, that are not known yet.

        Raises: CassqError: nothing was found, and this is why.
        """
        found: list[tuple[HeldRun, Batch]] = []
        trouble: CassqError | None = None
        if is_listing:
            self._list()
        for number in [*self._won, *(number for number in self._listed if number not in self._won)]:
            if len(found) >= wanted:
                break
            try:
                slot = self._won.get(number) or self._win(number)
                if slot:
                    if is_listing:
                        slot.note_listed(self._listed.get(number, ()))
                    found += slot.feed(wanted - len(found), room_in(self._won.values()))
            except LostSlotError as error:
                _log.info("%s", error)
                self._let_go(number)
            except CassqError as error:
                trouble = error
                self._let_go(number)
        if trouble and not found:
            raise trouble
        return found

    def keep_up(self) -> None:
        """Extend the leases of what is held."""
        for number, slot in list(self._won.items()):
            if self._coordinator.is_held(self._queue, self._claim_of(number), self._holder):
                slot.keep_up()
            else:  # the session may have lasted all the same: a claim that nobody knew of would keep the slot
                self._let_go(number)

    def leave_some(self) -> int:
        """Let half of the slots go that have something; return how many that were."""
        full = [number for number, slot in self._won.items() if slot.may_have_more]
        for number in full[len(full) // 2 :] if len(full) > 1 else ():
            self._let_go(number)
        return len(full) - len(full[: len(full) // 2]) if len(full) > 1 else 0

    def let_all_go(self) -> None:
        """Give up every slot."""
        for number in list(self._won):
            self._let_go(number)

    @property
    def is_holding(self) -> bool:
        """Whether something is held, whose lease is to be kept up."""
        return any(slot.count for slot in self._won.values())

    @property
    def is_empty(self) -> bool:
        """Whether there was no pipe of a slot when they were last listed."""
        return not self._listed

    def next_due(self) -> float:
        """Return in how many seconds something comes due again."""
        due = [seconds for slot in self._won.values() if (seconds := slot.next_due()) is not None]
        now = self._clock.now()
        due += [until - now for number, until in self._busy_until.items() if number in self._listed]
        return max(0.0, min(due, default=float("inf")))

    def _list(self) -> None:
        listing = self._storage.list_pipes(self._queue, shelf=Shelf.KEYED)
        self._listed = {}
        for entry in in_order(listing.entries, self._context.settings.ageing):
            self._listed.setdefault(entry.slot, []).append(entry)

    def _win(self, number: int) -> Slot | None:
        """Win a slot, and load all of its pipes; None where another popper claims it."""
        if self._busy_until.get(number, 0.0) > self._clock.now():
            return None
        claim = self._claim_of(number)
        if not self._coordinator.claim(self._queue, claim, self._holder):
            self._busy_until[number] = self._clock.now() + BUSY_S
            return None
        try:
            op = self._write_op(number)
            if op is None:
                self._coordinator.release(self._queue, claim, self._holder)
                self._busy_until[number] = self._clock.now() + BUSY_S
                return None
            self._list()  # what was listed before the row was won counts for nothing
            slot = Slot(
                self._context,
                number,
                op,
                self._taker,
                types=self._types,
                on_free=self._on_free,
                on_pipe_over=self._on_pipe_over,
            )
            slot.note_listed(self._listed.get(number, ()))
        except BaseException:
            self._coordinator.release(self._queue, claim, self._holder)
            raise
        self._won[number] = slot
        return slot

    def _write_op(self, number: int) -> UUID | None:
        """Write a fresh op into the row of a slot; None where somebody else did so meanwhile."""
        incarnation, op = self._context.record.incarnation, new_token()
        seen = self._storage.read_slot(incarnation, number)
        try:
            return op if self._storage.change_slot(incarnation, number, seen, op) else None
        except OutcomeUnknownError:
            return op if self._storage.read_slot(incarnation, number) == op else None

    def _let_go(self, number: int) -> None:
        slot = self._won.pop(number)
        try:
            with suppress(CassqError):
                slot.close()
        finally:
            self._coordinator.release(self._queue, self._claim_of(number), self._holder)

    def _claim_of(self, number: int) -> UUID:
        return uuid5(NAMESPACE_OID, f"{self._context.record.incarnation}/{number}")
