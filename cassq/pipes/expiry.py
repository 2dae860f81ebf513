"""Messages that waited for longer than their time-to-live, or the queue's.

Owns when that is so. An owner takes them as it takes what is to be buried: under a lease of their own, of
which nothing is handed out. What must not break: nothing expires early, whichever node told when it was
pushed; and what a consumer has does not expire.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from cassq.limits import TAKE_BYTES_MAX, TAKE_MESSAGES_MAX
from cassq.model.message import Batch
from cassq.model.pipe import BURIAL, EXPIRY, Head, PipeEntry, Run
from cassq.model.progress import Progress
from cassq.model.ranges import Range
from cassq.model.retrying import EXPIRED
from cassq.model.settings import TTL_MIN, QueueSettings
from cassq.model.take_plan import Plan, Room, as_burial, leading, plan_again, plan_fresh, portion_of
from cassq.model.uses import uses_message_ttl
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.outside_view import find_newest

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When the messages of a pipe expire, by one reading of the clock.

    Attributes:
        now_ms: the database's clock, less what the node that tells it may be ahead of the one that told when
            a message was pushed.
        ttl_ms: of messages that have none of their own; 0 for ever.
        listed_at_ms: when the pipe's entry was written; what was staged could not be taken before.
    """

    now_ms: int
    ttl_ms: int
    listed_at_ms: int

    def is_over(self, batch: Batch) -> bool:
        """Tell whether the messages of a batch have expired, all of which are due by then."""
        ttl_ms = batch.ttl_ms or self.ttl_ms
        since_ms = max(batch.pushed_at_ms or 0, self.listed_at_ms, *(batch.dues or ()))
        return ttl_ms > 0 and since_ms + ttl_ms < self.now_ms

    def alike_until(self, progress: Progress, batches: Sequence[Batch], stretch: Range) -> int:
        """Return up to which number the messages that are left are alike: they have expired, or have not.

        For messages with due times, of which those of one batch do not expire together.
        """
        if not self.concerns(batches):
            return stretch.last
        is_first_over: bool | None = None
        for batch in batches:
            bounds = max(batch.first, stretch.first), min(batch.last, stretch.last)
            for part in progress.missing(*bounds):
                for seq in range(part.first, part.last + 1):
                    is_over = self.is_over(batch.part(seq, seq))
                    if is_first_over not in {None, is_over}:
                        return seq - 1
                    is_first_over = is_over
        return stretch.last

    def concerns(self, batches: Sequence[Batch]) -> bool:
        """Tell whether any of these can expire at all."""
        return self.ttl_ms > 0 or any(batch.ttl_ms for batch in batches)

    def leading(
        self, progress: Progress, batches: Sequence[Batch], stretch: Range
    ) -> tuple[Sequence[Batch], bool]:
        """Return the first of the batches that are alike, and whether what is left of them has expired."""
        if not self.concerns(batches):
            return batches, False
        return leading(progress, batches, stretch, self.is_over)


