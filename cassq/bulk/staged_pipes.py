"""Fills staged pipes with what one task of a bulk write has.

Owns the pusher's half of a pipe that nobody sees yet: open, fill, roll, seal, by one thread with one write in
flight. Refuses to publish: that is `cassq.bulk.staging`. What must not break: a pipe that `close` returns
holds exactly what was acknowledged, and ends there.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from cassq.catalog.queue_context import QueueContext
from cassq.errors import ClosedError, OutcomeUnknownError, PipeLostError, StorageUnavailableError
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.label import UNLABELLED, Label
from cassq.model.message import Batch, Headers, check_body, check_headers, pack_headers, size_of
from cassq.model.pipe import Head, PipeEntry
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.transaction import Seal, Transaction

Answer = TypeVar("Answer")

#: The pause between two attempts at a write, and how long one write is tried.
PAUSE_S = 0.1
PAUSE_MAX_S = 2.0
PATIENCE_S = 120.0


@dataclass(slots=True)
class _Filling:
    """The pipe that is being filled, and the messages that are not written yet."""

    pipe: UUID
    written: int = 0
    written_bytes: int = 0
    bodies: list[bytes] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    bytes: int = 0

    @property
    def count(self) -> int:
        return self.written + len(self.bodies)


class StagedPipes:
    """The staged pipes of one task.

    Args:
        label: what the pipes are listed under; `cassq.bulk.staging` finds a writer's pipes by its beginning.
        settings: the bounds of bodies and pipes; None: those that the queue has now.
        like: what steers the messages.
    """

    def __init__(
        self,
        context: QueueContext,
        label: str,
        settings: QueueSettings | None = None,
        *,
        like: Label = UNLABELLED,
    ) -> None:
        self._like = like
        self._storage = context.storage
        self._queue = context.queue
        self._settings = settings or context.settings
        self._label = label
        self._clock = context.clock
        self._filling: _Filling | None = None
        self._sealed: list[UUID] = []
        self._pause = threading.Condition()
        self._is_broken = False

    def add(self, body: object, headers: object = None) -> None:
        """Add one message, in order; it is durable once `close` has returned.

        Raises:
            InvalidOptionError, BodyTooLargeError: the message breaks a rule.
            StorageUnavailableError, OutcomeUnknownError: the database did not answer for two minutes.
        """
        self.add_checked(check_body(body, self._settings.body_bytes_max), check_headers(headers))

    def add_checked(self, body: bytes, headers: Headers) -> None:
        """Add one message that keeps the rules."""
        if self._is_broken:
            # The next write would carry other messages under the numbers of the one that failed.
            raise ClosedError("a write of these staged pipes failed: discard them, and begin anew")
        size = size_of(body, headers)
        filling = self._filling
        if filling and not self._has_room(filling, size):
            self._seal(filling)
            filling = None
        if filling is None:
            filling = self._filling = _Filling(self._open())
        if filling.bodies and (
            len(filling.bodies) >= BATCH_MESSAGES_MAX or filling.bytes + size > BATCH_BYTES_MAX
        ):
            self._write(filling)
        filling.bodies.append(body)
        filling.headers.append(headers)
        filling.bytes += size

    def close(self) -> Sequence[UUID]:
        """Write what is left and seal; return the pipes, in the order in which they were filled."""
        if self._filling:
            self._seal(self._filling)
        return tuple(self._sealed)

    def discard(self) -> None:
        """Delete every pipe of this task."""
        pipes = [*self._sealed, *([self._filling.pipe] if self._filling else [])]
        self._filling, self._sealed = None, []
        for pipe in pipes:
            self._storage.delete_pipe(self._queue, pipe, shelf=Shelf.STAGED)

    def _has_room(self, filling: _Filling, size: int) -> bool:
        settings = self._settings
        return (
            filling.count < settings.pipe_messages_max
            and filling.written_bytes + filling.bytes + size <= settings.pipe_bytes_max
        )

    def _open(self) -> UUID:
        def create() -> UUID:
            pipe = new_pipe_id()  # each attempt another: one whose outcome is unknown is never used
            entry = PipeEntry(
                pipe, self._label, self._like.priority, type=self._like.type, shelf=Shelf.STAGED
            )
            self._storage.create_pipe(self._queue, entry, Head(op=new_token()))
            return pipe

        return self._insist(create)

    def _write(self, filling: _Filling) -> None:
        if not filling.bodies:
            return
        batch = Batch(
            filling.written + 1, tuple(filling.bodies), pack_headers(filling.headers), len(filling.bodies)
        )
        self._insist(lambda: self._storage.append(filling.pipe, batch))
        filling.written += batch.count
        filling.written_bytes += filling.bytes
        filling.bodies, filling.headers, filling.bytes = [], [], 0

    def _seal(self, filling: _Filling) -> None:
        self._write(filling)
        seal = Transaction(Seal(filling.written))

        def sealed() -> bool:
            # Nobody else seals a staged pipe: if a read shows it sealed, an earlier attempt did it.
            if self._storage.transact(filling.pipe, seal).is_applied:
                return True
            state = self._storage.load_pipe(filling.pipe)
            return state is not None and state.head.last == filling.written

        if not self._insist(sealed):
            raise PipeLostError(
                f"staged pipe {filling.pipe} of {self._label!r} was cleared away while it was filled: "
                "the write took too long, or was taken for one that had failed; write again"
            )
        self._sealed.append(filling.pipe)
        self._filling = None

    def _insist(self, attempt: Callable[[], Answer]) -> Answer:
        """Try a write, all of which here may be repeated, until it is acknowledged or patience ends."""
        until = self._clock.now() + PATIENCE_S
        pause = PAUSE_S
        while True:
            try:
                return attempt()
            except (OutcomeUnknownError, StorageUnavailableError):
                if self._clock.now() >= until:
                    self._is_broken = True
                    raise
            with self._pause:
                self._clock.wait(self._pause, pause)
            pause = min(2 * pause, PAUSE_MAX_S)
