"""What a pipe needs besides being taken from: seal, drain, return, retire, purge.

Owns the reaper's steps on one pipe, each a single transaction behind the fence, each safe to repeat. An
owner takes them for its own pipes, the reaper for those that nobody owns. What must not break: a pipe
retires only when its end is decided and reached and everything in it has ended; all of these, never fewer.
"""

from dataclasses import replace

from cassq.model.ids import new_token
from cassq.model.pipe import End, Mark, Phase, RunState, Step
from cassq.model.ranges import Range
from cassq.model.take_plan import returned
from cassq.model.transaction import Drain, ForceSeal, Retire, RunChange, Transaction
from cassq.pipes import window_steps
from cassq.pipes.fenced_pipe import FencedPipe
from cassq.pipes.outside_view import find_pushed, is_spent


def needs_care(owned: FencedPipe, *, is_abandoned: bool) -> bool:
    """Tell whether a reaper has work: a dead pusher or popper, an open end, a lease that ran out."""
    if is_abandoned and owned.head.phase is Phase.OPEN:
        return True
    if owned.progress.window:
        return window_steps.is_over(owned)
    return (owned.head.phase is Phase.SEALED and not owned.head.is_decided) or bool(owned.expired())


def seal(owned: FencedPipe) -> bool:
    """Seal the pipe by force, for a pusher that is gone; the caller judges that. False: lost."""
    if not owned.head.allows(Step.FORCE_SEAL):
        return True
    op = new_token()
    return owned.settle(Transaction(ForceSeal(owned.head.op, op)), op) and owned.look()


def drain(owned: FencedPipe) -> bool:
    """Decide where a pipe sealed by force ends, if nothing waits behind its cursor. False: lost.

    The seal was seen by an earlier read than the one made here; pushes acknowledged in time are in it.
    Nothing is decided beside a window.
    """
    head = owned.head
    if owned.progress.window:
        return True
    if not head.allows(Step.DRAIN) or not owned.reader.is_drained(head.read_from, head.cursor):
        return True
    op = new_token()
    return owned.settle(Transaction(Drain(head.op, op, head.cursor)), op) and owned.look()


def return_expired(owned: FencedPipe) -> int:
    """Return runs whose lease has run out, without taking them; return how many messages came back.

    None do beside a window: its holder takes them again, or whoever takes the window over.
    """
    owned.heed()
    progress = owned.progress
    if progress.window:
        return 0
    back = [
        (run, returned(progress, run, Range(run.first, run.last), run.read_from)) for run in owned.expired()
    ]
    changes = [RunChange(run, old.lease_id, old.leased_at_ms) for old, run in back]
    if not changes or not owned.advance(owned.head, changes):
        return 0
    for _, run in back:
        owned.progress.note_run(run)
    return sum(owned.progress.count_left(run.first, run.last) for _, run in back)


def retire(owned: FencedPipe) -> bool:
    """Retire the pipe, which is over and counted; True when it is retired, or gone, now."""
    owned.heed()
    if not (owned.progress.is_over and owned.head.allows(Step.RETIRE)):
        return owned.head.phase is Phase.RETIRED
    op = new_token()
    if owned.settle(Transaction(Retire(owned.head.op, op)), op):
        return True
    state = owned.storage.load_pipe(owned.pipe)
    return state is None or state.head.phase is Phase.RETIRED


def purge(owned: FencedPipe) -> int | None:
    """End everything that is in nobody's hands; return how many messages, None when refused.

    What waits is stepped over and marked in one transaction; so is what was returned. What came back from its
    last attempt is left for whoever buries it: it is to be a dead letter. While a window is out all of it is
    refused.
    """
    owned.heed()
    if owned.progress.window:
        return None
    progress, head = owned.progress, owned.head
    pushed = min(find_pushed(owned.storage, owned.pipe, head), head.last)
    idle = [Range(head.cursor + 1, pushed)] if pushed > head.cursor else []
    waiting = [part for stretch in idle for part in progress.missing(*stretch)]
    back = [
        part
        for run in progress.runs.values()
        if run.state is RunState.RETURNED
        if not is_spent(run, owned.attempts_max)
        for part in progress.left_of(run)
    ]
    marks = tuple(Mark(part.first, part.last, End.PURGED) for part in waiting + back)
    if not marks:
        return 0
    skipped = head.skipped + max(0, pushed - head.cursor)
    moved = replace(head, cursor=max(pushed, head.cursor), skipped=skipped)
    moved = replace(moved, read_from=moved.cursor + 1 if idle else head.read_from)
    if not owned.advance(moved, marks=marks):
        return None
    owned.progress.note_marks(marks)
    return sum(part.size for part in waiting + back)
