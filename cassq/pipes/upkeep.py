"""What a pipe needs besides being taken from: seal, drain, return, retire, purge.

Owns the reaper's steps on one pipe, each a single transaction behind the fence, each safe to repeat. An
owner takes them for its own pipes, the reaper for those that nobody owns. What must not break: a pipe
retires only when its end is decided and reached and everything in it has ended; all of these, never fewer.
"""

from collections.abc import Sequence
from dataclasses import replace

from cassq.model.ids import LogPlace, new_token
from cassq.model.pipe import End, Mark, Phase, Run, RunState, Step
from cassq.model.ranges import Range
from cassq.model.take_plan import returned
from cassq.model.transaction import Drain, ForceSeal, Retire, RunChange, Transaction
from cassq.pipes import window_steps
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.outside_view import find_newest, find_pushed, is_spent


def needs_care(fenced: FencedPipe, *, is_abandoned: bool) -> bool:
    """Tell whether a reaper has work: a dead pusher or popper, an open end, a lease that ran out."""
    if is_abandoned and fenced.head.phase is Phase.OPEN:
        return True
    if fenced.progress.window:
        return window_steps.is_over(fenced)
    if has_cancelled(fenced):
        return True
    is_open_end = fenced.head.phase is Phase.SEALED and not fenced.head.is_decided
    return is_open_end or bool(fenced.expired()) or has_spent(fenced)


def has_spent(fenced: FencedPipe) -> bool:
    """Tell whether messages came back from their last attempt, which nobody has buried yet."""
    return any(is_spent(run, fenced.attempts_max) for run in fenced.progress.runs.values())


def has_cancelled(fenced: FencedPipe) -> bool:
    """Tell whether the next message was cancelled before it was handed out: nobody may come for it."""
    return not fenced.progress.window and fenced.progress.is_ended(fenced.head.cursor + 1)


def step_over(fenced: FencedPipe) -> bool:
    """Move the cursor over what was cancelled before it was handed out. False: refused.

    Reads go on from the batch that holds the new cursor: a drain and a take read few batches from there on,
    and would find nothing behind many that were stepped over.
    """
    if not has_cancelled(fenced):
        return True
    head = fenced.head
    last = min(fenced.progress.reach(head.cursor + 1), head.last)
    newest = find_newest(fenced.storage, fenced.pipe, last)
    if newest is None:
        return True
    read_from = newest.first if newest.last > last else last + 1
    skipped = head.skipped + last - head.cursor
    return fenced.advance(replace(head, cursor=last, read_from=read_from, skipped=skipped))


def seal(fenced: FencedPipe) -> bool:
    """Seal the pipe by force, for a pusher that is gone; the caller judges that. False: lost."""
    if not fenced.head.allows(Step.FORCE_SEAL):
        return True
    op = new_token()
    return fenced.settle(Transaction(ForceSeal(fenced.head.op, op)), op) and fenced.look()


def drain(fenced: FencedPipe) -> bool:
    """Decide where a pipe sealed by force ends, if nothing waits behind its cursor. False: lost.

    The seal was seen by an earlier read than the one made here; pushes acknowledged in time are in it.
    Nothing is decided beside a window.
    """
    head = fenced.head
    if fenced.progress.window:
        return True
    if not head.allows(Step.DRAIN) or not fenced.reader.is_drained(head.read_from, head.cursor):
        return True
    op = new_token()
    return fenced.settle(Transaction(Drain(head.op, op, head.cursor)), op) and fenced.look()


def return_expired(fenced: FencedPipe) -> int:
    """Return runs whose lease has run out, without taking them; return how many messages came back.

    None do beside a window: its holder takes them again, or whoever takes the window over.
    """
    fenced.heed()
    if fenced.progress.window:
        return 0
    back = _bring_back(fenced, fenced.expired())
    return sum(fenced.progress.count_left(run.first, run.last) for run in back or () if not run.is_burial)


def return_ended(fenced: FencedPipe) -> bool:
    """Return runs whose lease has run out and of which nothing is left, so that their keys are free.

    A lease that is over by the clock may run again, by an extension in flight: from here on that is refused.
    False: lost.
    """
    ended = [run for run in fenced.expired() if not any(fenced.progress.left_of(run))]
    return _bring_back(fenced, ended) is not None


def _bring_back(fenced: FencedPipe, runs: Sequence[Run]) -> list[Run] | None:
    """Write rows of runs that nobody holds any more; return them, or None where that was refused."""
    progress = fenced.progress
    back = [returned(progress, run, Range(run.first, run.last), run.read_from) for run in runs]
    changes = [RunChange(new, old.lease_id, old.leased_at_ms) for old, new in zip(runs, back, strict=True)]
    if changes and not fenced.advance(fenced.head, changes):
        return None
    for run in back:
        fenced.progress.note_run(run)
    return back


def retire(fenced: FencedPipe, journal: LogPlace | None = None) -> bool:
    """Retire the pipe, which is over and counted; True when it is retired, or gone, now.

    Args:
        journal: what its head is to name; where somebody else retired it, the head says what it names.
    """
    fenced.heed()
    if not (fenced.progress.is_over and fenced.head.allows(Step.RETIRE)):
        return fenced.head.phase is Phase.RETIRED
    op = new_token()
    if fenced.settle(Transaction(Retire(fenced.head.op, op, journal)), op):
        fenced.progress.note_head(replace(fenced.head, op=op, phase=Phase.RETIRED, journal=journal))
        return True
    return not fenced.look() or fenced.head.phase is Phase.RETIRED


def purge(fenced: FencedPipe) -> int | None:
    """End everything that is in nobody's hands; return how many messages, None when refused.

    What waits is stepped over and marked in one transaction; so is what was returned. What came back from its
    last attempt is left for whoever buries it: it is to be a dead letter. While a window is out all of it is
    refused.
    """
    fenced.heed()
    if fenced.progress.window:
        return None
    progress, head = fenced.progress, fenced.head
    pushed = min(find_pushed(fenced.storage, fenced.pipe, head), head.last)
    idle = [Range(head.cursor + 1, pushed)] if pushed > head.cursor else []
    waiting = [part for stretch in idle for part in progress.missing(*stretch)]
    back = [
        part
        for run in progress.runs.values()
        if run.state is RunState.RETURNED
        if not is_spent(run, fenced.attempts_max)
        for part in progress.left_of(run)
    ]
    marks = tuple(Mark(part.first, part.last, End.PURGED) for part in waiting + back)
    if not marks and not idle:
        return 0
    skipped = head.skipped + max(0, pushed - head.cursor)
    moved = replace(head, cursor=max(pushed, head.cursor), skipped=skipped)
    moved = replace(moved, read_from=moved.cursor + 1 if idle else head.read_from)
    if not fenced.advance(moved, marks=marks):
        return None
    fenced.progress.note_marks(marks)
    return sum(part.size for part in waiting + back)
