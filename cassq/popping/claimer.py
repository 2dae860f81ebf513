"""Which pipes one popper claims next, and which it leaves alone for now.

Owns what a pipe must be to be claimed: listed, not known to be gone, not left alone, near its due times; and
room for it. Refuses to take. What must not break: a claim that was granted is among the claims, or given up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CorruptError
from cassq.model.ids import id_time_ms
from cassq.model.pipe import PipeEntry
from cassq.model.schedule import AHEAD_MS, is_pile
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.pipe_list import PipeList
from cassq.pipes.pipe_order import PipeRound
from cassq.popping.claims import Claimed, Claims
from cassq.popping.pipe_backoff import GonePipes, PipeBackoff
from cassq.popping.pipe_opener import AHEAD_MAX, PipeOpener, Refusal
from cassq.popping.timing import REST_S
from cassq.runtime.background_thread import BackgroundThread


class Claimer:
    """Claims pipes of one queue for one popper.

    Args:
        taker: who works on them.
        gone: pipes of the queue that this process found gone.
        on_pipe_over: called with pipes that may retire.

    Attributes:
        pipes: the pipes of the queue.
        memory: those that are left alone.
        claims: those that are claimed.
        opener: opens them, also ahead.
    """

    def __init__(
        self,
        context: QueueContext,
        holder: str,
        taker: Taker,
        gone: GonePipes,
        on_pipe_over: Callable[[UUID], None],
    ) -> None:
        self._context = context
        self._clock = context.clock
        self._gone = gone
        self._on_pipe_over = on_pipe_over
        self._until: Mapping[UUID, int] | None = None
        threads = [BackgroundThread(f"cassq-ahead-{context.queue}") for _ in range(AHEAD_MAX)]
        self.opener = PipeOpener(context, holder, replace(taker, beside=threads[0]), threads)
        self.pipes = PipeList(context)
        self.memory = PipeBackoff(context.clock)
        self.claims = Claims(context, holder, self.pipes, self.memory, on_pipe_over)

    def stop_at(self, until: Mapping[UUID, int]) -> None:
        """Claim no other pipes than these, to take nothing fresh behind the number given."""
        self._until = until
        self.let_go()

    def let_go(self) -> None:
        """Give up every claim."""
        self.opener.drop()
        self.claims.let_all_go()

    def leave(self) -> None:
        """Give up what may feed others."""
        self.opener.drop()
        self.claims.leave()

    def keep_listed(self) -> None:
        """Give up, and forget, what is not listed any more."""
        listed = {entry.pipe for entry in self.pipes.entries}
        self.claims.keep_only(listed)
        self.opener.keep_only(listed)
        self.memory.keep_only(listed)

    def round(self, entries: Sequence[PipeEntry]) -> PipeRound:
        """Return the order in which to take from pipes."""
        return PipeRound(entries, self._until)

    def claim(self, entry: PipeEntry) -> Claimed | None:
        """Claim a pipe and load it; None when it is busy, resting or gone.

        Raises: CassqError: it could not be loaded; the claim was given up.
        """
        if entry.pipe in self._gone:
            self._forget(entry.pipe)
            return None
        if self.memory.is_left_alone(entry.pipe) or self._is_far(entry):
            return None
        if len(self.claims) >= self._context.settings.pop_width and not self.claims.make_room(entry):
            return None
        try:
            opened = self.opener.open(entry)
        except CorruptError as error:
            self.memory.note_spoilt(entry.pipe, error, REST_S)
            raise
        if opened is Refusal.BUSY:
            self.memory.note_busy(entry.pipe, is_urgent=entry.priority > 0)
            return None
        self.memory.note_claimed(entry.pipe)
        if opened is Refusal.GONE:
            self._gone.note(entry.pipe)
            self._forget(entry.pipe)
            self._on_pipe_over(entry.pipe)
            return None
        if self._until is not None:
            opened.horizon.until = self._until[entry.pipe]
        return self.claims.add(opened)

    def open_ahead(self, entries: Sequence[PipeEntry]) -> None:
        """Begin to open the next pipes, so that they are at hand when this one is through."""
        self.opener.open_ahead(
            entry
            for entry in entries[:AHEAD_MAX]
            if entry.pipe not in self.claims
            and not self.memory.is_left_alone(entry.pipe)
            and (self._until is None or entry.pipe in self._until)
        )

    def _forget(self, pipe: UUID) -> None:
        self.pipes.forget(pipe)
        self.memory.note_exhausted(pipe)

    def _is_far(self, entry: PipeEntry) -> bool:
        """Tell by its id whether nothing of a sorted pipe is near; then it is left alone for as long."""
        if not is_pile(entry.due_class):
            return False
        far_s = (id_time_ms(entry.pipe) - AHEAD_MS - self.pipes.estimate_now_ms()) / 1000
        if far_s > 0:
            self.memory.note_not_due(entry.pipe, self._clock.now(), far_s)
        return far_s > 0
