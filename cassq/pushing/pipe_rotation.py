"""The pipes of one lane: the one that is pushed into, the next one, and those still to be sealed.

Owns the pusher's part of the protocol that is about pipes: open, roll, seal. What must not break: a pipe id
is tried once, a head is written before its pipe is listed, and a pipe that was given up takes nothing more.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, OutcomeUnknownError
from cassq.model.ids import Source, new_pipe_id, new_token
from cassq.model.pipe import Head, PipeEntry
from cassq.model.schedule import is_pile, least_lead_s, open_max_s
from cassq.model.shelf import first_shelf
from cassq.model.transaction import Seal, Transaction
from cassq.pipes import upkeep, window_steps
from cassq.pipes.fenced_pipe import FencedPipe, Taker
from cassq.runtime.deadline import Deadline, seconds_left

_log = logging.getLogger("cassq.pusher")

#: From this part of a pipe's messages, bytes or age on, the next one is opened.
OPEN_AHEAD = 0.5

#: A pipe that is being opened ahead is waited for so long at most, by a caller that has the time.
AHEAD_S = 60.0

#: Messages come to a pile by so much before their turn, mostly: what is due earlier has another one opened.
DISORDER_MS = 1000

#: A seal that failed is tried again after so long. It has as long itself, for a push may come in behind it.
RETRY_S = 1.0


@dataclass(slots=True)
class OpenPipe:
    """The pipe that a lane pushes into.

    Attributes:
        opened_at: the clock's latest reading from before the head was written.
        acked: number of the last acknowledged message.
        size: bytes of the acknowledged bodies.
        due_from_ms: of a pile: nothing in it is due before.
    """

    pipe: UUID
    opened_at: float
    acked: int = 0
    size: int = 0
    due_from_ms: int = 0


def due_from_ms(due_class: int, due_ms: int, latest_ms: int) -> int:
    """Return from when on messages may be due in a pile that is opened now: its id has that time.

    Args:
        due_ms: when the first of those that are there is due.
        latest_ms: what the database's clock shows at the most.
    """
    return min(latest_ms + round(1000 * least_lead_s(due_class)), due_ms) - DISORDER_MS


class PipeRotation:
    """Opens, rolls and seals the pipes of one lane.

    Args:
        latest_ms: returns what the database's clock shows at the most.
    """

    def __init__(
        self,
        context: QueueContext,
        source: Source,
        executor: Executor,
        latest_ms: Callable[[], int],
    ) -> None:
        self._latest_ms = latest_ms
        self._is_pile = is_pile(source.due_class)
        self._context = context
        self._storage = context.storage
        self._queue = context.queue
        self._source = source
        self._executor = executor
        self._clock = context.clock
        self._current: OpenPipe | None = None
        self._next: Future[OpenPipe] | None = None
        self._unsealed: list[OpenPipe] = []

    def give_up(self) -> None:
        """Push nothing more into the current pipe; whoever calls this settles where it ends."""
        self._current = None

    def writable(self, count: int, size: int, due_ms: int = 0) -> OpenPipe:
        """Return a pipe with room for so much, rolling to the next one when the current one is full.

        Args:
            due_ms: when the first of the messages is due, where they are.
        """
        current = self._current
        if current and (due_ms < current.due_from_ms or not self._has_room(current, count, size)):
            self._current = None
            self.finish(current)
        if self._current is None:
            ahead = self._take_next()
            if ahead and not self._has_room(ahead, count, size):
                self.finish(ahead)
                ahead = None
            self._current = ahead or self._open(due_ms)
        if self._next is None and not self._is_pile and self._is_well_used(self._current):
            self._next = self._executor.submit(self._open)
        return self._current

    def _take_next(self) -> OpenPipe | None:
        ahead, self._next = self._next, None
        try:
            return ahead.result(seconds_left(self._clock, AHEAD_S)) if ahead else None
        except TimeoutError:
            if ahead:
                # What is opened instead is younger, and poppers take pipes by age: this one is never used.
                ahead.add_done_callback(self._seal_overtaken)
            return None
        except Exception:  # tried again where a push needs a pipe, and told there
            return None

    def _seal_overtaken(self, ahead: "Future[OpenPipe]") -> None:
        """Seal a pipe that was opened too late, at once: while it is open, poppers of width 1 wait for it."""
        if not ahead.exception():
            self.finish(ahead.result())

    def _has_room(self, opened: OpenPipe, count: int, size: int) -> bool:
        settings = self._context.settings
        if self._age(opened) >= self._age_max_s:
            return False
        # An empty pipe takes any batch: the requests are cut so that one batch never exceeds a pipe.
        return opened.acked == 0 or (
            opened.acked + count <= settings.pipe_messages_max
            and opened.size + size <= settings.pipe_bytes_max
        )

    def _open(self, due_ms: int = 0) -> OpenPipe:
        # Outcome unknown: never the same id again. The next attempt takes a new one; what may be left
        # behind is an empty pipe, which poppers of width 1 wait for until somebody seals it.
        opened = OpenPipe(new_pipe_id(), self._clock.latest())
        if self._is_pile:
            # Keepers look at a pile when this is near; the messages of a lane come in about their order.
            opened.due_from_ms = due_from_ms(self._source.due_class, due_ms, self._latest_ms())
            opened.pipe = new_pipe_id(opened.due_from_ms)
        elif self._source.due_class:
            # Poppers read the list of these from some time before the database's clock on.
            opened.pipe = new_pipe_id(self._latest_ms() or None)
        try:
            self._storage.create_pipe(self._queue, self._entry(opened.pipe), Head(op=new_token()))
        except OutcomeUnknownError:
            self._unsealed.append(opened)
            raise
        return opened

    def finish(self, opened: OpenPipe) -> None:
        """Seal a pipe whose every batch is acknowledged; if that fails now, `tend` tries again.

        Nothing was sent behind the last one, so the seal looks at no cursor: a popper may hold a window.
        """
        try:
            answer = self._storage.transact(opened.pipe, Transaction(Seal(opened.acked, is_free=True)))
            if not answer.is_applied:
                self.check_end(opened, answer.last)
        except OutcomeUnknownError:
            self._unsealed.append(opened)
        except Exception:  # a seal that fails must not end the thread everybody pushes through
            # Certainly not sealed. Past the age at which the reaper takes over, it is the reaper's.
            if self._age(opened) < self._reaped_after():
                self._unsealed.append(opened)

    def check_end(self, opened: OpenPipe, last: int | None) -> None:
        """Say aloud when a pipe that others closed ends before what was acknowledged: a loss, seen late."""
        if last is not None and last < opened.acked:
            _log.error(
                "queue %s: messages %d to %d of pipe %s were acknowledged and are lost: others closed the "
                "pipe behind message %d while this machine was paused for longer than push_grace, which no "
                "clock of it showed; push them again, and give the queue a longer push_grace",
                *(self._queue, last + 1, opened.acked, opened.pipe, last),
            )

    def end_window(self, opened: OpenPipe) -> CassqError:
        """Do a step towards the end of a popper's window; return what to tell those who cannot wait longer.

        A window tells nothing of what was handed out. By a forced seal no other one begins; then this one is
        cut by its holder, or here once it is over.
        """
        try:
            state = self._storage.load_pipe(opened.pipe)
            if state and state.window:
                entry = self._entry(opened.pipe)
                fenced = FencedPipe(self._context, entry, state, Taker(entry.pusher))
                if upkeep.seal(fenced):
                    window_steps.take_over(fenced)
        except CassqError as error:
            return error
        return OutcomeUnknownError(f"a popper holds a window of pipe {opened.pipe}")

    def _entry(self, pipe: UUID) -> PipeEntry:
        source = self._source
        return PipeEntry(
            *(pipe, source.pusher, source.priority, source.lane, source.type),
            due_class=source.due_class,
            slot=source.slot,
            shelf=first_shelf(source.due_class, source.slot),
        )

    @property
    def _age_max_s(self) -> float:
        return open_max_s(self._source.due_class, self._context.settings)

    def _reaped_after(self) -> float:
        return self._age_max_s + self._context.settings.push_grace.total_seconds()

    def _age(self, opened: OpenPipe) -> float:
        return self._clock.latest() - opened.opened_at

    def _is_well_used(self, opened: OpenPipe) -> bool:
        return (
            opened.acked >= OPEN_AHEAD * self._context.settings.pipe_messages_max
            or opened.size >= OPEN_AHEAD * self._context.settings.pipe_bytes_max
            or self._age(opened) >= OPEN_AHEAD * self._age_max_s
        )

    def is_late(self, opened: OpenPipe) -> bool:
        """Tell whether an acknowledgement that comes now must not be believed without a look at the head."""
        return self._age(opened) > self._age_max_s + self._context.settings.push_grace.total_seconds() / 2

    def tend(self) -> float:
        """Seal what is too old, and what could not be sealed before; never raises.

        Returns: seconds until it should be called again.
        """
        with Deadline(self._clock.now() + RETRY_S):
            return self._tend()

    def _tend(self) -> float:
        age_max = self._age_max_s
        if self._current and self._age(self._current) >= age_max:
            old, self._current = self._current, None
            self.finish(old)
        # One that is still being opened is not waited for: what is pushed now may fit into the current one.
        ahead = self._take_next() if self._next and self._next.done() else None
        if ahead and self._age(ahead) >= age_max:
            self.finish(ahead)
            ahead = None
        if ahead:
            self._next = Future()
            self._next.set_result(ahead)
        for opened in self._unsealed[:]:
            self._unsealed.remove(opened)
            self.finish(opened)
            if opened in self._unsealed:
                break  # the database does not answer: the others would only hold up a push
        if self._unsealed:
            return RETRY_S
        opened_at = [opened.opened_at for opened in (self._current, ahead) if opened]
        now = self._clock.latest()
        return max(0.0, min(opened_at, default=now) + age_max - now)

    def close(self) -> None:
        """Seal what is open. A pipe that cannot be sealed now is left to the reaper."""
        for opened in (self._current, self._take_next(), *self._unsealed):
            if opened:
                self.finish(opened)
        self._current = None
        self._unsealed.clear()
