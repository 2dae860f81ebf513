"""What the next take of one pipe takes: first what came back and is due, then what was never handed out.

Owns what is read for that, and in which order it is planned. Refuses to write: `owned_pipe` does. What must
not break: nothing overtakes the rest of a run of which a part has expired.
"""

from collections.abc import Sequence

from cassq.limits import TAKE_BYTES_MAX, TAKE_MESSAGES_MAX, TAKE_RUNS_MAX
from cassq.model.pipe import Head
from cassq.model.ranges import Range
from cassq.model.take_plan import Plan, Room, as_burial, plan_again, plan_fresh, portion_of
from cassq.pipes import expiry
from cassq.pipes.dues import Horizon
from cassq.pipes.fenced_pipe import FencedPipe


def plan_take(fenced: FencedPipe, horizon: Horizon, wanted: int) -> tuple[Head, list[Plan], list[Plan]]:
    """Plan to take up to `wanted` messages; none are wanted by who takes what is to be ended, and no more.

    Returns: the head as the take leaves it, the runs to take again, and those to take for the first time.

    Raises:
        DecodeError: what is to be taken is not there.
    """
    again = _plan_again(fenced, horizon, wanted)
    left = wanted - _count_living(again)
    is_next = (left > 0 or not wanted) and not any(plan.rest for plan in again)
    head, fresh = _plan_fresh(fenced, horizon, left) if is_next else (fenced.head, [])
    return head, again, fresh


def _plan_again(fenced: FencedPipe, horizon: Horizon, wanted: int) -> list[Plan]:
    now_ms = fenced.estimate_now_ms()
    due = [run for run in fenced.progress.runs.values() if fenced.is_due(run, now_ms)]
    plans: list[Plan] = []
    is_looking = True
    for run in sorted(due + fenced.expired(), key=lambda run: run.first):
        size = sum(plan.taken.size for plan in plans)
        left = wanted - _count_living(plans)
        # Nothing overtakes the rest of a run of which a part has expired.
        if len(plans) >= TAKE_RUNS_MAX or size >= TAKE_BYTES_MAX or (plans and plans[-1].rest):
            break
        # What is to be buried is nothing that anybody waits for: all of it goes at once.
        is_spent = run.attempt >= fenced.attempts_max
        if left <= 0 and not is_spent:
            # Who takes for nobody ends what has expired; where a run lives, so do those behind it.
            is_looking = is_looking and not wanted and expiry.has_expired_in(fenced, run)
            if not is_looking:
                continue
        portion = TAKE_MESSAGES_MAX if is_spent or left <= 0 else left
        batches = fenced.reader.read_run(run, portion_of(fenced.progress, run, portion))
        if fenced.entry.due_class and not is_spent:
            portion = min(portion, horizon.count_near(run, batches))
            if not portion:
                continue
            last = portion_of(fenced.progress, run, portion)
            batches = [batch for batch in batches if batch.first <= last]
        if is_spent:
            plans.append(as_burial(plan_again(fenced.progress, run, batches, portion, fenced.holder)))
        else:
            plans.append(expiry.plan_again_in_time(fenced, run, batches, portion))
    return plans


def _count_living(plans: Sequence[Plan]) -> int:
    """Return how many of the planned messages will be handed out, not buried."""
    return sum(plan.taken.count for plan in plans if not plan.taken.run.is_burial)


def _plan_fresh(fenced: FencedPipe, horizon: Horizon, wanted: int) -> tuple[Head, list[Plan]]:
    head, plans = fenced.head, list[Plan]()
    until = min(horizon.until, head.last)
    lifetime = expiry.lifetime_now(fenced)  # once: between two readings what is found may expire
    left = min(wanted, until - head.cursor)
    if fenced.is_exhausted or until <= head.cursor or not (left or expiry.may_have_expired(fenced)):
        return head, plans
    batches = fenced.reader.read(head.read_from, head.cursor, max(left, 1))
    if fenced.entry.due_class:
        until = horizon.bound(batches, until)
        until = lifetime.alike_until(fenced.progress, batches, Range(head.cursor + 1, until))
        left = min(left, until - head.cursor)
        if until <= head.cursor:
            return head, plans
    alike, are_old = lifetime.leading(fenced.progress, batches, Range(head.cursor + 1, until))
    if are_old:
        head, expired = expiry.plan_waiting(fenced, batches, lifetime, until)
        plans.append(expired)
        left = min(wanted, until - head.cursor)
        batches = fenced.reader.read(head.read_from, head.cursor, left) if left > 0 else ()
        if fenced.entry.due_class:
            return head, plans  # what has not expired comes with the next take
        alike, are_old = lifetime.leading(fenced.progress, batches, Range(head.cursor + 1, until))
    if left > 0 and not are_old:  # or there is more than one take may carry
        head, fresh = plan_fresh(fenced.progress, alike, Room(left, until=until), fenced.holder, head)
        plans += [fresh] if fresh else []
    return head, plans
