"""Whether messages come when, and as urgent as, they were moved to by hand; and what a refusal may mean.

Owns what was asked of each message, what became of that, and what each delivery showed. It knows nothing of
pipes. What must not break: a call that returned True is held against whoever has the message after it; one
of which nobody knows may have moved its message, also later, until another one did.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cluster import EPOCH_MS
from plan import Plan
from scheduler import Process, World

from cassq.observing.inspection import MessageState, MessageStatus
from cassq.popping.delivery import Delivery
from cassq.verification.ledger import Kind, Line

#: By how much the clocks of two nodes and the rounding of times may shorten a rest.
LEEWAY_S = 0.11

#: With these a message may have ended without anybody having it.
_TAKEN_BACK = {Kind.CANCELLING, Kind.PURGING}

#: With these it has ended, or is to be a dead letter.
_ENDINGS = {Kind.COMMITTED, Kind.CANCELLED, Kind.GIVEN_UP}


@dataclass(eq=False, slots=True)
class Move:
    """One call that moves a message.

    Attributes:
        before: the calls for this message that were over when it began.
        least_ms, most_ms: when the message is due then, by the nodes' clocks; None: as it was.
        priority: None: as it was.
        is_moved: what it returned; False also where it raised that nothing was done; None: nobody knows.
    """

    process: Process
    body: str
    begun_at: float
    before: frozenset["Move"]
    least_ms: int | None = None
    most_ms: float | None = None
    priority: int | None = None
    ended_at: float | None = None
    is_moved: bool | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more is sent for it."""
        return self.ended_at is not None or self.process.is_dead

    def steers(self, what: str) -> bool:
        """Tell whether it is about the due time, or the priority."""
        return (self.priority is not None) == (what == "priority")


@dataclass(slots=True)
class _Had:
    """One delivery."""

    who: str
    at: float
    until: float
    attempt: int
    due_ms: int
    pushed_ms: int
    priority: int
    is_due_as_pushed: bool


@dataclass(slots=True)
class _Rest:
    """A message that was rolled back with a delay, as its consumer was told."""

    begun_at: float
    told_at: float
    until: float
    attempt: int


@dataclass(slots=True)
class _One:
    """What is known of one message."""

    priority: int = 0
    moves: list[Move] = field(default_factory=list)
    had: list[_Had] = field(default_factory=list)
    rest: _Rest | None = None


