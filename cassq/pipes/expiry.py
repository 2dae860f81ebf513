"""Messages that waited for longer than the queue's time-to-live.

Owns when that is so. An owner takes them as it takes what is to be buried: under a lease of their own, of
which nothing is handed out. What must not break: nothing expires early, whichever node told when it was
pushed; and what a consumer has does not expire.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from cassq.limits import TAKE_BYTES_MAX, TAKE_MESSAGES_MAX
from cassq.model.message import Batch
from cassq.model.pipe import BURIAL, EXPIRY, Head, Run
from cassq.model.ranges import Range
from cassq.model.retrying import EXPIRED
from cassq.model.settings import QueueSettings
from cassq.model.take_plan import Plan, Room, as_burial, leading, plan_again, plan_fresh, portion_of
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.outside_view import find_newest

_MILLISECOND = timedelta(milliseconds=1)


def born_ms(settings: QueueSettings, now_ms: int) -> int:
    """Return before when a message was pushed that has expired by now, both by the database's clock.

    The node that tells the time now may be ahead of the one that told it at the push.
    """
    return now_ms - (settings.ttl + settings.clock_skew_max) // _MILLISECOND if settings.ttl else 0


def born_by_now_ms(fenced: FencedPipe) -> int:
    """Return the same for a pipe, by the earliest reading of the clock; 0 where nothing expires."""
    return born_ms(fenced.settings, fenced.estimate_now_ms())


def has_expired(fenced: FencedPipe) -> bool:
    """Tell, by a read, whether the oldest message that is in nobody's hands has expired."""
    born = born_by_now_ms(fenced)
    if not born or fenced.progress.window:
        return False
    progress, now_ms = fenced.progress, fenced.estimate_now_ms()
    returned = [run for run in progress.runs.values() if run.is_due(now_ms)]
    first = min([fenced.head.cursor + 1, *(next(progress.left_of(run)).first for run in returned)])
    found = find_newest(fenced.storage, fenced.pipe, first)
    if found is None or first > min(found.last, fenced.head.last):
        return False
    return (found.pushed_at_ms or 0) < born


def plan_waiting(fenced: FencedPipe, born: int, until: int) -> tuple[Head, Plan | None]:
    """Plan to end what has expired behind the cursor, up to the first message that has not.

    Args:
        born: what was pushed before has expired; 0 where nothing expires.
        until: nothing behind this number.

    Returns: the head that the next plan goes on from; None for the plan where nothing has expired.
    """
    head = fenced.head
    if not born:
        return head, None
    is_dropped = fenced.settings.on_expired == "drop"
    expired: list[Batch] = []
    read_from, cursor = head.read_from, head.cursor
    while sum(batch.size for batch in expired) < TAKE_BYTES_MAX and cursor - head.cursor < TAKE_MESSAGES_MAX:
        batches = fenced.reader.read(read_from, cursor, 1)
        alike, are_old = leading(fenced.progress, batches, Range(cursor + 1, until), born)
        if not are_old:
            break
        # What is dropped leaves no letters, so its bodies need not be kept until all of it was read.
        expired += [batch.outline for batch in alike] if is_dropped else alike
        cursor = alike[-1].last
        read_from = cursor + 1
        if len(alike) < len(batches):
            break
    room = Room(TAKE_MESSAGES_MAX, until=until)
    moved, plan = plan_fresh(fenced.progress, expired, room, fenced.holder)
    if plan is None:
        return head, None
    # It was never handed out, and so never popped.
    moved = replace(moved, skipped=moved.skipped + plan.taken.count)
    return moved, as_expired(fenced, plan)


def plan_again_in_time(
    fenced: FencedPipe, run: Run, batches: Sequence[Batch], portion: int, *, is_wanted: bool
) -> Plan | None:
    """Plan to take a run again: the first part of it that has expired, or that has not.

    Args:
        batches: those of the first `portion` messages that are left of it.
        is_wanted: whether what has not expired is wanted, too.
    """
    progress, born = fenced.progress, born_by_now_ms(fenced)
    if not born:
        return plan_again(progress, run, batches, portion, fenced.holder)
    alike, are_old = leading(progress, batches, Range(run.first, run.last), born)
    if not (are_old or is_wanted):
        return None
    portion = min(portion, progress.count_left(run.first, min(run.last, alike[-1].last)))
    last = portion_of(progress, run, portion)
    plan = plan_again(progress, run, [each for each in alike if each.first <= last], portion, fenced.holder)
    return as_expired(fenced, plan) if are_old else plan


def as_expired(fenced: FencedPipe, plan: Plan) -> Plan:
    """Return a plan so that what is taken is dropped, or buried, as the queue's settings say."""
    is_dropped = fenced.settings.on_expired == "drop"
    return as_burial(plan, EXPIRY if is_dropped else BURIAL, EXPIRED)
