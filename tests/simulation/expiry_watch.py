"""What a simulated history sees of messages that expire: the marks that drop them, and their dead letters.

Owns what is noted of them: a message that is dropped counts as one that was cancelled by its taker, so nobody
may have it then, or get it later. What must not break: a message that is gone is excused by its mark alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID
from zlib import crc32

from actors import Stage, place_of
from plan import Plan
from scheduler import Process

from cassq.model.ids import MessageId
from cassq.model.pipe import End, Mark
from cassq.model.retrying import EXPIRED
from cassq.popping.buffered_leases import BufferedLeases
from cassq.storage.forms import DeadLetter
from cassq.verification.ledger import Kind

#: Who drops messages, in the lines of a history.
_TAKER = "expiry of "


class ExpiryWatch:
    """Hears of each message that expires, and objects where it is too early.

    Args:
        body_at: returns the body that was sent for a message.
        plan: the times-to-live, and what becomes of messages that have waited for longer.

    Attributes:
        sent: the messages of which a mark was sent that drops them.
    """

    def __init__(self, stage: Stage, body_at: Callable[[UUID, int], bytes], plan: Plan) -> None:
        self._stage = stage
        self._body_at = body_at
        self._plan = plan
        self._own_ttls_s: dict[str, float] = {}
        self.is_on = bool(plan.ttl_s or plan.own_ttl_s)
        self.sent: set[MessageId] = set()

    def own_ttl(self, bodies: Sequence[str]) -> timedelta | None:
        """Return the time-to-live of its own of what is pushed together, if it has one; and note it."""
        ttl_s = self._plan.own_ttl_s
        if not ttl_s or crc32(bodies[0].encode()) % 3:
            return None
        self._own_ttls_s.update(dict.fromkeys(bodies, ttl_s))
        return timedelta(seconds=ttl_s)

    def guard(self, process: Process, storage: Any) -> None:
        """Listen to what a process writes."""
        mark, change_dead = storage.mark, storage.change_dead

        def heard_mark(pipe: UUID, marks: Sequence[Mark]) -> None:
            dropped = self._note_dropped(process, pipe, marks)
            mark(pipe, marks)
            for body, message_id in dropped:
                self._stage.note(
                    _TAKER + process.name,
                    Kind.CANCELLED,
                    [body],
                    pipe=str(message_id.pipe),
                    seq=message_id.seq,
                )

        def heard_letters(queue: str, *, added: Iterable[DeadLetter] = (), **more: Any) -> None:
            letters = list(added)
            for letter in letters:
                if letter.reason == EXPIRED:
                    self._check(letter.body.decode())
            change_dead(queue, added=letters, **more)

        storage.mark, storage.change_dead = heard_mark, heard_letters

    def told(self) -> set[str]:
        """Return the messages whose drop was acknowledged."""
        lines = self._stage.lines
        return {line.message for line in lines if line.kind is Kind.CANCELLED and line.who.startswith(_TAKER)}

    def _note_dropped(
        self, process: Process, pipe: UUID, marks: Sequence[Mark]
    ) -> list[tuple[str, MessageId]]:
        ends = [mark for mark in marks if mark.end is End.EXPIRED]
        ids = [MessageId(pipe, seq) for mark in ends for seq in range(mark.first, mark.last + 1)]
        self.sent.update(ids)
        if ids and self._plan.on_expired != "drop":
            self._stage.broken.append(f"dropped without a dead letter: {ids[0]}")
        dropped = [self._known(message_id) for message_id in ids]
        for body, message_id in dropped:
            self._check(body)
            self._stage.note(_TAKER + process.name, Kind.CANCELLING, [body], **place_of(message_id))
        return dropped

    def _known(self, message_id: MessageId) -> tuple[str, MessageId]:
        """Return the body of a message, and the id that it had first: it may have been moved since."""
        body = self._body_at(*message_id).decode()
        return body, self._stage.ids.get(body, message_id) if self._stage.dues.is_on else message_id

    def _check(self, body: str) -> None:
        lines = self._stage.lines
        begun = next(line.at for line in lines if line.kind is Kind.ATTEMPTED and line.message == body)
        waited_s = self._stage.world.now - begun
        ttl_s = self._own_ttls_s.get(body, self._plan.ttl_s)
        if not ttl_s or waited_s < ttl_s:
            self._stage.broken.append(f"expired early: {body} after {waited_s:.3f} s")


@contextmanager
def giving_back(stage: Stage) -> Iterator[None]:
    """Have the ledger tell, meanwhile, when messages go back out of a buffer because they may have expired.

    They were handed to nobody and may come late, so that the checker asks for no order then.
    """
    give_back = BufferedLeases.give_back

    def tell_and_give_back(leases: BufferedLeases) -> None:
        if stage.expiry.is_on and leases._buffer.runs():
            stage.note(stage.world.current.process.name, Kind.HOLDING, [""])
        give_back(leases)

    BufferedLeases.give_back = tell_and_give_back  # type: ignore[method-assign]
    try:
        yield
    finally:
        BufferedLeases.give_back = give_back  # type: ignore[method-assign]