def lifetime_in(settings: QueueSettings, entry: PipeEntry, now_ms: int) -> Lifetime:
    """Return when the messages of a pipe expire; now by the database's clock."""
    now_ms -= settings.clock_skew_max // _MILLISECOND
    return Lifetime(now_ms, settings.ttl // _MILLISECOND, entry.created_at_ms)


def lifetime_now(fenced: FencedPipe) -> Lifetime:
    """Return the same for a pipe, by the earliest reading of the clock."""
    return lifetime_in(fenced.settings, fenced.entry, fenced.estimate_now_ms())


def is_limited(settings: QueueSettings) -> bool:
    """Tell whether messages of a queue may expire, as far as is known."""
    return settings.ttl > timedelta(0) or uses_message_ttl(settings)


def may_have_expired(fenced: FencedPipe) -> bool:
    """Tell, without a read, whether a pipe is old enough that any of its messages can have expired."""
    settings, lifetime = fenced.settings, lifetime_now(fenced)
    shortest = TTL_MIN if uses_message_ttl(settings) else settings.ttl
    return shortest > timedelta(0) and lifetime.listed_at_ms + shortest // _MILLISECOND < lifetime.now_ms


def has_expired(fenced: FencedPipe) -> bool:
    """Tell, by a read, whether the oldest message that is in nobody's hands has expired."""
    if fenced.progress.window or not may_have_expired(fenced):
        return False
    now_ms = fenced.estimate_now_ms()
    first = min(
        [
            fenced.head.cursor + 1,
            *(_first_left(fenced, run) for run in fenced.progress.runs.values() if run.is_due(now_ms)),
        ]
    )
    return first <= fenced.head.last and _is_old(fenced, first)


def has_expired_in(fenced: FencedPipe, run: Run) -> bool:
    """Tell, by a read, whether the oldest message that is left of a run has expired."""
    return may_have_expired(fenced) and _is_old(fenced, _first_left(fenced, run))


def _first_left(fenced: FencedPipe, run: Run) -> int:
    """Return the first message of a run that has not ended; its first one where a late commit ended all."""
    return next((part.first for part in fenced.progress.left_of(run)), run.first)


def _is_old(fenced: FencedPipe, seq: int) -> bool:
    lifetime = lifetime_now(fenced)  # before the read: what it tells may be old by then
    found = find_newest(fenced.storage, fenced.pipe, seq)
    return found is not None and seq <= found.last and lifetime.is_over(found.part(seq, seq))


def plan_waiting(
    fenced: FencedPipe, batches: Sequence[Batch], lifetime: Lifetime, until: int
) -> tuple[Head, Plan]:
    """Plan to end what has expired behind the cursor, up to the first message that has not.

    Args:
        batches: what was read behind the cursor; the first message that is left of them has expired.
        until: nothing behind this number.

    Returns: the head that the next plan goes on from.
    """
    head = fenced.head
    is_dropped = fenced.settings.on_expired == "drop"
    expired: list[Batch] = []
    alike, are_old = lifetime.leading(fenced.progress, batches, Range(head.cursor + 1, until))
    while are_old:
        # What is dropped leaves no letters, so its bodies need not be kept until all of it was read.
        expired += [batch.outline for batch in alike] if is_dropped else alike
        cursor = alike[-1].last
        is_full = cursor - head.cursor >= TAKE_MESSAGES_MAX
        if len(alike) < len(batches) or is_full or sum(each.size for each in expired) >= TAKE_BYTES_MAX:
            break
        batches = fenced.reader.read(cursor + 1, cursor, TAKE_MESSAGES_MAX)
        alike, are_old = lifetime.leading(fenced.progress, batches, Range(cursor + 1, until))
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
    progress, lifetime = fenced.progress, lifetime_now(fenced)
    if not lifetime.concerns(batches):
        return plan_again(progress, run, batches, portion, fenced.holder)
    last = run.last
    if fenced.entry.due_class:
        last = lifetime.alike_until(progress, batches, Range(run.first, run.last))
    stretch = Range(run.first, last)
    alike, are_old = lifetime.leading(progress, batches, stretch)
    if are_old and portion < TAKE_MESSAGES_MAX and last == run.last:
        portion = TAKE_MESSAGES_MAX
        batches = fenced.reader.read_run(run, portion_of(progress, run, portion))
        alike, _ = lifetime.leading(progress, batches, stretch)
    portion = min(portion, progress.count_left(run.first, min(last, alike[-1].last)))
    last = portion_of(progress, run, portion)
    plan = plan_again(progress, run, [each for each in alike if each.first <= last], portion, fenced.holder)
    return as_expired(fenced, plan) if are_old else plan


def as_expired(fenced: FencedPipe, plan: Plan) -> Plan:
    """Return a plan so that what is taken is dropped, or buried, as the queue's settings say."""
    is_dropped = fenced.settings.on_expired == "drop"
    return as_burial(plan, EXPIRY if is_dropped else BURIAL, EXPIRED)
