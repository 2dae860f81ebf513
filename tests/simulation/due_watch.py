"""Whether messages come when they are due, as what they were pushed; and a day of the schedule in seconds.

Owns which due time each message has, and what of that may be judged by the clocks of the nodes. Pure but for
what it objects to. What must not break: nothing is excused but by how far the plan's clocks differ, and, of
when something was pushed, by how late the plan lets requests land.
"""

import math
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cluster import EPOCH_MS
from move_watch import MoveWatch
from plan import Plan
from recurrence_watch import is_of_schedule
from scheduler import World

from cassq.bulk import occurrences
from cassq.model import recurrence, schedule
from cassq.model.ids import MessageId
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.observing.inspection import MessageState, MessageStatus
from cassq.popping import claimer, rounds, slot, slots
from cassq.popping.delivery import Delivery
from cassq.pushing import due_clock, pipe_rotation
from cassq.reaping import hand_over, housekeeping, keeper, sources
from cassq.storage.port import Storage

#: From this lead on nobody waits in the history: everybody stops until it is near.
FAR_S = 300.0

#: What was due has so long to come before everybody stops.
SETTLED_S = 10.0

#: Among what is compared with the clock of a node the fractions of milliseconds are lost.
ROUNDING_MS = 2


@dataclass(slots=True)
class _Pushed:
    """What was pushed together.

    Attributes:
        called_at: when the call began.
        lead_ms: how long after that it is due at least.
        due_ms: when it is due, where the caller gave that; else as the first delivery told.
        told_at: when the call returned; None where it did not, or failed.
    """

    called_at: float
    lead_ms: int
    due_ms: int | None
    told_at: float | None = None


