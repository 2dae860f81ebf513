"""Takes from the pipes that one popper claims, round by round, from the oldest on.

Owns how much is taken from which of them, and what becomes of a pipe that had nothing. Refuses to know
consumers, and slots. What must not break: with a width of 1, nothing is taken from a pipe while an older one
of the same pusher may still have something.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, CorruptError
from cassq.limits import TAKE_MESSAGES_MAX
from cassq.model.pipe import PipeEntry
from cassq.model.schedule import AHEAD_MS, is_pile
from cassq.model.take_plan import Taken
from cassq.model.uses import uses_priority
from cassq.pipes.held_run import HeldRun
from cassq.popping.claimer import Claimer
from cassq.popping.claims import Claimed
from cassq.popping.reach import Reach
from cassq.popping.rivals import Rivals
from cassq.popping.timing import BETTER_S, LOOK_S, REST_S, SORTED_REST_S
from cassq.runtime.deadline import Deadline

_log = logging.getLogger("cassq.popper")

#: So many messages are handed out before another pipe is claimed for more.
HAUL_MIN = 500

#: So many messages that come due are taken together, be it for a single consumer: each take is a transaction.
DUE_MIN = 1000


class Rounds:
    """Rounds over the pipes of one queue, for one popper; used by the fetch thread alone.

    Args:
        beginning: the deadline of what brings messages in.

    Attributes:
        rivals: the other poppers of the queue.
        is_finishing: no other take begins; set from any thread.
    """

    def __init__(self, context: QueueContext, claimer: Claimer, rivals: Rivals, beginning: Deadline) -> None:
        self._context = context
        self._queue = context.queue
        self._record = context.record
        self._claimer = claimer
        self._pipes = claimer.pipes
        self._memory = claimer.memory
        self._claims = claimer.claims
        self.rivals = rivals
        self._beginning = beginning
        self.is_finishing = False
        self._is_flowing = False
        self._room_ahead = 0

    def feed(
        self,
        wanted: int,
        reach: Reach,
        fetched: list[tuple[HeldRun, Taken]],
        *,
        is_flowing: bool,
        room_ahead: int,
    ) -> None:
        """Take up to about `wanted` messages.

        Args:
            fetched: what is taken is added to it; so nothing of that is lost where an error follows.
            is_flowing: messages come fast, and nobody else is hungry: windows are worth it.
            room_ahead: so many messages may be taken before they are due.
        """
        self._is_flowing = is_flowing
        self._room_ahead = room_ahead
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

    def _round(self, entries: Sequence[PipeEntry], wanted: int, fetched: list[tuple[HeldRun, Taken]]) -> None:
        order = self._claimer.round(entries)
        for entry in order:
            if wanted <= 0 or self.is_finishing:
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
        if owned.pipe in self._claims and owned.horizon.next_ms is not None:
            rests_s = owned.next_due() or 0.0
            if rests_s > LOOK_S:
                self._claims.let_go(owned.pipe)
                self._memory.note_not_due(owned.pipe, owned.sent_at, min(rests_s, SORTED_REST_S))

    def _list(self) -> None:
        with self._beginning:
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
        with nullcontext() if owned.window else self._beginning:
            result = owned.take(wanted, is_flowing=self._is_flowing)
        if result is None:
            self._claims.let_go(owned.pipe)
            return False
        fetched.extend((self._claims.hold(claimed, result, taken), taken) for taken in result.runs)
        for taken in result.dead:
            owned.bury(taken)
        return bool(result.runs or result.dead)
