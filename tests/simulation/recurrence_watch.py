"""Whether schedules are kept: each time comes once, or is told as missed, and what was deleted stays so.

Owns what must come of a schedule, from what its caller was told and from what the schedule's row decided, in
the order in which the database applied it. A schedule says "every so many seconds", so the times that it
means are multiples, counted here without the library. What must not break: nothing is excused but what the
row tells as missed, and of that only what was late by the grace when it was decided.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cluster import EPOCH_MS
from plan import Plan
from replicas import Mutation
from scheduler import World

from cassq.model.recurrence import Schedule
from cassq.popping.delivery import Delivery
from cassq.verification.ledger import Kind, Line

#: What the bodies of schedules begin with.
_EVERY = "every-"

#: The fractions of milliseconds are lost where clocks are compared.
_ROUNDING_MS = 2


@dataclass(slots=True, eq=False)
class Call:
    """One call of an application's: a set, or a deletion where it has no period.

    Attributes:
        number: calls of one history count up.
    """

    number: int
    name: str
    called_at: float
    period_s: int = 0
    body: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    """What stands of a schedule, as far as that matters here."""

    body: str
    period_s: int
    next_ms: int
    missed: int


@dataclass(slots=True)
class _Decision:
    """What a schedule's row said at once: of which times the messages are in a pipe, or were missed."""

    body: str
    dues_ms: list[int]
    missed: int
    at_ms: float


@dataclass(slots=True)
class _Life:
    """A schedule from when it was created until it was deleted.

    Attributes:
        dropped: how many of those that are missed went because the schedule got other times.
    """

    name: str
    decisions: list[_Decision] = field(default_factory=list)
    missed: int = 0
    dropped: int = 0


def name_of(delivery: Delivery) -> str:
    """Return what a history calls a message: those of a schedule have one body, and differ in times."""
    body = delivery.body.decode()
    return f"{body}@{_ms(delivery.due)}" if body.startswith(_EVERY) and delivery.due else body


def is_of_schedule(name: str) -> bool:
    """Tell whether the name of a message is that of a schedule's."""
    return name.startswith(_EVERY)


def cron_of(period_s: int) -> str:
    """Return what says "every so many seconds", for a divisor of 60."""
    return f"*/{period_s} * * * * *"


