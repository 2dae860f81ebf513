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
from cassq.model.pipe import BURIAL, EXPIRY, Head, PipeEntry, Run
from cassq.model.ranges import Range
from cassq.model.retrying import EXPIRED
from cassq.model.settings import QueueSettings
from cassq.model.take_plan import Plan, Room, as_burial, leading, plan_again, plan_fresh, portion_of
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.outside_view import find_newest

_MILLISECOND = timedelta(milliseconds=1)


def born_ms(settings: QueueSettings, entry: PipeEntry, now_ms: int) -> int:
    """Return before when a message was pushed that has expired by now, both by the database's clock.

    The node that tells the time now may be ahead of the one that told it at the push. What was staged could
    be taken from its pipe's publication on, which is when the entry was written.

    Returns: 0 where nothing of the pipe has expired.
    """
    if not settings.ttl:
        return 0
    born = now_ms - (settings.ttl + settings.clock_skew_max) // _MILLISECOND
    return born if born > entry.created_at_ms else 0


def born_by_now_ms(fenced: FencedPipe) -> int:
    """Return the same for a pipe, by the earliest reading of the clock."""
    return born_ms(fenced.settings, fenced.entry, fenced.estimate_now_ms())


def has_expired(fenced: FencedPipe) -> bool:
    """Tell, by a read, whether the oldest message that is in nobody's hands has expired."""
    born = born_by_now_ms(fenced)
    if not born or fenced.progress.window:
        return False
    now_ms = fenced.estimate_now_ms()
    first = min(
        [
            fenced.head.cursor + 1,
            *(_first_left(fenced, run) for run in fenced.progress.runs.values() if run.is_due(now_ms)),
        ]
    )
    return first <= fenced.head.last and _is_old(fenced, first, born)


def has_expired_in(fenced: FencedPipe, run: Run) -> bool:
    """Tell, by a read, whether the oldest message that is left of a run has expired."""
    born = born_by_now_ms(fenced)
    return born > 0 and _is_old(fenced, _first_left(fenced, run), born)


def _first_left(fenced: FencedPipe, run: Run) -> int:
    return next(fenced.progress.left_of(run)).first


def _is_old(fenced: FencedPipe, seq: int, born: int) -> bool:
    found = find_newest(fenced.storage, fenced.pipe, seq)
    return found is not None and seq <= found.last and (found.pushed_at_ms or 0) < born


def plan_waiting(fenced: FencedPipe, batches: Sequence[Batch], born: int, until: int) -> tuple[Head, Plan]:
    """Plan to end what has expired behind the cursor, up to the first message that has not.

    Args:
        batches: what was read behind the cursor; the first message that is left of them has expired.
        born: what was pushed before has expired.
        until: nothing behind this number.

    Returns: the head that the next plan goes on from.
    """
    head = fenced.head
    is_dropped = fenced.settings.on_expired == "drop"
    expired: list[Batch] = []
    alike, are_old = leading(fenced.progress, batches, Range(head.cursor + 1, until), born)
    while are_old:
        # What is dropped leaves no letters, so its bodies need not be kept until all of it was read.
        expired += [batch.outline for batch in alike] if is_dropped else alike
        cursor = alike[-1].last
        is_full = cursor - head.cursor >= TAKE_MESSAGES_MAX
        if len(alike) < len(batches) or is_full or sum(each.size for each in expired) >= TAKE_BYTES_MAX:
            break
        batches = fenced.reader.read(cursor + 1, cursor, TAKE_MESSAGES_MAX)
        alike, are_old = leading(fenced.progress, batches, Range(cursor + 1, until), born)
    moved, plan = plan_fresh(fenced.progress, expired, Room(TAKE_MESSAGES_MAX, until=until), fenced.holder)
    if plan is None:
        raise AssertionError("what has expired is left")
    # It was never handed out, and so never popped.
    moved = replace(moved, skipped=moved.skipped + plan.taken.count)
    return moved, as_expired(fenced, plan)


def plan_again_in_time(fenced: FencedPipe, run: Run, batches: Sequence[Batch], portion: int) -> Plan:
    """Plan to take a run again: the first part of it that has expired, all of that, or that has not.

    Args:
        batches: those of the first `portion` messages that are left of it.
    """
    progress, born = fenced.progress, born_by_now_ms(fenced)
    if not born:
        return plan_again(progress, run, batches, portion, fenced.holder)
    stretch = Range(run.first, run.last)
    alike, are_old = leading(progress, batches, stretch, born)
    if are_old and portion < TAKE_MESSAGES_MAX:
        portion = TAKE_MESSAGES_MAX
        batches = fenced.reader.read_run(run, portion_of(progress, run, portion))
        alike, _ = leading(progress, batches, stretch, born)
    portion = min(portion, progress.count_left(run.first, min(run.last, alike[-1].last)))
    last = portion_of(progress, run, portion)
    plan = plan_again(progress, run, [each for each in alike if each.first <= last], portion, fenced.holder)
    return as_expired(fenced, plan) if are_old else plan


def as_expired(fenced: FencedPipe, plan: Plan) -> Plan:
    """Return a plan so that what is taken is dropped, or buried, as the queue's settings say."""
    is_dropped = fenced.settings.on_expired == "drop"
    return as_burial(plan, EXPIRY if is_dropped else BURIAL, EXPIRED)
