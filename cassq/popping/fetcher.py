"""Finds messages for one intake or run reader: takes from the pipes that it claims.

Owns which pipe is taken from, and how much is taken from each. Refuses to know consumers: it is told how many
messages are wanted and returns what it took. What must not break: with a width of 1, nothing is taken from
a pipe while an older one of the same pusher may still have something.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, CoordinationUnavailableError, CorruptError
from cassq.limits import TAKE_MESSAGES_MAX
from cassq.model.pipe import PipeEntry
from cassq.model.schedule import AHEAD_MS, is_pile
from cassq.model.take_plan import Taken
from cassq.model.uses import uses_keys, uses_priority
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.popping.claimer import Claimer
from cassq.popping.claims import Claimed
from cassq.popping.pipe_backoff import GonePipes
from cassq.popping.reach import Reach
from cassq.popping.rivals import Rivals
from cassq.popping.slots import Slots
from cassq.popping.timing import BETTER_S, LOOK_S, REST_S, SORTED_REST_S
from cassq.runtime.deadline import CLOSING_S, Deadline

_log = logging.getLogger("cassq.popper")

_Feed = Callable[[int, Reach, "list[tuple[HeldRun, Taken]]"], None]

#: So many messages are handed out before another pipe is claimed for more.
HAUL_MIN = 500

#: So many messages that come due are taken together, be it for a single consumer: each take is a transaction.
DUE_MIN = 1000


class Fetcher:
    """Takes runs from the pipes of one queue for one popper.

    Args:
        holder: the name that claims are made under, unique.
        taker: who the runs are taken for; the holder, unless somebody else is to find them again.
        on_pipe_over: called with pipes that may retire.
        gone: pipes of the queue that this process found gone.

    Attributes:
        beginning: the deadline of what brings messages in.
        rivals: the other poppers of the queue.
    """

    def __init__(
        self,
        context: QueueContext,
        holder: str,
        *,
        on_pipe_over: Callable[[UUID], None],
        taker: Taker | None = None,
        gone: GonePipes | None = None,
    ) -> None:
        self.holder = holder
        self.rivals = Rivals(context, holder)
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._context = context
        self._clock = context.clock
        self._record = context.record
        self.beginning = Deadline(float("inf"))
        self._is_finishing = False
        taker = taker or Taker(holder)
        self._claimer = Claimer(context, holder, taker, gone or GonePipes(), on_pipe_over)
        self._slots = Slots(context, holder, taker, on_pipe_over)
        self._pipes = self._claimer.pipes
        self._memory = self._claimer.memory
        self._claims = self._claimer.claims
        self._opener = self._claimer.opener
        self._is_flowing = False
        self._is_plain_first = False
        self._room_ahead = 0

    def take_only(self, types: Collection[str]) -> None:
        """Take only messages of these types; called before anything is taken."""
        self._pipes.types = self._slots.types = types
        self.rivals = Rivals(self._context, self.holder, types)

    def stop_at(self, until: Mapping[UUID, int]) -> None:
        """Take from no other pipes than these, and from each nothing fresh behind the number given."""
        self._claimer.stop_at(until)

    def feed(
        self, wanted: int, reach: Reach = Reach.LISTED, *, is_flowing: bool = False, room_ahead: int = 0
    ) -> list[tuple[HeldRun, Taken]]:
        """Take up to about `wanted` messages, from the oldest pipes first.

        Args:
            is_flowing: messages come fast, so windows are worth it, unless others are hungry.
            room_ahead: so many messages may be taken before they are due.

        Raises:
            CoordinationUnavailableError: takes are not allowed now.
            StorageUnavailableError: the database cannot be read.
        """
        self.check_may_take()
        if reach in {Reach.BUSY, Reach.DRAINED}:
            self._memory.retry(is_woken=reach is Reach.DRAINED)
        self._is_flowing = is_flowing and not self.rivals.count()
        self._room_ahead = room_ahead
        fetched: list[tuple[HeldRun, Taken]] = []
        trouble: CassqError | None = None
        for feed in self._sides():
            left = wanted - sum(taken.count for _, taken in fetched)
            if left <= 0 or (fetched and reach is Reach.BUSY):
                break
            try:
                feed(left, reach, fetched)
            except CassqError as error:
                # What was taken before is leased to this popper, so it is handed out; trouble that lasts
                # comes up again in the next round.
                trouble = error
        if trouble and not fetched:
            raise trouble
        return fetched

    def _sides(self) -> Sequence[_Feed]:
        """Return what is taken from: where messages of the queue have keys, those and others take turns."""
        if not uses_keys(self._record.settings):
            return [self._feed_plain]
        self._is_plain_first = bool(self._pipes.entries) and not self._is_plain_first
        return [self._feed_plain, self._feed_keyed][:: 1 if self._is_plain_first else -1]

    def _feed_plain(self, wanted: int, reach: Reach, fetched: list[tuple[HeldRun, Taken]]) -> None:
        if uses_priority(self._record.settings) and not self._pipes.is_read_within(BETTER_S):
            self._list()
        before = len(fetched)
        self._round(self._pipes.entries, wanted, fetched)
        if len(fetched) == before and reach is not Reach.KNOWN:
            known = {entry.pipe for entry in self._pipes.entries}
            self._list()
            # What was empty a moment ago is looked at again only where its pusher has gone on since.
            gone_on = {entry.source for entry in self._pipes.entries if entry.pipe not in known}
            self._round([e for e in self._pipes.entries if e.source in gone_on], wanted, fetched)

    def _feed_keyed(self, wanted: int, reach: Reach, fetched: list[tuple[HeldRun, Taken]]) -> None:
        if self._is_finishing:
            return
        if reach is Reach.DRAINED:
            self._slots.retry()
        with self.beginning:
            found = self._slots.feed(wanted, is_listing=False)
            if not found and reach in {Reach.BUSY, Reach.DRAINED}:
                found = self._slots.feed(wanted, is_listing=True)
        fetched += found

    def check_may_take(self) -> None:
        """Raise `CoordinationUnavailableError` while takes are not allowed."""
        if not self._coordinator.may_take():
            self.let_go()  # also of what the session may still hold when it is back
            raise CoordinationUnavailableError(
                f"{self._coordinator} is out of reach, so no pipe may be claimed: pops wait for it"
            )

    def share(self) -> None:
        """After a take: when others are hungry, let go of what may feed them, and wake them."""
        if self._slots and self.rivals.count_all() and (left := self._slots.leave_some()):
            self.rivals.wake_any(left)  # a slot has messages of all types
        if not (self._claims or self._opener.has_any):
            return
        held = self._claims.types
        wanted = [kind for kind in held if self.rivals.count((kind,))]
        if not wanted and (held or not self.rivals.count()):
            return
        self._opener.drop()
        for kind, count in self._claims.leave_some(wanted).items():
            self.rivals.wake(count, (kind,))

    def listen(self, on_end_asked: Callable[[], None], on_free: Callable[[], None]) -> None:
        """Have functions called from consumers' threads.

        Args:
            on_end_asked: when `tend` has something to do.
            on_free: when a key may have become free, for which something is held.
        """
        self._opener.listen(on_end_asked)
        self._slots.on_free = on_free

    def tend(self) -> None:
        """End the windows whose consumers ask for it, and those whose time is over."""
        self._claims.tend()

    def end_windows(self) -> None:
        """End every window, so that what was handed out of it can be extended and given back."""
        self._claims.end_windows()

    def keep_up(self) -> list[HeldRun]:
        """Extend the leases of what waits for its key; return the runs of that."""
        return self._slots.keep_up() if self._slots else []

    @property
    def is_holding(self) -> bool:
        """Whether it has messages that wait for their keys."""
        return self._slots.is_holding

    def leave(self) -> None:
        """Give up every claim, but for slots of which something is held: that is of no use to others."""
        self._claimer.let_go()
        self._slots.leave_empty()

    def leave_slots(self) -> None:
        """Give up such slots where anybody waits, of whatever types."""
        if self._slots and self.rivals.count_all():
            self._slots.leave_empty()

    def let_go(self) -> None:
        """Give up every claim."""
        self._claimer.let_go()
        self._slots.let_all_go()

    def finish(self) -> None:
        """Begin no other take, and wait for the turn of one but a moment longer; callable from any thread."""
        self._is_finishing = True
        self.beginning.bring_forward(self._clock.now() + CLOSING_S)

    def close(self) -> None:
        """Give up every claim, for good."""
        self.let_go()
        self._opener.close()

    @property
    def is_empty(self) -> bool:
        """Whether the queue had no pipe when it was last looked at: so nothing of it comes due."""
        return not (self._pipes.entries or self._slots.has_any)

    def trouble(self) -> CorruptError | None:
        """Return why a pipe of the queue cannot be read, if that is so."""
        return self._memory.trouble

    def next_due(self) -> float:
        """Return in how many seconds something known may come due; at most REST_S."""
        return min([*self._claims.next_due(), self._memory.next_end(REST_S), self._slots.next_due()])

    def _round(self, entries: Sequence[PipeEntry], wanted: int, fetched: list[tuple[HeldRun, Taken]]) -> None:
        order = self._claimer.round(entries)
        for entry in order:
            if wanted <= 0 or self._is_finishing:
                return
            claimed = self._claims.get(entry.pipe) or self._claimer.claim(entry)
            before = len(fetched)
            if claimed and entry.due_class:
                self._take_due(claimed, wanted, fetched)
                found = [taken for _, taken in fetched[before:]]
                wanted -= sum(taken.count_due(claimed.owned.estimate_now_ms()) for taken in found)
                if sum(taken.count for taken in found) >= DUE_MIN:
                    return
                continue
            if claimed:
                if 0 < claimed.owned.left <= wanted and not self.rivals.count():
                    self._claimer.open_ahead(order.ahead())
                self._take(claimed, wanted, fetched)
            taken = sum(taken.count for _, taken in fetched[before:])
            wanted -= taken
            is_in_turn = not entry.due_class and self._context.settings.pop_width == 1
            if is_in_turn and self._memory.may_have_older(entry.pipe):
                order.hold_back(entry)
            if claimed and taken and (claimed.owned.may_have_more or taken >= HAUL_MIN):
                # As much as one take may carry: the rest comes from here, not from a younger pipe. Or enough
                # to work on while the next pipe is claimed and loaded.
                return

    def _take_due(self, claimed: Claimed, wanted: int, fetched: list[tuple[HeldRun, Taken]]) -> None:
        """Take what is near its due time, from a pipe of such messages, and leave it alone until more is."""
        owned = claimed.owned
        before = len(fetched)
        owned.horizon.ahead_ms = AHEAD_MS if self._room_ahead else 0
        if self._room_ahead:
            most = DUE_MIN if is_pile(owned.entry.due_class) else TAKE_MESSAGES_MAX
            wanted = max(wanted, min(self._room_ahead, most))
        self._take(claimed, wanted, fetched)
        self._room_ahead = max(0, self._room_ahead - sum(taken.count for _, taken in fetched[before:]))
        if owned.pipe in self._claims and owned.horizon.rests_ms:
            rests_s = owned.next_due() or 0.0
            if rests_s > LOOK_S:
                self._claims.let_go(owned.pipe)
                self._memory.note_not_due(owned.pipe, owned.sent_at, min(rests_s, SORTED_REST_S))

    def _list(self) -> None:
        with self.beginning:
            self._pipes.refresh(self._record.publications)
        self._claimer.keep_listed()

    def _take(self, claimed: Claimed, wanted: int, fetched: list[tuple[HeldRun, Taken]]) -> None:
        """Take from one pipe; where there is nothing, see what became of it."""
        pipe = claimed.owned.pipe
        try:
            if not self._claims.is_held(pipe):
                # The session may have lasted all the same: a claim that nobody knew of would keep the pipe.
                self._claims.let_go(pipe)
                return
            taken = self._take_once(claimed, wanted, fetched)
            if pipe not in self._claims:
                return
            if claimed.owned.is_exhausted:
                self._memory.note_exhausted(pipe)
            if claimed.owned.is_over:
                self._claims.settle_exhausted(claimed)
            elif (
                not taken
                and self._claims.is_worth_a_look(claimed, is_flowing=self._is_flowing)
                and self._claims.look(claimed)
            ):
                if not claimed.owned.is_at_rest:
                    self._take_once(claimed, wanted, fetched)
                self._claims.settle_exhausted(claimed)
        except CorruptError as error:
            self._memory.note_spoilt(pipe, error, REST_S)
            self._claims.let_go(pipe)
            self._record.read()  # what was deleted with its queue is no damage
            _log.exception("queue %s: pipe %s cannot be read; it is left alone", self._queue, pipe)
            raise
        except CassqError:
            # What may have been leased by a lost transaction comes back when its lease ends.
            self._claims.let_go(pipe)
            raise

    def _take_once(self, claimed: Claimed, wanted: int, fetched: list[tuple[HeldRun, Taken]]) -> bool:
        owned = claimed.owned
        # Without a window in hand a take that got no turn leaves nothing behind.
        with nullcontext() if owned.window else self.beginning:
            result = owned.take(wanted, is_flowing=self._is_flowing)
        if result is None:
            self._claims.let_go(owned.pipe)
            return False
        fetched.extend((self._claims.hold(claimed, result, taken), taken) for taken in result.runs)
        for taken in result.dead:
            owned.bury(taken)
        return bool(result.runs or result.dead)