class MoveWatch:
    """Draws where messages are moved, and objects to what contradicts that.

    Args:
        lines: what was noted so far.
        broken: hears of it.
    """

    def __init__(self, plan: Plan, world: World, lines: Sequence[Line], broken: list[str]) -> None:
        self._plan = plan
        self._world = world
        self._lines = lines
        self._broken = broken
        self._known: defaultdict[str, _One] = defaultdict(_One)
        self.is_on = bool(plan.moves)

    def note_pushed(self, bodies: Iterable[str], priority: int) -> None:
        """Hear with which priority messages are pushed."""
        for body in bodies:
            self._known[body].priority = priority

    # Moving

    def resting(self) -> list[str]:
        """Return the messages that rest before a retry."""
        now = self._world.now
        return [body for body, one in self._known.items() if one.rest and now < one.rest.until - LEEWAY_S]

    def begin(self, dice: random.Random, process: Process, body: str) -> tuple[Move, dict[str, Any]]:
        """Draw where a message is moved; return the call, and what it is called with."""
        now = self._world.now
        moves = self._known[body].moves
        move = Move(process, body, now, frozenset(each for each in moves if each.is_over))
        moves.append(move)
        if self._plan.priorities > 1 and dice.random() < self._plan.reprioritised:
            move.priority = dice.randrange(self._plan.priorities)
            return move, {"priority": move.priority}
        lead_s = dice.choice(self._plan.moved_leads_s)
        if dice.random() < self._plan.dated:
            due_at = datetime.fromtimestamp((EPOCH_MS + now * 1000) / 1000 + lead_s, UTC)
            move.least_ms = -((datetime(1970, 1, 1, tzinfo=UTC) - due_at) // timedelta(milliseconds=1))
            move.most_ms = move.least_ms
            return move, {"due": due_at}
        move.least_ms = self._db_ms(now) + min(self._plan.skews_ms) + int(lead_s * 1000) - 2
        return move, {"delay": timedelta(seconds=lead_s)}

    def end(self, move: Move, slow_ms: int, *, is_moved: bool | None, is_told: bool) -> None:
        """Hear what came of a call, and object where it refused to move what surely was free.

        Args:
            slow_ms: by how much later than asked for it may be due.
            is_told: whether it returned that; else it raised.
        """
        move.is_moved, move.ended_at = is_moved, self._world.now
        if move.least_ms is not None and move.most_ms is None:
            asked_ms = move.least_ms - self._db_ms(move.begun_at)
            move.most_ms = self._db_ms(move.ended_at) + asked_ms + slow_ms
        one = self._known[move.body]
        ended = [line for line in self._lines if line.message == move.body and line.kind in _ENDINGS]
        if is_moved and any(line.at <= move.begun_at for line in ended):
            self._broken.append(f"moved: {move.body} was {ended[0].kind.value}, and told to be moved")
        if is_told and is_moved is False and one.rest and self._rested(one, one.rest, move):
            self._broken.append(
                f"moved: {move.body} rests until {one.rest.until:.3f}, and was told not to be"
            )

    def _rested(self, one: _One, rest: _Rest, move: Move) -> bool:
        """Tell whether nobody can have had a message that rests, nor have ended it, while a call ran."""
        assert move.ended_at is not None
        if not rest.told_at <= move.begun_at <= move.ended_at < rest.until - LEEWAY_S:
            return False
        others = [each for each in one.moves if each is not move]
        if any(each.ended_at is None or each.ended_at > rest.begun_at for each in others):
            return False  # its rest may be another one by now
        if any(line.kind is Kind.UNKNOWN_COMMIT and line.message == move.body for line in self._lines):
            return False  # the commit may have landed meanwhile
        return rest.attempt < self._plan.max_attempts and not self.may_be_taken_back(move.body)

    def may_be_taken_back(self, body: str) -> bool:
        """Tell whether somebody may have cancelled or purged it."""
        return any(line.kind in _TAKEN_BACK and line.message in {body, ""} for line in self._lines)

    # Popping

    def check(self, consumer: str, delivery: Delivery, *, is_due_as_pushed: bool) -> None:
        """Hear of a delivery, and object where it comes in its rest, or once too often."""
        body, now = delivery.body.decode(), self._world.now
        one = self._known[body]
        had = _Had(
            consumer,
            now,
            now + delivery.run.left_s,
            delivery.attempt,
            _ms(delivery.due) if delivery.due else 0,
            _ms(delivery.pushed_at),
            delivery.priority,
            is_due_as_pushed,
        )
        one.had.append(had)
        if delivery.attempt > self._plan.max_attempts:
            self._broken.append(f"attempts: {consumer} got {body} the {delivery.attempt}th time")
        rest = one.rest
        if rest and had.attempt > rest.attempt and now < rest.until - LEEWAY_S:
            since = [each for each in one.moves if each.ended_at is None or each.ended_at > rest.begun_at]
            if not any(each.least_ms is not None and each.is_moved is not False for each in since):
                self._broken.append(f"rest: {consumer} got {body}, which rests until {rest.until:.3f}")

    def note_rested(self, delivery: Delivery, begun_at: float, delay: timedelta, *, is_told: bool) -> None:
        """Hear that a message was rolled back."""
        if self.is_on:
            until = begun_at + delay.total_seconds()
            rest = _Rest(begun_at, self._world.now, until, delivery.attempt) if is_told else None
            self._known[delivery.body.decode()].rest = rest

    # What steers it now

    def is_touched(self, body: str) -> bool:
        """Tell whether somebody may have moved a message."""
        return body in self._known and any(each.is_moved is not False for each in self._known[body].moves)

    def dues_ms(self, body: str, least_ms: int) -> list[int]:
        """Return when a message may be due at the least; `least_ms` as it was pushed."""
        moves = self._known[body].moves if body in self._known else []
        may_be = [each for each in moves if each.steers("due") and each.is_moved is not False]
        sure = [each for each in may_be if each.is_moved]
        dues = [
            each.least_ms
            for each in may_be
            if each.least_ms is not None and not any(each in other.before for other in sure)
        ]
        return dues if sure else [least_ms, *dues]

    def check_status(self, move: Move, status: MessageStatus) -> None:
        """Object where a message that was just moved to a far due time is told to be due at another."""
        if status.state is not MessageState.DELAYED or status.due is None:
            self._broken.append(f"status: {move.body} was moved, and told to be {status.state.value}")
        elif not (move.least_ms or 0) <= _ms(status.due) <= (move.most_ms or 0):
            self._broken.append(f"status: {move.body} was moved, and told to be due at {_ms(status.due)}")

    def is_last(self, move: Move) -> bool:
        """Tell whether a call moved its message, and none may have moved it since."""
        moves = self._known[move.body].moves
        later = [each for each in moves if each is not move and each not in move.before]
        return bool(move.is_moved) and not later

    # In the end

    def judge(self) -> Iterator[str]:
        """Tell which deliveries contradict what was asked for."""
        ends = self._ends() if self.is_on else {}
        for body, one in self._known.items():
            for had in one.had if one.moves else ():
                free_at = ends.get((had.who, body, had.attempt), had.until)
                for what in ("due", "priority"):
                    why = self._objection(one, had, free_at, what)
                    if why:
                        yield f"moved: {had.who} got {body} (attempt {had.attempt}) at {had.at:.3f}: {why}"
            yield from self._late(body, one)

    def _ends(self) -> dict[tuple[str, str, int], float]:
        """Return by delivery until when somebody had it."""
        ends: dict[tuple[str, str, int], float] = {}
        freed: dict[tuple[str, str, int], float] = {}
        for line in self._lines:
            key = line.who, line.message, line.attempt
            if line.kind in {Kind.DELIVERED, Kind.EXTENDED}:
                ends[key] = max(line.until, ends.get(key, 0.0))
            elif line.kind is Kind.ROLLING_BACK:
                freed[key] = line.at  # others of its run may be extended after that
        return {key: min(end, freed.get(key, end)) for key, end in ends.items()}

    def _objection(self, one: _One, had: _Had, free_at: float, what: str) -> str:
        asked = [each for each in one.moves if each.steers(what) and each.is_moved is not False]
        # It was free when they moved it: so whoever has it after that got it as they said, or later ones.
        sure = [each for each in asked if each.is_moved and each.ended_at and each.ended_at < free_at]
        fits = [each for each in asked if each.begun_at <= had.at and _fits(each, had)]
        if any(not any(each in other.before for other in sure) for each in fits):
            return ""
        is_as_pushed = had.is_due_as_pushed if what == "due" else had.priority == one.priority
        if is_as_pushed and not sure:
            return ""
        told = had.due_ms if what == "due" else had.priority
        words = "after it was moved" if sure else "and nobody asked for that"
        return f"with {what} {told}, {words}: {[_tell(each) for each in asked]}"

    def _late(self, body: str, one: _One) -> Iterator[str]:
        """Tell which moves were in vain for too long, where no fault explains that."""
        for move in one.moves if self._plan.prompt_s else ():
            if not self.is_last(move) or move.ended_at is None or self.may_be_taken_back(body):
                continue
            if any(had.at < move.ended_at < had.until for had in one.had):
                continue
            due_at = (move.least_ms - EPOCH_MS) / 1000 if move.least_ms is not None else self._world.now
            came_at = min((had.at for had in one.had if had.at >= move.begun_at), default=self._world.now)
            waited_s = came_at - max(move.ended_at, due_at)
            if waited_s > self._plan.prompt_s:
                yield f"late: {body} was moved, and waited for {waited_s:.1f} s"

    def _db_ms(self, at: float) -> int:
        return EPOCH_MS + int(at * 1000)


def _fits(move: Move, had: _Had) -> bool:
    if move.priority is not None:
        return had.priority == move.priority
    most_ms = float("inf") if move.most_ms is None else move.most_ms
    return (move.least_ms or 0) <= had.due_ms <= most_ms


def _tell(move: Move) -> str:
    ended = "?" if move.ended_at is None else f"{move.ended_at:.3f}"
    to = f"priority {move.priority}" if move.priority is not None else f"due {move.least_ms}"
    return f"{to} by {move.process.name}, {move.begun_at:.3f} to {ended}: {move.is_moved}"


def _ms(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
