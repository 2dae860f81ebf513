"""Fills staged pipes with what one task of a bulk write has.

Owns the pusher's half of a pipe that nobody sees yet: open, fill, roll, seal, by one thread with one write in
flight. Messages of one priority, type, slot and class of due times fill one pipe after the other, in the
order in which they were added. Refuses to publish: that is `cassq.bulk.staging`. What must not break: a pipe
that `close` returns holds exactly what was acknowledged, and ends there; and what its messages have, the
queue's record tells before it is opened.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, Unpack
from uuid import UUID

from cassq.catalog.first_uses import FirstUses
from cassq.catalog.queue_context import QueueContext
from cassq.errors import ClosedError, OutcomeUnknownError, PipeLostError, StorageUnavailableError
from cassq.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, MIB
from cassq.model.ids import new_pipe_id, new_token
from cassq.model.label import UNLABELLED, Label
from cassq.model.message import Batch, Headers, check_body, check_headers, pack_headers, size_of
from cassq.model.options import PushOptions
from cassq.model.pipe import Head, PipeEntry
from cassq.model.schedule import is_pile
from cassq.model.settings import QueueSettings
from cassq.model.shelf import Shelf
from cassq.model.transaction import Seal, Transaction
from cassq.pushing.due_clock import DueClock
from cassq.pushing.labels import Labels
from cassq.pushing.pipe_rotation import due_from_ms

Answer = TypeVar("Answer")

#: The pause between two attempts at a write, and how long one write is tried.
PAUSE_S = 0.1
PAUSE_MAX_S = 2.0
PATIENCE_S = 120.0

#: So many pipes are open at most. For one more, that one is sealed to which nothing was added for longest:
#: which labels come is a matter of the data, and no reason to fail.
OPEN_MAX = 4096

#: So much is held at most that is not written yet, in all of them: before it is more the largest batch is
#: written. A message takes so much besides what it carries.
HELD_BYTES_MAX = 32 * MIB
MESSAGE_BYTES = 512


@dataclass(slots=True)
class _Filling:
    """A pipe that is being filled, and the messages that are not written yet.

    Attributes:
        like: what all its messages have in common.
        due_from_ms: of a pile: nothing in it is due before.
        bytes: of their bodies and headers.
        held_bytes: of memory that they take, about.
        ttl_ms, dues, keys: of the same messages.
    """

    pipe: UUID
    like: Label
    due_from_ms: int = 0
    written: int = 0
    written_bytes: int = 0
    bodies: list[bytes] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    bytes: int = 0
    held_bytes: int = 0
    ttl_ms: int = 0
    dues: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.written + len(self.bodies)


class StagedPipes:
    """The staged pipes of one task.

    Args:
        name: what the pipes are listed under; `cassq.bulk.staging` finds a writer's pipes by its beginning.
        settings: the bounds of bodies and pipes; None: those that the queue has now.
        options: as of `Queue.push`, of messages that are added without others.

    Raises:
        InvalidNameError, InvalidOptionError: an option breaks a rule.
        StorageUnavailableError: the queue's record does not tell of such messages, and could not be changed.
    """

    def __init__(
        self,
        context: QueueContext,
        name: str,
        settings: QueueSettings | None = None,
        *,
        options: PushOptions | None = None,
    ) -> None:
        self._storage = context.storage
        self._queue = context.queue
        self._record = context.record
        self._settings = settings or context.settings
        self._name = name
        self._clock = context.clock
        self._fillings: dict[Label, _Filling] = {}  # that to which nothing was added for longest first
        self._held_bytes = 0
        self._sealed: list[UUID] = []
        self._pause = threading.Condition()
        self._is_broken = False
        self._due_clock = DueClock(context)
        first_uses = FirstUses(context.record, context.clock, lambda: False)
        self._labels = Labels(context, first_uses, self._due_clock, context.record.check_open)
        self._options = options or {}
        self._like = self._labels.of_push(options, PATIENCE_S) if options else UNLABELLED

    def add(self, body: object, headers: object = None, **options: Unpack[PushOptions]) -> None:
        """Add one message, behind those that were added with the same options; durable once `close` returned.

        A write carries messages of one time-to-live: those that come in another order cost more writes.

        Args:
            options: as of `Queue.push`; a delay counts from this call, a time-to-live from the publication.

        Raises:
            InvalidOptionError, InvalidNameError, BodyTooLargeError: the message breaks a rule.
            StorageUnavailableError, OutcomeUnknownError: the database did not answer for two minutes.
        """
        checked = check_body(body, self._settings.body_bytes_max), check_headers(headers)
        self.add_checked(*checked, self._label_of(options) if options else self._like)

    def _label_of(self, options: PushOptions) -> Label:
        own: PushOptions = {**self._options, **options}
        return self._insist(lambda: self._labels.of_push(own, PATIENCE_S))

    def add_checked(self, body: bytes, headers: Headers, label: Label = UNLABELLED) -> None:
        """Add one message that keeps the rules."""
        if self._is_broken:
            # The next write would carry other messages under the numbers of the one that failed.
            raise ClosedError("a write of these staged pipes failed: discard them, and begin anew")
        size = size_of(body, headers)
        filling = self._fitting(label, size)
        if filling.bodies and (
            len(filling.bodies) >= BATCH_MESSAGES_MAX
            or filling.bytes + size > BATCH_BYTES_MAX
            or filling.ttl_ms != label.ttl_ms
        ):
            self._write(filling)
        held_bytes = size + len(label.key) + MESSAGE_BYTES
        if self._held_bytes + held_bytes > HELD_BYTES_MAX:
            self._write(max(self._fillings.values(), key=lambda each: each.held_bytes))
        filling.bodies.append(body)
        filling.headers.append(headers)
        filling.bytes += size
        filling.held_bytes += held_bytes
        self._held_bytes += held_bytes
        filling.ttl_ms = label.ttl_ms
        if label.due_class:
            filling.dues.append(label.due_ms)
        if label.key:
            filling.keys.append(label.key)

    def close(self) -> Sequence[UUID]:
        """Write what is left and seal; return the pipes, those of one label as they were filled.

        Raises:
            QueueNotFoundError: the queue was deleted, and perhaps created anew: they count for nothing there.
            StorageUnavailableError, OutcomeUnknownError: as `add`.
        """
        for filling in list(self._fillings.values()):
            self._seal(filling)
        # Whoever deletes the queue after this read finds them in its list. Before it another queue may have
        # taken its name, with other slots for keys, and a record that tells nothing of what is in these.
        self._insist(self._record.read)
        return tuple(self._sealed)

    def discard(self) -> None:
        """Delete every pipe of this task."""
        pipes = [*self._sealed, *(filling.pipe for filling in self._fillings.values())]
        self._fillings, self._sealed, self._held_bytes = {}, [], 0
        for pipe in pipes:
            self._storage.delete_pipe(self._queue, pipe, shelf=Shelf.STAGED)

    def _fitting(self, label: Label, size: int) -> _Filling:
        """Return the pipe that a message goes into."""
        like = label.of_pipe
        filling = self._fillings.get(like)
        if filling and (label.due_ms < filling.due_from_ms or not self._has_room(filling, size)):
            self._seal(filling)
            filling = None
        if filling is None:
            if len(self._fillings) >= OPEN_MAX:
                self._seal(next(iter(self._fillings.values())))
            filling = self._open(like, label.due_ms)
        elif len(self._fillings) > 1:
            del self._fillings[like]
        self._fillings[like] = filling
        return filling

    def _has_room(self, filling: _Filling, size: int) -> bool:
        settings = self._settings
        return (
            filling.count < settings.pipe_messages_max
            and filling.written_bytes + filling.bytes + size <= settings.pipe_bytes_max
        )

    def _open(self, like: Label, due_ms: int) -> _Filling:
        from_ms = 0
        if is_pile(like.due_class):
            from_ms = due_from_ms(like.due_class, due_ms, self._due_clock.latest_ms())

        def create() -> _Filling:
            # Each attempt another: one whose outcome is unknown is never used.
            pipe = new_pipe_id(from_ms) if from_ms else new_pipe_id()
            entry = PipeEntry(
                *(pipe, self._name, like.priority),
                type=like.type,
                due_class=like.due_class,
                slot=like.slot,
                shelf=Shelf.STAGED,
            )
            self._storage.create_pipe(self._queue, entry, Head(op=new_token()))
            return _Filling(pipe, like, from_ms)

        return self._insist(create)

    def _write(self, filling: _Filling) -> None:
        if not filling.bodies:
            return
        batch = Batch(
            *(filling.written + 1, tuple(filling.bodies), pack_headers(filling.headers), len(filling.bodies)),
            ttl_ms=filling.ttl_ms,
            dues=tuple(filling.dues) or None,
            keys=tuple(filling.keys) or None,
        )
        self._insist(lambda: self._storage.append(filling.pipe, batch))
        filling.written += batch.count
        filling.written_bytes += filling.bytes
        self._held_bytes -= filling.held_bytes
        filling.bodies, filling.headers, filling.bytes, filling.held_bytes = [], [], 0, 0
        filling.dues, filling.keys = [], []

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
                f"staged pipe {filling.pipe} of {self._name!r} was cleared away while it was filled: "
                "the write took too long, or was taken for one that had failed; write again"
            )
        self._sealed.append(filling.pipe)
        del self._fillings[filling.like]

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
