"""Schedules: messages that are pushed again and again, as cron expressions say.

Owns when the occurrences of one are due, and what becomes of those that nobody pushed in time. Pure. What
must not break: each occurrence of a schedule is planned once, or told as missed.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from uuid import UUID
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from cassq.errors import InvalidOptionError
from cassq.model.ids import new_token, shorten
from cassq.model.label import Label
from cassq.model.message import Headers, to_datetime
from cassq.model.schedule import SOON, SOON_S

#: Longer than any cron expression that people write.
CRON_LENGTH_MAX = 200

#: Of occurrences that nobody pushed in time so many are counted at a time.
MISSED_MAX = 1000

#: What is late by no more is pushed in any case.
GRACE = timedelta(seconds=SOON_S)

#: Zones that each machine means another one by.
_OWN_ZONES = {"localtime", "posixrules"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message that is pushed again and again.

    Attributes:
        name: its own, in its queue.
        cron: when: minute, hour, day of month, month, day of week; or six fields, the first one for seconds.
        timezone: where: a name of the time-zone database.
        body, headers: of each message.
        ttl: how long each may wait for a consumer; None: as long as the queue says.
        priority, type: of each message; None for no type.
        next_due: when the next one is due that is not pushed yet (UTC).
        missed: how many were never pushed, because nobody was there to do so.
    """

    name: str
    cron: str
    timezone: str
    body: bytes = field(repr=False)
    headers: Headers
    ttl: timedelta | None
    priority: int
    type: str | None
    next_due: datetime
    missed: int = 0

    @property
    def label(self) -> Label:
        """What its messages are pushed with."""
        ttl_ms = 0 if self.ttl is None else self.ttl // _MILLISECOND
        return Label(ttl_ms, self.priority, self.type or "", SOON)

    @property
    def next_due_ms(self) -> int:
        """When the next one is due, in milliseconds since 1970."""
        return to_ms(self.next_due)

    def is_alike(self, other: "Schedule") -> bool:
        """Tell whether another one says the same, wherever the two are."""
        return self == replace(other, next_due=self.next_due, missed=self.missed)


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule as it is stored.

    Attributes:
        op: changes with every write; what the next one is conditional on.
        target: the pipe that its last occurrences are in, until that is known to be listed.
    """

    schedule: Schedule
    op: UUID = field(default_factory=new_token)
    target: UUID | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is pushed of a schedule now.

    Attributes:
        dues_ms: when each is due, in milliseconds since 1970.
        missed: how many are not, and never will be.
        next_due: of the first one after these.
    """

    dues_ms: tuple[int, ...]
    missed: int
    next_due: datetime


def to_ms(time: datetime) -> int:
    """Return a time as milliseconds since 1970."""
    return (time - _EPOCH) // _MILLISECOND


def next_after(cron: str, timezone: str, after: datetime) -> datetime:
    """Return the first time after `after` that a cron expression tells (UTC).

    Raises:
        InvalidOptionError: it is no such expression, or tells no time; or there is no such time zone.
    """
    for at in _times(cron, timezone, after):
        if at > after:  # where clocks are set back, times come again
            return at
    raise InvalidOptionError(f"cron={shorten(cron)} never comes: no day of the next 50 years is meant")


def plan(schedule: Schedule, now_ms: int, until_ms: int) -> Plan:
    """Return which occurrences of a schedule are pushed, up to a time.

    One that should have been pushed long ago is missed where a later one has passed, too, or where it would
    have expired.

    Args:
        now_ms: what every node's clock shows by now.
    """
    now, until = to_datetime(now_ms), to_datetime(until_ms)
    missed, due = 0, schedule.next_due
    while due < now - GRACE and (following := next_after(schedule.cron, schedule.timezone, due)) <= now:
        missed += 1
        # So many are as good as all: to count on might take minutes.
        due = following if missed < MISSED_MAX else max(following, _last_before(schedule, now) or due)
    dues: list[int] = []
    while due <= until:
        if schedule.ttl and due < now - schedule.ttl:
            missed += 1
        else:
            dues.append(to_ms(due))
        due = next_after(schedule.cron, schedule.timezone, due)
    return Plan(tuple(dues), missed, due)


def altered(before: Schedule, wanted: Schedule, now: datetime) -> Schedule:
    """Return what a schedule becomes: nothing is pushed twice, and what is dropped counts as missed."""
    if (before.cron, before.timezone) == (wanted.cron, wanted.timezone):
        return replace(wanted, next_due=before.next_due, missed=before.missed)
    missed, begin = before.missed, now
    with suppress(InvalidOptionError):  # where this machine cannot read what was set on another one
        if before.next_due <= now:
            dropped = plan(before, to_ms(now), to_ms(now))
            missed += dropped.missed + len(dropped.dues_ms)
        # What came before the next one was pushed, a little ahead.
        begin = max(now, _last_before(before, before.next_due - timedelta(seconds=1)) or now)
    return replace(wanted, next_due=next_after(wanted.cron, wanted.timezone, begin), missed=missed)


def _last_before(schedule: Schedule, now: datetime) -> datetime | None:
    behind = now + timedelta(seconds=1)  # a time that is `now` is meant, too
    times = _times(schedule.cron, schedule.timezone, behind, is_backwards=True)
    return next((at for at in times if at <= now), None)


def _times(
    cron: object, timezone: object, after: datetime, *, is_backwards: bool = False
) -> Iterator[datetime]:
    if not isinstance(cron, str) or len(cron) > CRON_LENGTH_MAX:
        raise InvalidOptionError(
            f"cron={shorten(cron)} must be a str, of {CRON_LENGTH_MAX} characters at most: '0 9 * * MON'"
        )
    try:
        times = CronSim(cron, after.astimezone(_zone(timezone)), reverse=is_backwards)
    except (CronSimError, ValueError) as error:
        raise InvalidOptionError(
            f"cron={shorten(cron)} is no cron expression ({error}): it has five fields, minute (0 to 59), "
            "hour (0 to 23), day of month (1 to 31), month (1 to 12 or JAN) and day of week (0 to 7 or SUN), "
            "or six, with seconds before them; '*/5', 'MON-FRI' and '1,15' are fields, too, ranges go up, "
            "and the day has to come in one of the months: write '0 0 * * *' for once a day"
        ) from None
    return (at.astimezone(UTC) for at in times)


def _zone(timezone: object) -> tzinfo:
    if timezone == "UTC":
        return UTC
    if not isinstance(timezone, str):
        raise InvalidOptionError(f"timezone={shorten(timezone)} must be a str, as the key of a ZoneInfo is")
    try:
        if timezone in _OWN_ZONES:
            raise LookupError
        return ZoneInfo(timezone)
    except (LookupError, ValueError, OSError):
        raise InvalidOptionError(
            f"timezone={shorten(timezone)} is not in the time-zone database of this machine: name one "
            "as 'Europe/Berlin' or 'UTC', in these letters, and install the package tzdata where the "
            "machine has no database"
        ) from None
