"""Pushes the occurrences of schedules: each once, by whoever comes by, ahead of when it is due.

Owns the order of steps, for one schedule at a time: stage, decide, list. The schedule's own record decides,
in one transaction that names the pipe with the occurrences up to a time, and the due time behind them. What
must not break:

- the pipe is staged, filled and sealed before that is decided, and listed after it;
- the decision is conditional on the op under which the schedule was read; an attempt has a pipe of its own;
- a record names its pipe until that is listed; before, no more is decided, nor the schedule deleted;
- what is staged is deleted only where the record does not name it, and never will, and it is not listed.

    keeper A                        the schedule (op 1, 9:00)     keeper B
    | stages T1: 9:00               |                             |
    | (frozen)                      |                             | stages T2: 9:00
    |                               | <-- T2, next 10:00, IF op 1 | lists T2
    |                               | <-- nothing left, IF op 2   |
    | T1, next 10:00, IF op 1 ----> | refused: A deletes T1       |
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from uuid import NAMESPACE_OID, UUID, uuid5

from cassq.catalog.queue_context import QueueContext
from cassq.errors import AccessDeniedError, CoordinationUnavailableError, PipeLostError
from cassq.model.ids import id_time_ms, new_pipe_id, new_token
from cassq.model.message import Batch
from cassq.model.pipe import Head, PipeEntry
from cassq.model.recurrence import MISSED_MAX, Plan, Schedule, ScheduleRecord, plan
from cassq.model.schedule import SOON_S
from cassq.model.shelf import Shelf
from cassq.model.transaction import Seal, Transaction
from cassq.model.uses import bits_of

_log = logging.getLogger("cassq.reaper")

_MILLISECOND = timedelta(milliseconds=1)

#: What staged pipes have before the name of their schedule; no pusher has a name with such a sign.
_PUSHER = "schedule/"


class Occurrences:
    """Those of one queue's schedules.

    Args:
        holder: the name under which it claims schedules; a claim spares work and decides nothing.
    """

    def __init__(self, context: QueueContext, holder: str) -> None:
        self._storage = context.storage
        self._coordinator = context.coordinator
        self._context = context
        self._queue = context.queue
        self._record = context.record
        self._holder = holder

    def near(self, now_ms: int) -> tuple[Sequence[ScheduleRecord], int | None]:
        """Return the schedules that need something by now, the first one first; and when others will."""
        # What is pushed then is all that is due soon: so few pipes are needed, however dense a schedule is.
        ahead_ms = round(1000 * SOON_S / 2)
        found = self._storage.read_schedules(self._record.incarnation)
        needs = sorted(
            (each.schedule.next_due_ms - ahead_ms, n) for n, each in enumerate(found) if not each.target
        )
        near = [found[n] for at_ms, n in needs if at_ms <= now_ms]
        later = [at_ms for at_ms, _ in needs if at_ms > now_ms]
        return [*(each for each in found if each.target), *near], min(later, default=None)

    def push(self, seen: ScheduleRecord, now_ms: int) -> Plan | None:
        """Push what is due soon of a schedule; return what was decided, None where others do so."""
        name = seen.schedule.name
        claim = uuid5(NAMESPACE_OID, f"{self._record.incarnation}/{name}")
        if not self._coordinator.claim(self._queue, claim, self._holder):
            return None
        try:
            found = self.find(name)
            record = found and self.finish(found)
            return self._push(record, now_ms) if record else None
        finally:
            self._coordinator.release(self._queue, claim, self._holder)

    def find(self, name: str) -> ScheduleRecord | None:
        """Return a schedule as it stands; None where there is none."""
        return next(iter(self._storage.read_schedules(self._record.incarnation, name)), None)

    def finish(self, seen: ScheduleRecord) -> ScheduleRecord | None:
        """List the pipe that a record names, where that is not done; None where somebody else changed it."""
        if seen.target is None:
            return seen
        staged = self._storage.list_pipes(self._queue, seen.target, until=seen.target, shelf=Shelf.SORTED)
        self._list(staged.entries)
        self._note_late(seen.target, staged.now_ms)
        return self._changed(seen, replace(seen, target=None))

    def _push(self, seen: ScheduleRecord, now_ms: int) -> Plan | None:
        schedule = seen.schedule
        until_ms = now_ms + 1000 * SOON_S
        if schedule.next_due_ms > until_ms:
            return None
        skew_ms = self._context.settings.clock_skew_max // _MILLISECOND
        planned = plan(schedule, now_ms - skew_ms, until_ms)
        target = self._stage(schedule, planned.dues_ms, now_ms) if planned.dues_ms else None
        missed = schedule.missed + planned.missed
        wanted = replace(schedule, next_due=planned.next_due, missed=missed)
        decided = self._changed(seen, replace(seen, schedule=wanted, target=target))
        if decided is None:
            if target:
                self._storage.delete_pipe(self._queue, target, Shelf.SORTED)
            return None
        if planned.missed:
            _log.warning(
                "queue %s: schedule %s: missed %d%s of its messages, from that of %s on: no process that "
                "pops from the queue, or reaps, was there in time",
                *(self._queue, schedule.name, planned.missed, " or more" * (planned.missed >= MISSED_MAX)),
                schedule.next_due.isoformat(),
            )
        self.finish(decided)
        return planned

    def _stage(self, schedule: Schedule, dues_ms: Sequence[int], now_ms: int) -> UUID:
        """Stage a pipe with these occurrences.

        Raises: PipeLostError: that took so long that somebody has deleted it.
        """
        pipe = new_pipe_id(max(now_ms, dues_ms[0]))
        label = schedule.label
        entry = PipeEntry(
            *(pipe, f"{_PUSHER}{schedule.name}", label.priority),
            type=label.type,
            due_class=label.due_class,
            shelf=Shelf.SORTED,
        )
        self._storage.create_pipe(self._queue, entry, Head(op=new_token()))
        headers = (schedule.headers,) if schedule.headers else None
        for seq, due_ms in enumerate(dues_ms, 1):
            batch = Batch(seq, (schedule.body,), headers, 1, ttl_ms=label.ttl_ms, dues=(due_ms,))
            self._storage.append(pipe, batch)
        if not self._storage.transact(pipe, Transaction(Seal(len(dues_ms)))).is_applied:
            self._storage.delete_pipe(self._queue, pipe, Shelf.SORTED)
            raise PipeLostError(
                f"schedule {schedule.name}: its pipe {pipe} was cleared away while it was filled"
            )
        return pipe

    def _list(self, entries: Sequence[PipeEntry]) -> None:
        """List pipes that were decided on for poppers, and wake those."""
        if not entries:
            return
        self._storage.publish_pipes(self._queue, entries, Shelf.DUE)
        with suppress(CoordinationUnavailableError, AccessDeniedError):
            types = bits_of(self._context.settings, [entry.type for entry in entries])
            self._coordinator.wake(self._queue, len(entries), types=types)

    def _note_late(self, pipe: UUID, now_ms: int) -> None:
        """Have poppers read the whole list where a pipe came there long after the time of its id."""
        settings = self._context.settings
        window_s = (settings.push_age_max + settings.push_grace).total_seconds()
        if id_time_ms(pipe) < now_ms - 1000 * window_s / 2:
            self._record.change(lambda record: replace(record, publications=record.publications + 1))

    def _changed(self, seen: ScheduleRecord, wanted: ScheduleRecord) -> ScheduleRecord | None:
        """Change a schedule; return it as it is then, None where it was not as it was seen."""
        changed = replace(wanted, op=new_token())
        name = seen.schedule.name
        is_applied = self._storage.change_schedule(self._record.incarnation, name, seen, changed)
        return changed if is_applied else None

    def look_after(self, entry: PipeEntry) -> bool:
        """List a pipe that was staged long ago, or delete it; tell whether it was deleted.

        The record is fenced before the list is read: from then on it names the pipe, or never will; and where
        it named it once, the pipe was listed before it did so no more.
        """
        seen = self.find(entry.pusher.removeprefix(_PUSHER))
        if seen and seen.target == entry.pipe:
            self.finish(seen)
            return False
        if seen and self._changed(seen, seen) is None:
            return False  # somebody changed it: the next pass looks again
        listed = self._storage.list_pipes(self._queue, entry.pipe, until=entry.pipe, shelf=Shelf.DUE)
        if listed.entries:
            self._storage.publish_pipes(self._queue, [entry], Shelf.DUE)  # again: that takes it off here
            return False
        self._storage.delete_pipe(self._queue, entry.pipe, Shelf.SORTED)
        return True


def is_of_schedule(entry: PipeEntry) -> bool:
    """Tell whether a staged pipe has occurrences of a schedule: what was moved tells of where it was."""
    return entry.moved_from is None and entry.pusher.startswith(_PUSHER)
