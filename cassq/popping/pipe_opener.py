"""Claims and loads pipes for one popper, the next one while it still works on the one before.

Owns what lies between "that pipe should be next" and a pipe in hand: claim, load, first read. Refuses to
take: whatever is opened ahead may be dropped again, and nobody has noticed but who wanted to claim it
meanwhile. What must not break: a claim that was granted is handed out or given up.

    the popper's thread                 the thread beside it
    | take the rest of pipe 1 ------>   | claim pipe 2
    | hand it out                       | load it, read what waits
    | take from pipe 2, read already <- |
"""

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import CassqError, CoordinationUnavailableError, StorageUnavailableError
from cassq.limits import TAKE_MESSAGES_MAX
from cassq.model.pipe import PipeEntry
from cassq.pipes.fenced_pipe import Taker
from cassq.pipes.owned_pipe import OwnedPipe
from cassq.runtime.background_thread import BackgroundThread

_log = logging.getLogger("cassq.popper")

#: So many pipes are opened ahead: one takes about as long as two are worked off by a fast consumer.
AHEAD_MAX = 2


class Refusal(Enum):
    """Why a pipe was not opened."""

    BUSY = "busy"
    GONE = "gone"


class PipeOpener:
    """Opens pipes of one queue.

    Args:
        holder: the name of the claims.
        taker: who works on the pipes.
        threads: AHEAD_MAX of them, for what is done ahead.
    """

    def __init__(
        self, context: QueueContext, holder: str, taker: Taker, threads: Sequence[BackgroundThread]
    ) -> None:
        self._context = context
        self._storage = context.storage
        self._clock = context.clock
        self._coordinator = context.coordinator
        self._queue = context.queue
        self._holder = holder
        self._taker = taker
        self._threads = threads
        self._begun = 0
        self._ahead: dict[UUID, Future[OwnedPipe | Refusal]] = {}

    def listen(self, on_end_asked: Callable[[], None]) -> None:
        """Have `on_end_asked` called where a window is to end; before any pipe is opened."""
        self._taker = replace(self._taker, on_end_asked=on_end_asked)

    def open(self, entry: PipeEntry) -> OwnedPipe | Refusal:
        """Claim a pipe and load it; one that was begun ahead is ready, or nearly so.

        Raises:
            CassqError: the claim, if there was one, was given up.
        """
        opening = self._ahead.pop(entry.pipe, None)
        if opening:
            with suppress(StorageUnavailableError, CoordinationUnavailableError):  # that may be over by now
                return opening.result()
        return self._open(entry)

    def open_ahead(self, entries: Iterable[PipeEntry]) -> None:
        """Begin to open the pipes that are wanted next, in their order, as many as may be open ahead."""
        for entry in entries:
            if len(self._ahead) >= AHEAD_MAX:
                return
            if entry.pipe not in self._ahead:
                thread = self._threads[self._begun % AHEAD_MAX]
                self._begun += 1
                self._ahead[entry.pipe] = thread.submit(self._open_and_read, entry)

    def keep_only(self, listed: Container[UUID]) -> None:
        """Give up what was opened ahead and is not listed."""
        for pipe in [pipe for pipe in self._ahead if pipe not in listed]:
            self._drop(pipe)

    @property
    def has_any(self) -> bool:
        """Whether something was opened ahead, or is being so."""
        return bool(self._ahead)

    def drop(self) -> None:
        """Give up what was opened ahead."""
        self.keep_only(())

    def close(self) -> None:
        """Give up what was opened ahead, and end the threads."""
        self.drop()
        for thread in self._threads:
            thread.shutdown()

    def _drop(self, pipe: UUID) -> None:
        try:
            opened = self._ahead.pop(pipe).result()
        except CassqError:
            return
        except Exception:
            _log.exception("queue %s: pipe %s was not opened ahead", self._queue, pipe)
            return
        if isinstance(opened, OwnedPipe):
            self._release(pipe)

    def _open_and_read(self, entry: PipeEntry) -> OwnedPipe | Refusal:
        opened = self._open(entry)
        if isinstance(opened, OwnedPipe):
            with suppress(Exception):  # whoever takes reads again, and hears of it then
                opened.read_ahead(TAKE_MESSAGES_MAX)
        return opened

    def _open(self, entry: PipeEntry) -> OwnedPipe | Refusal:
        if not self._coordinator.claim(self._queue, entry.pipe, self._holder):
            return Refusal.BUSY
        sent_at = self._clock.now()
        try:
            state = self._storage.load_pipe(entry.pipe)
        except BaseException:
            self._release(entry.pipe)
            raise
        if state is None:
            self._release(entry.pipe)
            return Refusal.GONE
        return OwnedPipe(self._context, entry, state, self._taker, sent_at)

    def _release(self, pipe: UUID) -> None:
        self._coordinator.release(self._queue, pipe, self._holder)
