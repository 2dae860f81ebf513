"""What one call pushes, on its way to the database.

Owns the promise to the caller: a request ends exactly once, with the ids of its messages or with an error
that says whether they are stored. Refuses to know how messages are stored.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from cassq.errors import CassqError
from cassq.model.ids import MessageId
from cassq.model.key import NO_SLOT
from cassq.model.label import UNLABELLED, Label
from cassq.model.message import Headers, MessageIds, size_of
from cassq.pushing.push_result import PushFuture, PushLatch, answer

#: Hears, once, which messages of a request are stored, and why the others are not.
OnFinished = Callable[[MessageIds, CassqError | None], None]


class PushRequest:
    """Messages that one call pushed and that are not all stored yet.

    Args:
        bodies: the bodies, in order; small enough for one batch.
        headers: one mapping for each body.
        deadline: the clock's reading after which nobody waits any more.
        on_finished: called once, from the pusher's thread.

    Attributes:
        callers: how many callers of `push` wait for it, each for one message.
        label: what steers its messages.
        dues: when each of its messages is due; none of them for at once.
        keys: the key of each of its messages; none of them where they have none.
        number: tells which of two came first.
    """

    __slots__ = (
        *("_on_finished", "bodies", "callers", "deadline", "dues", "headers", "ids", "is_finished", "keys"),
        *("label", "number", "size"),
    )

    def __init__(
        self, bodies: Sequence[bytes], headers: Sequence[Headers], deadline: float, on_finished: OnFinished
    ) -> None:
        self.bodies = bodies
        self.headers = headers
        self.size = sum(map(size_of, bodies, headers))
        self.deadline = deadline
        self.ids = MessageIds()
        self.is_finished = False
        self.callers = 0
        self.label = UNLABELLED
        self.dues: Sequence[int] = ()
        self.keys: Sequence[str] = ()
        self.number = 0
        self._on_finished = on_finished

    @property
    def count(self) -> int:
        """How many of its messages are not stored yet."""
        return len(self.bodies)

    def seal(self) -> None:
        """Be told that it leaves the buffer."""

    def store(self, pipe: UUID, first: int, count: int) -> None:
        """Note that its next `count` messages are stored from number `first` on."""
        if count:
            self.ids.add(pipe, first, first + count - 1)
            self.bodies = self.bodies[count:]
            self.headers = self.headers[count:]
            self.dues = self.dues[count:]
            self.keys = self.keys[count:]
        if not self.bodies:
            self._finish(None)

    def fail(self, error: CassqError) -> None:
        """End it with an error; what was stored of it stays stored."""
        self._finish(error)

    def _finish(self, error: CassqError | None) -> None:
        if not self.is_finished:
            self.is_finished = True
            self._on_finished(self.ids, error)


class Singles(PushRequest):
    """A request that grows while it waits, of messages that were pushed one by one.

    The last of the three steps by which a message comes in is the one that counts: of a caller who is torn
    away by Ctrl-C before it, nothing stays.
    """

    __slots__ = ("_bodies", "_dues", "_ends", "_headers", "_keys")

    def __init__(self, deadline: float, label: Label = UNLABELLED) -> None:
        self._bodies: list[bytes] = []
        self._headers: list[Headers] = []
        self._ends: list[PushFuture | PushLatch] = []
        self._dues: list[int] = []
        self._keys: list[str] = []
        super().__init__(self._bodies, self._headers, deadline, self._end)
        self.label = label
        self.dues = self._dues
        self.keys = self._keys

    def add(self, body: bytes, headers: Headers, size: int, end: PushFuture | PushLatch) -> None:
        """Let one more message travel along; `end` hears of it."""
        if len(self._bodies) != len(self._ends):
            self.seal()
        self._bodies.append(body)
        self._headers.append(headers)
        if self.label.due_class:
            self._dues.append(end.label.due_ms)
        elif self.label.slot != NO_SLOT:
            self._keys.append(end.label.key)
        self._ends.append(end)
        self.size += size
        if end.__class__ is PushLatch:
            self.callers += 1

    def seal(self) -> None:
        """Be left with whole messages; the bodies, by which `add` sees that some are not, come last."""
        del self._keys[len(self._ends) :]
        del self._dues[len(self._ends) :]
        del self._headers[len(self._ends) :]
        del self._bodies[len(self._ends) :]

    def _end(self, ids: MessageIds, error: CassqError | None) -> None:
        latches: list[tuple[PushLatch, MessageId]] = []
        for end, message_id in zip(self._ends, ids, strict=False):
            if isinstance(end, PushLatch):
                latches.append((end, message_id))
            else:
                end.set_result(message_id)
        answer(latches)
        if error:
            for end in self._ends[len(ids) :]:
                end.set_exception(error)
