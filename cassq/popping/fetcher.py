"""Finds messages for one intake or run reader: in the pipes that it claims, and in the slots that it has won.

Owns whose turn it is, and what is left to others. Refuses to know consumers: it is told how many messages are
wanted and returns what it took. What must not break: what was taken is returned, whatever fails after it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, CoordinationUnavailableError, CorruptError
from cassq.model.take_plan import Taken
from cassq.model.uses import uses_keys
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.popping.claimer import Claimer
from cassq.popping.pipe_backoff import GonePipes
from cassq.popping.reach import Reach
from cassq.popping.rivals import Rivals
from cassq.popping.rounds import Rounds
from cassq.popping.slots import Slots
from cassq.popping.timing import LOOK_S, REST_S
from cassq.runtime.deadline import CLOSING_S, Deadline

_Feed = Callable[[int, Reach, "list[tuple[HeldRun, Taken]]"], None]


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
        taker = taker or Taker(holder)
        self._is_lending = bool(taker.portions)  # what has a key is in no row that a token names
        self._claimer = Claimer(context, holder, taker, gone or GonePipes(), on_pipe_over)
        self._slots = Slots(context, holder, taker, on_pipe_over)
        self._pipes = self._claimer.pipes
        self._memory = self._claimer.memory
        self._claims = self._claimer.claims
        self._opener = self._claimer.opener
        self._rounds = Rounds(context, self._claimer, self.rivals, self.beginning)
        self._is_plain_first = False

    def take_only(self, types: Collection[str]) -> None:
        """Take only messages of these types; called before anything is taken."""
        self._pipes.types = self._slots.types = types
        self.rivals = self._rounds.rivals = Rivals(self._context, self.holder, types)

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
        is_flowing = is_flowing and not self.rivals.count()
        plain = partial(self._rounds.feed, is_flowing=is_flowing, room_ahead=room_ahead)
        fetched: list[tuple[HeldRun, Taken]] = []
        trouble: CassqError | None = None
        for feed in self._sides(plain):
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

    def _sides(self, plain: _Feed) -> Sequence[_Feed]:
        """Return what is taken from: where messages of the queue have keys, those and others take turns.

        Those without keys have none where there was no pipe of them a moment ago: each would read the list.
        """
        if self._is_lending or not uses_keys(self._record.settings):
            return [plain]
        may_have_plain = bool(self._pipes.entries) or not self._pipes.is_read_within(LOOK_S)
        self._is_plain_first = may_have_plain and not self._is_plain_first
        return [plain, self._feed_keyed][:: 1 if self._is_plain_first else -1]

    def _feed_keyed(self, wanted: int, reach: Reach, fetched: list[tuple[HeldRun, Taken]]) -> None:
        if self._rounds.is_finishing:
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

    def share(self, *, is_full: bool = False) -> None:
        """When others are hungry, let go of what may feed them, and wake them.

        Args:
            is_full: this popper has enough; else it took something just now.
        """
        own, foreign = self._slots.types_there()
        if own and self.rivals.count(own) and (left := self._slots.leave_some()):
            self.rivals.wake(left, own)
        self._leave_for_others(foreign)
        if not (self._claims or self._opener.has_any):
            return
        held = self._claims.types
        wanted = [kind for kind in held if self.rivals.count((kind,))]
        if not wanted and (held or not self.rivals.count()):
            return
        self._opener.drop()
        for kind, count in self._claims.leave_some(wanted, is_full=is_full).items():
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
        """Give up every claim, but for what is of no use to others: slots of which something is held, say."""
        self._claimer.leave()
        self._slots.leave_empty()

    def leave_slots(self) -> None:
        """Give up slots of which nothing is held where anybody waits, or others may take what they have.

        And those of which something is held, where others wait for types that it leaves out.
        """
        if not self._slots:
            return
        if self.rivals.count_all():
            self._slots.leave_empty()
        _, foreign = self._slots.types_there()
        self._leave_for_others(foreign)
        if foreign:
            self._slots.leave_for(foreign, is_held_kept=True)

    def _leave_for_others(self, foreign: Collection[str]) -> None:
        """Give up the slots that have something for others who wait, and of which it takes nothing itself."""
        wanted = [kind for kind in foreign if self.rivals.count((kind,))]
        if wanted and (left := self._slots.leave_for(wanted)):
            self.rivals.wake(left, wanted)

    def let_go(self) -> None:
        """Give up every claim."""
        self._claimer.let_go()
        self._slots.let_all_go()

    def finish(self) -> None:
        """Begin no other take, and wait for the turn of one but a moment longer; callable from any thread."""
        self._rounds.is_finishing = True
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
