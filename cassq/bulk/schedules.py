"""The schedules of a queue, as people set and delete them.

Owns that a name has one schedule, and what is said of bad ones. Refuses to push: that is
`cassq.bulk.occurrences`. What must not break: setting what is set already changes nothing, so that each
process of an application may set its schedules when it starts.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TypedDict, TypeVar, Unpack, cast

from cassq.bulk.occurrences import Occurrences
from cassq.catalog.first_uses import FirstUses
from cassq.catalog.queue_context import QueueContext
from cassq.errors import (
    BodyTooLargeError,
    InvalidOptionError,
    OutcomeUnknownError,
    ScheduleNotFoundError,
    UnavailableError,
)
from cassq.limits import KIB
from cassq.model.ids import check_name, new_token, shorten
from cassq.model.label import to_label
from cassq.model.message import Headers, check_body, check_headers, size_of, to_datetime
from cassq.model.options import PushOptions
from cassq.model.recurrence import Schedule, ScheduleRecord, altered, next_after
from cassq.model.schedule import SOON
from cassq.model.uses import uses_schedules, with_schedules
from cassq.runtime.deadline import Deadline

#: A body of a schedule is so large at most, with its headers.
BYTES_MAX = 64 * KIB

#: How often a change is tried again when others change the schedule at the same time.
CHANGE_ATTEMPTS = 20

#: How long setting or deleting a schedule is tried.
PATIENCE_S = 30.0


Result = TypeVar("Result")


class ScheduleOptions(TypedDict, total=False):
    """What `Schedules.set` takes besides, for type checkers."""

    ttl: timedelta | None
    priority: int
    type: str | None


class Schedules:
    """The schedules of one queue: messages that are pushed again and again.

    Processes that pop push what is due soon, and so does `cassq reap`.
    """

    def __init__(self, context: QueueContext, check_open: Callable[[], None]) -> None:
        self._storage = context.storage
        self._queue = context.queue
        self._record = context.record
        self._context = context
        self._clock = context.clock
        self._check_open = check_open
        self._first_uses = FirstUses(context.record, context.clock, lambda: False)
        self._occurrences = Occurrences(context, "")

    def set(
        self,
        name: str,
        cron: str,
        body: bytes,
        headers: Headers | None = None,
        *,
        timezone: str = "UTC",
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Have a message pushed each time that a cron expression tells; replace the schedule of that name.

        Where the same is set already nothing changes, and it goes on where it was. Otherwise it begins now;
        what is due within 15 s may have been pushed as it was before.

        Args:
            name: of the schedule, in the letters of a queue's name.
            cron: when: minute, hour, day of month, month, day of week; or six fields, the first one for
                seconds.
            body, headers: of each message.
            timezone: where: a name of the time-zone database, as "Europe/Berlin".
            options: `ttl`, `priority` and `type`, of each message, as of `Queue.push`.

        Returns: the schedule as it is now.

        Raises:
            InvalidOptionError, InvalidNameError, BodyTooLargeError: a value breaks a rule; nothing was set.
            QueueNotFoundError, ClosedError: the queue was deleted or closed.
            StorageUnavailableError: nothing was set.
            OutcomeUnknownError: it may be set: set it again, which is harmless.
        """
        self._check_open()
        check_name(name, "name of a schedule")
        for option in options.keys() - ScheduleOptions.__annotations__.keys():
            known = ", ".join(sorted(ScheduleOptions.__annotations__))
            raise InvalidOptionError(f"{shorten(option)} is no option of a schedule; the options are {known}")
        label = to_label(cast("PushOptions", options))._replace(due_class=SOON)
        checked = check_body(body, self._context.settings.body_bytes_max), check_headers(headers)
        if size_of(*checked) > BYTES_MAX:
            raise BodyTooLargeError(
                f"body and headers of schedule {name!r} have {size_of(*checked)} bytes, and {BYTES_MAX} are "
                "allowed, for each process that pops reads them again and again: push a reference"
            )
        now = to_datetime(self._now_ms())
        ttl = timedelta(milliseconds=label.ttl_ms) if label.ttl_ms else None
        first = next_after(cron, timezone, now)
        cron = " ".join(cron.split())
        wanted = Schedule(name, cron, timezone, *checked, ttl, label.priority, label.type or None, first)
        self._first_uses.tell([label], PATIENCE_S, "nothing was set")
        if not uses_schedules(self._context.settings):
            self._record.change(with_schedules)

        def put(seen: ScheduleRecord | None) -> Schedule | None:
            if seen is None:
                record = ScheduleRecord(wanted)
            elif seen.schedule.is_alike(wanted):
                return seen.schedule
            else:
                record = replace(seen, op=new_token(), schedule=altered(seen.schedule, wanted, now))
            return record.schedule if self._change(name, seen, record) else None

        return self._insist(name, put, "set")

    def get(self, name: str) -> Schedule:
        """Return a schedule.

        Raises: ScheduleNotFoundError, InvalidNameError: there is none of this name.
        """
        self._check_open()
        return self._find(check_name(name, "name of a schedule")).schedule

    def delete(self, name: str) -> None:
        """Delete a schedule; what is due within 15 s may have been pushed, and comes.

        Raises:
            ScheduleNotFoundError, InvalidNameError: there is none of this name.
            StorageUnavailableError: it was not deleted.
            OutcomeUnknownError: it may be deleted, also later: delete it again until there is none.
        """
        self._check_open()
        check_name(name, "name of a schedule")
        self._find(name)

        def remove(seen: ScheduleRecord | None) -> bool | None:
            if seen is None:
                return True
            finished = self._occurrences.finish(seen)
            return (finished and self._change(name, finished, None)) or None

        self._insist(name, remove, "deleted")

    def __iter__(self) -> Iterator[Schedule]:
        """Yield all schedules, in the order of their names."""
        self._check_open()
        for record in self._storage.read_schedules(self._record.incarnation):
            yield record.schedule

    def _insist(self, name: str, step: Callable[[ScheduleRecord | None], Result | None], done: str) -> Result:
        """Try a step on what is there, until it is done; None says that it was not."""
        is_in_doubt = False
        told = f"queue {self._queue!r}: schedule {name!r} may be {done}"
        with Deadline(self._clock.now() + PATIENCE_S):
            for _ in range(CHANGE_ATTEMPTS):
                try:
                    result = step(self._occurrences.find(name))
                    if result is not None:
                        return result
                except (
                    OutcomeUnknownError
                ):  # where it happened, it is seen; if not, the next write settles it
                    is_in_doubt = True
                except UnavailableError as error:
                    if not is_in_doubt:
                        raise
                    raise OutcomeUnknownError(f"{told}: {error}") from error
        words = "the database did not answer in time" if is_in_doubt else "others kept changing it"
        raise OutcomeUnknownError(f"{told}: {words}; try again", is_contended=not is_in_doubt)

    def _change(self, name: str, seen: ScheduleRecord | None, wanted: ScheduleRecord | None) -> bool:
        return self._storage.change_schedule(self._record.incarnation, name, seen, wanted)

    def _find(self, name: str) -> ScheduleRecord:
        found = self._occurrences.find(name)
        if found is None:
            names = ", ".join(each.name for each in islice(self, 5))
            raise ScheduleNotFoundError(
                f"queue {self._queue!r} has no schedule {name!r}"
                + (f"; it has: {names}" if names else "; it has none at all")
            )
        return found

    def _now_ms(self) -> int:
        """Return the database's clock; raise where the queue was deleted."""
        now_ms = self._record.note(self._storage.glance_queue(self._queue)).read_at_ms
        self._check_open()
        return now_ms