class DueWatch:
    """Draws due times, and objects to a message that comes early, or as another one.

    Args:
        moves: tells where messages were moved since.
        broken: hears of it.
    """

    def __init__(self, plan: Plan, world: World, moves: MoveWatch, broken: list[str]) -> None:
        self._plan = plan
        self._world = world
        self._moves = moves
        self._broken = broken
        self._pushed: dict[str, _Pushed] = {}
        self._ids: dict[str, MessageId] = {}
        self._asked: Counter[str] = Counter()
        # Pipes that poppers take all of at once, and what went there with something that was near.
        self._soon: set[UUID] = set()
        self._near: set[str] = set()
        self.is_on = bool(plan.leads_s) or moves.is_on

    # Pushing

    def options(self, dice: random.Random, bodies: Sequence[str]) -> dict[str, Any]:
        """Return the delay or the due time of what is pushed together; and note it."""
        if not self.is_on:
            return {}
        if not self._plan.leads_s:
            self._pushed.update({body: _Pushed(self._world.now, 0, None) for body in bodies})
            return {}
        lead_s = dice.choice(self._plan.leads_s)
        if lead_s < FAR_S:
            lead_s *= 1 + self._plan.spread * (dice.random() - 0.5)
        now = self._world.now
        if dice.random() < self._plan.dated:
            due_at = datetime.fromtimestamp((EPOCH_MS + now * 1000) / 1000 + lead_s, UTC)
            due_ms = -((datetime(1970, 1, 1, tzinfo=UTC) - due_at) // timedelta(milliseconds=1))
            one = _Pushed(now, max(0, due_ms - EPOCH_MS - int(now * 1000)), due_ms)
            options: dict[str, Any] = {"due": due_at}
        else:
            delay = timedelta(seconds=lead_s)
            one = _Pushed(now, -(-delay // timedelta(milliseconds=1)), None)
            options = {"delay": delay}
        self._pushed.update({body: _Pushed(one.called_at, one.lead_ms, one.due_ms) for body in bodies})
        return options

    def note_told(self, bodies: Sequence[str]) -> None:
        """Hear that a push was acknowledged."""
        for body in bodies if self.is_on else ():
            self._pushed[body].told_at = self._world.now

    def guard(self, storage: Storage) -> None:
        """Hear of what a pusher writes together: where one of it is near by then, poppers take all of it."""
        create, append = storage.create_pipe, storage.append

        def create_and_note(queue: str, entry: PipeEntry, head: Head) -> None:
            if entry.due_class == schedule.SOON:
                self._soon.add(entry.pipe)
            create(queue, entry, head)

        def append_and_note(pipe: UUID, batch: Batch) -> None:
            near_ms = self._latest_ms + 1000 * schedule.SOON_S + self.slow_ms
            if pipe in self._soon and batch.dues and min(batch.dues) <= near_ms:
                self._near.update(body.decode() for body in batch.bodies)
            append(pipe, batch)

        storage.create_pipe = create_and_note  # type: ignore[method-assign]
        storage.append = append_and_note  # type: ignore[method-assign]

    # Popping

    def check(self, consumer: str, delivery: Delivery, pushed_id: MessageId | None) -> None:
        """Object where a message comes early, or with another id or time than it was pushed with.

        Args:
            pushed_id: what its push returned; None where that is not known.
        """
        body = delivery.body.decode()
        pushed = self._pushed.get(body)
        if pushed is None:
            return
        due_ms = _ms(delivery.due) if delivery.due else 0
        if not due_ms and pushed.due_ms == _ms(delivery.pushed_at):
            # What is due when it is pushed is due at once, as is told once it was moved.
            due_ms = pushed.due_ms
        if due_ms > self._latest_ms:
            self._object(f"early: {consumer} got {body} {due_ms - self._latest_ms} ms before it was due")
        if self._moves.is_touched(body):
            is_as_pushed = not self._due_objection(body, pushed, due_ms) or due_ms == _ms(delivery.pushed_at)
        else:
            is_as_pushed = True
            self._check_due(body, pushed, due_ms)
        if self._moves.is_on:
            self._moves.check(consumer, delivery, is_due_as_pushed=is_as_pushed)
        known = self._ids.setdefault(body, pushed_id or delivery.message_id)
        if delivery.message_id != known:
            self._object(f"id: {body} was {known} and came as {delivery.message_id}")
        pushed_ms = _ms(delivery.pushed_at)
        first_ms = self._db_ms(pushed.called_at) + min(self._plan.skews_ms) - ROUNDING_MS
        until_s = self._world.now if pushed.told_at is None else pushed.told_at + self._landing_s
        last_ms = self._db_ms(until_s) + max(self._plan.skews_ms) + ROUNDING_MS
        if not first_ms <= pushed_ms <= last_ms:
            self._object(f"pushed_at: {body} came as of {pushed_ms}, not {first_ms} to {last_ms}")

    def _check_due(self, body: str, pushed: _Pushed, due_ms: int) -> None:
        """Object where the due time is not the one that was asked for."""
        if why := self._due_objection(body, pushed, due_ms):
            self._object(why)
        pushed.due_ms = due_ms if pushed.due_ms is None else pushed.due_ms

    def _due_objection(self, body: str, pushed: _Pushed, due_ms: int) -> str:
        """Return why the due time is not the one that was asked for; empty where it is."""
        if pushed.due_ms is None:
            least_ms = self._least_ms(pushed) if pushed.lead_ms else 0
            returned_at = self._world.now if pushed.told_at is None else pushed.told_at
            most_ms = self._db_ms(returned_at) + pushed.lead_ms + self.slow_ms if pushed.lead_ms else 0
            if not least_ms <= due_ms <= most_ms:
                return f"due: {body} came as due at {due_ms}, not {least_ms} to {most_ms}"
        elif due_ms != pushed.due_ms:
            return f"due: {body} came as due at {due_ms}, and is at {pushed.due_ms}"
        return ""

    # Looking, and taking back

    def is_asleep(self, body: str) -> bool:
        """Tell whether a message that was acknowledged is surely far from due: nobody can have taken it."""
        pushed = self._pushed.get(body)
        if pushed is None or pushed.told_at is None:
            return False
        taken_from_ms = 0 if body in self._near else self._least_ms(pushed)
        due_ms = min(self._moves.dues_ms(body, taken_from_ms))
        return due_ms > self._latest_ms + 1000 * schedule.SOON_S + ROUNDING_MS

    def check_status(self, body: str, status: MessageStatus, *, was_asleep: bool) -> None:
        """Object where one that is far from due is told to be anything else.

        Args:
            was_asleep: whether it was so after the answer, too.
        """
        if not was_asleep or self._asked[body] or self._plan.purges:
            return
        if status.state is not MessageState.DELAYED or status.due is None:
            self._object(f"status: {body} is far from due, and told to be {status.state.value}")
        elif not self._moves.is_touched(body):
            self._check_due(body, self._pushed[body], _ms(status.due))

    def check_cancel(self, body: str, *, is_cancelled: bool, was_asleep: bool) -> None:
        """Object where one that is far from due could not be cancelled, though nobody else asked for it.

        Args:
            was_asleep: whether it was so after the answer, too.
        """
        if was_asleep and not (is_cancelled or self._asked[body] > 1 or self._plan.purges):
            self._object(f"cancel: {body} is far from due, and was told not to be cancelled")

    def check_moved(self, body: str) -> None:
        """Object to a refusal to move a message that is far from due, and was before the call."""
        if not self._asked[body] and not self._plan.purges:
            self._object(f"moved: {body} is far from due, and was told not to be moved")

    def note_asked(self, body: str) -> None:
        """Note that a message may be cancelled from now on; before the call, which others see half done."""
        self._asked[body] += 1

    def note_refused(self, body: str) -> None:
        """Note that a call to cancel a message did nothing."""
        self._asked[body] -= 1

    # When, at the latest

    def ready_at(self, body: str, told_at: float) -> float:
        """Return from when on an acknowledged message could be delivered, as the world's time."""
        pushed = self._pushed.get(body)
        if self._moves.is_touched(body):
            return self._world.now  # the watch of moves tells
        if pushed is None or pushed.due_ms is None:
            return told_at + (pushed.lead_ms / 1000 if pushed else 0.0)
        return max(told_at, (pushed.due_ms - EPOCH_MS) / 1000)

    def in_order(self, reordered: Sequence[str]) -> list[str]:
        """Return of what came out of order what had no due times: the others come as they are due."""
        pushed = [(words, self._pushed.get(words.split(":")[0], _AT_ONCE)) for words in reordered]
        pushed = [(words, each) for words, each in pushed if not is_of_schedule(words)]
        if self._moves.is_on:
            of_moved = {self._ids[body].pipe for body in self._ids if self._moves.is_touched(body)}
            pushed = [(words, each) for words, each in pushed if self._pipe_of(words) not in of_moved]
        return [words for words, each in pushed if not (each.lead_ms or each.due_ms)]

    def _pipe_of(self, words: str) -> UUID | None:
        known = self._ids.get(words.split(":", maxsplit=1)[0])
        return known.pipe if known else None

    def rest_until(self, ended: Collection[str]) -> float:
        """Return until when nothing of what has not ended is due, as the world's time.

        Who was refused, or purged, is due as well. What was due lately may still be on its way.
        """
        now = self._world.now
        dues = [
            due_ms
            for body, each in self._pushed.items()
            if body not in ended
            for due_ms in self._moves.dues_ms(body, self._least_ms(each))
        ]
        return min(
            [at for at in ((each - EPOCH_MS) / 1000 for each in dues) if at > now - SETTLED_S],
            default=math.inf,
        )

    def is_late(self, body: str, waited_s: float) -> bool:
        """Tell whether a message waited for too long, of those that nobody tried to cancel."""
        return waited_s > self._plan.prompt_s and not self._asked[body]

    @property
    def _latest_ms(self) -> int:
        """What any node's clock shows at the most."""
        return self._db_ms(self._world.now) + max(self._plan.skews_ms) + ROUNDING_MS

    @property
    def _landing_s(self) -> float:
        """For how long after its acknowledgement a batch may land once more."""
        odds = self._plan.odds
        slow_s = odds.stall_s if odds.stall else 0.0
        return 0.02 + (slow_s + odds.late_s + self._plan.timeout_s if odds.late or odds.stall else 0.0)

    @property
    def slow_ms(self) -> int:
        """By how much later than asked for a message may be due: a reading of the clock takes so long."""
        may_freeze = self._plan.odds.freeze or any(blow.kind == "freeze" for blow in self._plan.blows)
        slow_s = 0.1 + 2 * self._plan.timeout_s + 0.002 * due_clock.READ_S + (4.0 if may_freeze else 0.0)
        return round(1000 * slow_s) + max(self._plan.skews_ms)

    def _least_ms(self, pushed: _Pushed) -> int:
        if pushed.due_ms is not None:
            return pushed.due_ms
        return self._db_ms(pushed.called_at) + min(self._plan.skews_ms) + pushed.lead_ms - ROUNDING_MS

    def _db_ms(self, at: float) -> int:
        return EPOCH_MS + int(at * 1000)

    def _object(self, words: str) -> None:
        self._broken.append(words)


_AT_ONCE = _Pushed(0.0, 0, 0)


def _ms(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


#: What a history about the schedule changes: module, name, and what stands there then.
def _shrunk(plan: Plan) -> Iterator[tuple[Any, str, Any]]:
    for module in (schedule, occurrences):
        yield module, "SOON_S", plan.soon_s
    yield recurrence, "GRACE", timedelta(seconds=plan.soon_s)
    for module in (keeper, hand_over):
        yield module, "NEAR_S", plan.near_s
    for module in (claimer, rounds):
        yield module, "AHEAD_MS", round(1000 * plan.soon_s / 7.5)
    yield pipe_rotation, "DISORDER_MS", round(1000 * plan.soon_s / 15)
    yield due_clock, "READ_S", plan.soon_s / 1.5
    yield keeper, "STAGED_S", plan.staged_s
    yield keeper, "LOOK_AFTER_S", plan.look_after_s
    yield sources, "LET_GO_S", plan.look_after_s
    yield hand_over, "FAR_S", max(plan.rests_s) / 3
    yield keeper, "LATE_S", plan.soon_s / 1.5
    yield housekeeping, "KEEP_S", plan.soon_s / 15
    yield housekeeping, "KEEP_MAX_S", plan.soon_s / 4


@contextmanager
def hastened(plan: Plan) -> Iterator[None]:
    """Have days of the schedule pass in seconds, meanwhile, where the plan says so."""
    changes = list(_shrunk(plan)) if plan.leads_s or plan.periods_s or plan.moves else []
    if plan.keys:
        changes += [(slots, "HELD_MAX", plan.held_max), (slot, "TAKE_MIN", plan.take_min)]
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
