"""Finds messages for one intake or run reader: claims pipes, takes from them, lets them go.

Owns which pipes this popper claims and for how long. Refuses to know consumers: it is told how many
messages are wanted and returns what it took. What must not break: with a width of 1, nothing is taken from
a pipe while an older one of the same pusher may still have something.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import Enum
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, CoordinationUnavailableError, CorruptError
from cassq.model.pipe import Mark, Phase, PipeEntry, Run, RunState
from cassq.model.take_plan import Taken
from cassq.pipes import upkeep, window_steps
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.held_run import HeldRun
from cassq.pipes.held_window import HeldWindow
from cassq.pipes.owned_pipe import OwnedPipe, TakeResult
from cassq.pipes.pipe_list import PipeList
from cassq.popping.pipe_backoff import GonePipes, PipeBackoff
from cassq.popping.pipe_opener import AHEAD_MAX, PipeOpener, Refusal
from cassq.popping.timing import BUSY_S, COURTESY_S, LOOK_S, LOOK_SOON_S, REST_S, WINDOW_LOOK_S
from cassq.runtime.background_thread import BackgroundThread
from cassq.runtime.deadline import CLOSING_S, Deadline
from cassq.runtime.reentry import noted

_log = logging.getLogger("cassq.popper")

#: So many messages are handed out before another pipe is claimed for more.
HAUL_MIN = 500


class Reach(Enum):
    """Into which pipes one look for messages goes."""

    #: Where there was something a moment ago; the pipes are not listed anew.
    KNOWN = "known"
    #: Likewise; where that gives nothing, the pipes are listed anew.
    LISTED = "listed"
    #: Also where another popper held the pipe a moment ago.
    BUSY = "busy"
    #: Also where there was nothing a moment ago: somebody says that something came.
    DRAINED = "drained"


@dataclass(slots=True)
class Claimed:
    """A pipe this popper claims, when its head was last read, and the run of the window it has there."""

    owned: OwnedPipe
    looked_at: float
    window: HeldWindow | None = None
    window_run: HeldRun | None = None


class Fetcher:
    """Takes runs from the pipes of one queue for one popper.

    Args:
        holder: the name that claims are made under, unique.
        taker: who the runs are taken for; the holder, unless somebody else is to find them again.
        over: hears of pipes that may retire.
        gone: pipes of the queue that this process found gone.

    Attributes:
        holder: as above.
        beginning: the deadline of what brings messages in.
    """

    def __init__(
        self,
        context: QueueContext,
        holder: str,
        *,
        over: Callable[[UUID], None],
        taker: Taker | None = None,
        gone: GonePipes | None = None,
    ) -> None:
        self.holder = holder
        self._context = context
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._settings = context.settings
        self._clock = context.clock
        self._record = context.record
        self._over = over
        threads = [BackgroundThread(f"cassq-ahead-{context.queue}") for _ in range(AHEAD_MAX)]
        self.beginning = Deadline(float("inf"))
        self._is_finishing = False
        self._asked: Callable[[], None] = lambda: None
        taker = replace(taker or Taker(holder), beside=threads[0], asked=self._hear)
        self._opener = PipeOpener(context, holder, taker, threads)
        self._pipes = PipeList(context)
        self._claimed: dict[UUID, Claimed] = {}
        self._memory = PipeBackoff(context.clock)
        self._gone = gone or GonePipes()
        self._is_flowing = False
        self._until: Mapping[UUID, int] | None = None

    def stop_at(self, until: Mapping[UUID, int]) -> None:
        """Take from no other pipes than these, and from each nothing fresh behind the number given."""
        self._until = until
        for pipe in list(self._claimed):
            self._let_go(pipe, 0.0)
        self._opener.drop()

    def feed(
        self,
        wanted: int,
        reach: Reach = Reach.LISTED,
        *,
        is_flowing: bool = False,
    ) -> list[tuple[HeldRun, Taken]]:
        """Take up to about `wanted` messages, from the oldest pipes first.

        Args:
            is_flowing: messages come fast, so windows are worth it, unless others are hungry.

        Raises:
            CoordinationUnavailableError: takes are not allowed now.
            StorageUnavailableError: the database cannot be read.
        """
        self.check_may_take()
        if reach in {Reach.BUSY, Reach.DRAINED}:
            self._memory.retry(is_woken=reach is Reach.DRAINED)
        self._is_flowing = is_flowing and not self._coordinator.hungry(self._queue, besides=self.holder)
        fetched: list[tuple[HeldRun, Taken]] = []
        try:
            self._round(self._pipes.entries, wanted, fetched)
            if not fetched and reach is not Reach.KNOWN:
                known = {entry.pipe for entry in self._pipes.entries}
                with self.beginning:
                    self._pipes.refresh(self._record.publications)
                self._drop_unlisted()
                # What was empty a moment ago is looked at again only where its pusher has gone on since.
                entries = self._pipes.entries
                gone_on = {entry.source for entry in entries if entry.pipe not in known}
                news = [entry for entry in entries if entry.source in gone_on]
                self._round(news, wanted, fetched)
        except CassqError:
            # What was taken before is leased to this popper, so it is handed out; trouble that lasts comes
            # up again in the next round.
            if not fetched:
                raise
        return fetched

    def check_may_take(self) -> None:
        """Raise `CoordinationUnavailableError` while takes are not allowed."""
        if not self._coordinator.may_take():
            self.let_go()  # also of what the session may still hold when it is back
            raise CoordinationUnavailableError(
                f"{self._coordinator} is out of reach, so no pipe may be claimed: pops wait for it"
            )

    def share(self) -> None:
        """After a take: when others are hungry, let go of what may feed them, and wake them."""
        has_any = self._claimed or self._opener.has_any
        hungry = self._coordinator.hungry(self._queue, besides=self.holder) if has_any else 0
        if not hungry:
            return
        self._opener.drop()
        spare = [claimed.owned for claimed in self._claimed.values()]
        full = [owned for owned in spare if owned.may_have_more]
        # Of several full pipes half are enough for the others; what is empty is of no use here.
        given = [owned for owned in spare if owned not in full] + full[len(full) // 2 :]
        for owned in given:
            self._let_go(owned.pipe, COURTESY_S)
        # What looked empty may have been pushed into since, for a popper that found it claimed: one read here
        # spares the others a claim, a load and a read for nothing.
        woken = sum(owned in full or owned.has_news() for owned in given)
        if woken:
            self._coordinator.wake(self._queue, min(woken, hungry), besides=self.holder)

    def on_asked(self, asked: Callable[[], None]) -> None:
        """Have `asked` called, from consumers' threads, when `tend` has something to do."""
        self._asked = asked

    def _hear(self) -> None:
        self._asked()

    def tend(self) -> None:
        """End the windows whose consumers ask for it, and those whose time is over."""
        now = self._clock.latest()
        for pipe, claimed in list(self._claimed.items()):
            window = claimed.owned.window
            if window and (window.is_asked or now >= window.ends_at) and not self._end_window(claimed):
                self._let_go(pipe, 0.0)

    def end_windows(self) -> None:
        """End every window, so that what was handed out of it can be extended and given back."""
        for pipe, claimed in list(self._claimed.items()):
            if not self._end_window(claimed):
                self._let_go(pipe, 0.0)

    def let_go(self) -> None:
        """Give up every claim."""
        self._opener.drop()
        for pipe in list(self._claimed):
            self._let_go(pipe, 0.0)

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
        return not self._pipes.entries

    def trouble(self) -> CorruptError | None:
        """Return why a pipe of the queue cannot be read, if that is so."""
        return self._memory.trouble

    def next_due(self) -> float:
        """Return in how many seconds something known may come due; at most REST_S."""
        due = [claimed.owned.next_due() for claimed in self._claimed.values()]
        return min([seconds for seconds in due if seconds is not None] + [self._memory.next_end(REST_S)])

    def _round(self, entries: Sequence[PipeEntry], wanted: int, fetched: list[tuple[HeldRun, Taken]]) -> None:
        held_back: set[tuple[str, int]] = set()
        for place, entry in enumerate(entries):
            if wanted <= 0 or self._is_finishing:
                return
            if entry.source in held_back or (self._until is not None and entry.pipe not in self._until):
                continue
            claimed = self._claimed.get(entry.pipe) or self._claim(entry)
            before = len(fetched)
            if claimed:
                if 0 < claimed.owned.left <= wanted:
                    self._open_ahead(entries[place + 1 :])
                self._take(claimed, wanted, fetched)
            taken = sum(taken.count for _, taken in fetched[before:])
            wanted -= taken
            if self._settings.pop_width == 1 and self._memory.may_have_older(entry.pipe):
                held_back.add(entry.source)
            if claimed and taken and (claimed.owned.may_have_more or taken >= HAUL_MIN):
                # As much as one take may carry: the rest comes from here, not from a younger pipe. Or enough
                # to work on while the next pipe is claimed and loaded.
                return

    def _take(self, claimed: Claimed, wanted: int, fetched: list[tuple[HeldRun, Taken]]) -> None:
        """Take from one pipe; where there is nothing, see what became of it."""
        pipe = claimed.owned.pipe
        try:
            if not self._coordinator.is_held(self._queue, pipe, self.holder):
                # The session may have lasted all the same: a claim that nobody knew of would keep the pipe.
                self._let_go(pipe, 0.0)
                return
            taken = self._take_once(claimed, wanted, fetched)
            if pipe not in self._claimed:
                return
            if claimed.owned.is_exhausted:
                self._memory.note_exhausted(pipe)
            if claimed.owned.is_over:
                self._settle_exhausted(claimed)
            elif not taken and self._is_worth_a_look(claimed):
                self._look(claimed)
                if pipe in self._claimed:
                    if not claimed.owned.is_at_rest:
                        self._take_once(claimed, wanted, fetched)
                    self._settle_exhausted(claimed)
        except CorruptError as error:
            self._memory.note_spoilt(pipe, error, REST_S)
            self._let_go(pipe, 0.0)
            self._record.read()  # what was deleted with its queue is no damage
            _log.exception("queue %s: pipe %s cannot be read; it is left alone", self._queue, pipe)
            raise
        except CassqError:
            # What may have been leased by a lost transaction comes back when its lease ends.
            self._let_go(pipe, 0.0)
            raise

    def _take_once(self, claimed: Claimed, wanted: int, fetched: list[tuple[HeldRun, Taken]]) -> bool:
        owned = claimed.owned
        # Without a window in hand a take that got no turn leaves nothing behind.
        with nullcontext() if owned.window else self.beginning:
            result = owned.take(wanted, is_flowing=self._is_flowing)
        if result is None:
            self._let_go(owned.pipe, 0.0)
            return False
        fetched.extend((self._hold_taken(claimed, result, taken), taken) for taken in result.runs)
        for taken in result.dead:
            owned.bury(taken)
        return bool(result.runs or result.dead)

    def _hold_taken(self, claimed: Claimed, result: TakeResult, taken: Taken) -> HeldRun:
        if result.window and result.window is claimed.window and claimed.window_run:
            claimed.window_run.grow(taken)
            return claimed.window_run
        pipe = claimed.owned.pipe
        ends_at = result.sent_at + taken.run.lease_ms / 1000
        held = HeldRun(self._context, pipe, taken, ends_at, told=self._tell(pipe), window=result.window)
        if result.window:
            claimed.window, claimed.window_run = result.window, held
        return held

    def _end_window(self, claimed: Claimed) -> bool:
        """End the window that is held, if any; False when that failed: the pipe is to be let go."""
        owned = claimed.owned
        try:
            return owned.window is None or window_steps.cut(owned)
        except CassqError as error:
            _log.info("queue %s: a window of pipe %s was not ended: %s", self._queue, owned.pipe, error)
        except Exception:  # whoever lets go of its pipes lets go of all of them, whatever happens
            _log.exception("queue %s: a window of pipe %s was not ended", self._queue, owned.pipe)
        return False

    def _tell(self, pipe: UUID) -> Callable[[Mark | Run], None]:
        def told(note: Mark | Run) -> None:
            claimed = self._claimed.get(pipe)
            if claimed:
                claimed.owned.note(note)
            is_returned = isinstance(note, Run) and note.state is RunState.RETURNED
            if is_returned:
                self._memory.note_returned(pipe)
            is_due = isinstance(note, Run) and is_returned and not note.not_before_ms
            if not is_due:
                return
            with noted():  # a push asks who is hungry, too
                if self._coordinator.hungry(self._queue):
                    self._coordinator.wake(self._queue, 1)

        return told

    def _claim(self, entry: PipeEntry) -> Claimed | None:
        """Claim a pipe and load it; None when it is busy, resting or gone."""
        if entry.pipe in self._gone:
            self._drop_gone(entry.pipe)
            return None
        if self._memory.is_left_alone(entry.pipe):
            return None
        if len(self._claimed) >= self._settings.pop_width and not self._make_room():
            return None
        try:
            opened = self._opener.open(entry)
        except CorruptError as error:
            self._memory.note_spoilt(entry.pipe, error, REST_S)
            raise
        if opened is Refusal.BUSY:
            self._memory.note_busy(entry.pipe)
            return None
        self._memory.note_claimed(entry.pipe)
        if opened is Refusal.GONE:
            self._gone.note(entry.pipe)
            self._drop_gone(entry.pipe)
            self._over(entry.pipe)
            return None
        if self._until is not None:
            opened.until = self._until[entry.pipe]
        claimed = self._claimed[entry.pipe] = Claimed(opened, opened.sent_at)
        self._settle_exhausted(claimed)
        return self._claimed.get(entry.pipe)

    def _drop_gone(self, pipe: UUID) -> None:
        self._pipes.forget(pipe)
        self._memory.note_exhausted(pipe)

    def _open_ahead(self, entries: Sequence[PipeEntry]) -> None:
        """Begin to open the next pipes, so that they are at hand when this one is through."""
        if not self._coordinator.hungry(self._queue, besides=self.holder):
            self._opener.open_ahead(
                entry
                for entry in entries[:AHEAD_MAX]
                if entry.pipe not in self._claimed
                and not self._memory.is_left_alone(entry.pipe)
                and (self._until is None or entry.pipe in self._until)
            )

    def _make_room(self) -> bool:
        """Let one pipe go that has nothing to take, so that another can be claimed."""
        for pipe, claimed in self._claimed.items():
            if not claimed.owned.may_have_more:
                self._let_go(pipe, BUSY_S)
                return True
        return False

    def _is_worth_a_look(self, claimed: Claimed) -> bool:
        if claimed.owned.head.phase is Phase.OPEN and self._pipes.is_abandoned(claimed.owned.entry):
            return True  # it is to be sealed, and a reaper cannot while it is claimed
        since = self._clock.now() - claimed.looked_at
        due = claimed.owned.next_due()
        if claimed.owned.window and self._is_flowing:
            # A seal is noticed by the next renewal; what is news is a lease that ran out.
            return since >= (LOOK_S if due is not None and due <= 0 else WINDOW_LOOK_S)
        # Of a pipe whose every message was handed out only what comes back is news.
        may_be_sealed = not claimed.owned.is_exhausted and self._pipes.has_successor(claimed.owned.entry)
        is_soon = may_be_sealed or (due is not None and due <= 0)
        return since >= (LOOK_SOON_S if is_soon else LOOK_S)

    def _look(self, claimed: Claimed) -> None:
        """Read a pipe anew: was it sealed, did something come back, is its pusher gone?"""
        owned = claimed.owned
        claimed.looked_at = self._clock.now()
        is_there = owned.look()
        if is_there and self._pipes.is_abandoned(owned.entry):
            self._record.read()
            is_there = upkeep.seal(owned) and upkeep.drain(owned)
        if not is_there:
            self._let_go(owned.pipe, 0.0)

    def _settle_exhausted(self, claimed: Claimed) -> None:
        """Let a pipe go whose every message was handed out; the reaper retires it."""
        owned = claimed.owned
        if not owned.is_exhausted or owned.pipe not in self._claimed:
            return
        self._memory.note_exhausted(owned.pipe)
        if owned.is_over:
            self._over(owned.pipe)
            self._let_go(owned.pipe, 0.0)
            self._memory.note_drained(owned.pipe, owned.sent_at, REST_S)
            return
        due = owned.next_due()
        if due is None or due > LOOK_SOON_S:
            # Somebody is working on the rest. It comes due when a lease ends, or sooner by a rollback.
            self._let_go(owned.pipe, 0.0)
            self._memory.note_drained(owned.pipe, owned.sent_at, min(LOOK_S if due is None else due, LOOK_S))

    def _let_go(self, pipe: UUID, rest_s: float) -> None:
        claimed = self._claimed.pop(pipe, None)
        if claimed:
            self._end_window(claimed)
        self._memory.note_rest(pipe, rest_s)
        self._coordinator.release(self._queue, pipe, self.holder)

    def _drop_unlisted(self) -> None:
        listed = {entry.pipe for entry in self._pipes.entries}
        for pipe in [pipe for pipe in self._claimed if pipe not in listed]:
            self._let_go(pipe, 0.0)
        self._opener.keep_only(listed)
        self._memory.keep_only(listed)