class RecurrenceWatch:
    """Hears calls, decisions and deliveries, and objects.

    Args:
        lines: gets what a schedule promises, as of a pusher.
        broken: hears of what must not be.
    """

    def __init__(self, plan: Plan, world: World, lines: list[Line], broken: list[str]) -> None:
        self._plan = plan
        self._world = world
        self._lines = lines
        self._broken = broken
        self._calls: list[Call] = []
        self._told: defaultdict[str, int] = defaultdict(int)
        self._gone_at: dict[str, float] = {}
        self._rows: dict[str, _Row | None] = {}
        self._stood: dict[tuple[str, str], float] = {}
        self._lives: list[_Life] = []
        self._ids: defaultdict[tuple[str, int], dict[Any, float]] = defaultdict(dict)
        self.is_on = bool(plan.periods_s)

    # What an application is told

    def call(self, name: str, period_s: int = 0, body: str = "") -> Call:
        """Hear that a call begins."""
        self._calls.append(Call(len(self._calls) + 1, name, self._world.now, period_s, body))
        return self._calls[-1]

    def new_body(self, name: str) -> str:
        return f"{_EVERY}{name}-{len(self._calls) + 1}"

    def note_set(self, call: Call, schedule: Schedule) -> None:
        """Hear that a schedule was told as set."""
        self._note_told(call)
        if (schedule.body.decode(), schedule.cron) != (call.body, cron_of(call.period_s)):
            self._object(f"set: {call.name} was told to be {schedule}")

    def note_deleted(self, call: Call, *, was_there: bool) -> None:
        """Hear that a schedule was told as deleted, or as not there: a set may be on its way still, then."""
        told = self._told[call.name]
        self._note_told(call)
        if was_there:
            self._gone_at[call.name] = self._world.now
        else:
            self._told[call.name] = told

    def _note_told(self, call: Call) -> None:
        stood_until = self._stood.get((call.name, call.body), -math.inf if call.body else 0.0)
        if not call.body and call.name not in self._rows:
            stood_until = math.inf  # there never was one
        if stood_until < call.called_at:
            what = f"set with {call.body}" if call.body else "deleted"
            self._object(f"told: schedule {call.name} was told as {what}, and never was since the call")
        self._told[call.name] = call.number

    # What the database applies

    def hear(self, mutation: Mutation) -> None:
        """Hear of a transaction that was applied."""
        for (name,), row in mutation.rows.items() if mutation.table == "schedules" else ():
            cells = {column: value for column, (_, value) in row.cells.items()}
            before, after = self._rows.get(name), _to_row(cells)
            self._rows[name] = after
            self._stood[name, before.body if before else ""] = self._world.now
            self._stood[name, after.body if after else ""] = math.inf
            if after is None:
                self._check_caller(name, "")
                continue
            if before is None:
                self._lives.append(_Life(name))
            self._change(name, before, after)

    def _change(self, name: str, before: _Row | None, after: _Row) -> None:
        life = next(life for life in reversed(self._lives) if life.name == name)
        life.missed = after.missed
        if before is None or before.body != after.body:
            self._check_caller(name, after.body)
            self._check_begin(name, before, after)
            return
        if (before.period_s, before.missed > after.missed) != (after.period_s, False):
            self._object(f"schedule {name} is {after} after {before}, and nobody set it so")
        if before.next_ms != after.next_ms:
            step_ms = 1000 * after.period_s
            dues_ms = list(range(before.next_ms, after.next_ms, step_ms))
            missed = after.missed - before.missed
            life.decisions.append(_Decision(after.body, dues_ms, missed, self._latest_ms))
            if before.next_ms % step_ms or after.next_ms % step_ms or not dues_ms:
                self._object(f"schedule {name} goes from {before} to {after}")
            for due_ms in dues_ms[missed:]:
                for kind in (Kind.ATTEMPTED, Kind.ACKNOWLEDGED):
                    self._lines.append(Line(self._world.now, "schedule", kind, f"{after.body}@{due_ms}"))

    def _check_caller(self, name: str, body: str) -> None:
        """Object where what is applied was sent by no call that may still be applied."""
        number = max(
            (call.number for call in self._calls if (call.name, call.body) == (name, body)), default=0
        )
        if number <= self._told[name]:
            what = f"is set with {body}" if body else "is deleted"
            self._object(f"late: schedule {name} {what} after call {self._told[name]} was told")

    def _check_begin(self, name: str, before: _Row | None, after: _Row) -> None:
        """Object where a schedule begins at another time than it must, or forgets what it missed."""
        is_in_step = before is not None and before.period_s == after.period_s
        if after.missed != (before.missed if before else 0) and (before is None or is_in_step):
            self._object(f"schedule {name} has missed {after.missed}, and was {before}")
        if before and is_in_step:
            if before.next_ms != after.next_ms:
                self._object(f"schedule {name} goes on at {after.next_ms}, not at {before.next_ms}")
            return
        step_ms = 1000 * after.period_s
        called_at = min(call.called_at for call in self._calls if call.body == after.body)
        least_ms = _db_ms(called_at) + min(self._plan.skews_ms) - _ROUNDING_MS
        most_ms = self._latest_ms
        if before:
            self._drop(name, before, after.missed - before.missed, least_ms)
            most_ms = max(most_ms, before.next_ms - 1000 * before.period_s)  # what was pushed comes no more
        if not least_ms < after.next_ms <= most_ms + step_ms or after.next_ms % step_ms:
            self._object(f"schedule {name} begins at {after.next_ms}, and it is {self._latest_ms}")

    def _drop(self, name: str, before: _Row, missed: int, least_ms: int) -> None:
        """Hear which times go as a schedule gets others: those that nobody pushed until then, all of them."""
        life = next(life for life in reversed(self._lives) if life.name == name)
        step_ms = 1000 * before.period_s
        ends_ms = before.next_ms + missed * step_ms
        dropped = list(range(before.next_ms, ends_ms, step_ms))
        life.dropped += missed
        life.decisions.append(_Decision(before.body, dropped, missed, math.inf))
        if missed < 0 or ends_ms <= least_ms or any(due_ms > self._latest_ms for due_ms in dropped):
            self._object(f"schedule {name} drops {missed} times of {before}, and it is {self._latest_ms}")

    # What comes

    def check(self, consumer: str, delivery: Delivery) -> None:
        """Object where a message of a schedule comes early, twice, or long after its schedule was deleted."""
        body = delivery.body.decode()
        if not body.startswith(_EVERY):
            return
        if delivery.due is None:
            self._object(f"due: {consumer} got {body}, which has no due time")
            return
        due_ms = _ms(delivery.due)
        if due_ms > self._latest_ms:
            self._object(f"early: {consumer} got {body} {due_ms - self._latest_ms} ms before it was due")
        ids = self._ids[body, due_ms]
        ids.setdefault(delivery.message_id, self._world.now)
        if len(ids) > 1:
            self._object(f"twice: {body} of {due_ms} came as {' and as '.join(map(str, ids))}")
        call = next(call for call in self._calls if call.body == body)
        gone_at = self._gone_at.get(call.name, math.inf)
        ahead_ms = max(self._plan.skews_ms) + round(1000 * self._plan.soon_s) + _ROUNDING_MS
        if call.called_at < gone_at < math.inf and due_ms > _db_ms(gone_at) + ahead_ms:
            self._object(f"deleted: {body} is due at {due_ms}, and was deleted at {_db_ms(gone_at)}")

    def is_late(self, schedule: Schedule) -> bool:
        """Tell whether nobody keeps a schedule: what is due by now was not decided on."""
        return schedule.next_due_ms <= self._latest_ms

    def check_told(self, schedule: Schedule) -> None:
        """Object where an application is told another count of what was missed than the row has."""
        row = self._rows.get(schedule.name)
        if row is None or (schedule.missed, schedule.body.decode()) != (row.missed, row.body):
            self._object(f"schedule {schedule.name} is told to be {schedule}, and is {row}")

    def judge(self) -> Iterator[str]:
        """Tell what of all schedules neither came nor was told as missed, and what came of none."""
        decided: set[tuple[str, int]] = set()
        for life in self._lives:
            missing = 0
            for decision in life.decisions:
                places = [(decision.body, due_ms) for due_ms in decision.dues_ms]
                decided.update(places)
                lacking = [due_ms for body, due_ms in places if not self._ids.get((body, due_ms))]
                missing += len(lacking)
                fresh = [due_ms for due_ms in lacking if due_ms >= decision.at_ms - 1000 * self._plan.soon_s]
                if fresh:
                    yield f"lost: {decision.body} of {fresh}, decided on at {decision.at_ms}"
            if missing != life.missed:
                yield f"missed: {missing} times of {life.name} never came, and {life.missed} were told"
            if life.missed > life.dropped and self._plan.prompt_s:
                yield f"missed: {life.missed} times of {life.name}, though nothing failed"
        yield from (f"unexpected: {body} of {due}" for body, due in self._ids.keys() - decided)
        for (body, due_ms), ids in self._ids.items() if self._plan.prompt_s else ():
            waited_s = min(ids.values()) - (due_ms - EPOCH_MS) / 1000
            if waited_s > self._plan.prompt_s:
                yield f"late: {body} of {due_ms} waited for {waited_s:.1f} s"

    @property
    def _latest_ms(self) -> int:
        """What any node's clock shows at the most."""
        return _db_ms(self._world.now) + max(self._plan.skews_ms) + _ROUNDING_MS

    def _object(self, words: str) -> None:
        self._broken.append(words)


def _to_row(cells: dict[str, Any]) -> _Row | None:
    cron = cells.get("cron")
    if cron is None:
        return None
    period_s = int(cron.split()[0].removeprefix("*/"))
    return _Row(cells["body"].decode(), period_s, cells["next_due"], cells["missed"])


def _db_ms(at: float) -> int:
    return EPOCH_MS + int(at * 1000)


def _ms(time: datetime) -> int:
    return round((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
