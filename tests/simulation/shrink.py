"""Makes a failing history small enough to be read.

Owns the steps by which a plan may get simpler, and the search: a step is kept when the history still breaks a
promise of the same kind. The order of events changes with every step, so this is a search, not a proof that
nothing smaller fails; the largest steps are tried under several dice.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import history
from history import Outcome
from plan import Plan

#: So many histories are tried.
TRIES_MAX = 1000


def shrink(failed: Outcome, tried: Callable[[int, Plan], None] = lambda _count, _plan: None) -> Outcome:
    """Return the simplest history that was found which fails as `failed` did."""
    best, kind = failed, _kind(failed)
    count = 0
    is_better = True
    while is_better and count < TRIES_MAX:
        is_better = False
        for plan in _simpler(best.plan):
            count += 1
            tried(count, plan)
            outcome = history.run(plan)
            if outcome.broken and _kind(outcome) == kind:
                best, is_better = outcome, True
                break
            if count >= TRIES_MAX:
                break
    return history.run(best.plan, is_traced=True)


def _kind(outcome: Outcome) -> str:
    """Return what went wrong, without figures and names; of an error that nobody expected its type."""
    raised = re.match(r"\w+, [^:]+: (\w+)\(", outcome.broken[0])
    if raised:
        return raised[1]
    return outcome.broken[0].split(":")[0].rstrip("0123456789 ").strip()


def _simpler(plan: Plan) -> Iterator[Plan]:
    """Yield plans with one thing less, the largest steps first."""
    yield from _leaps(plan)
    for place in range(len(plan.blows)):
        yield replace(plan, blows=plan.blows[:place] + plan.blows[place + 1 :])
    for name, least in _LEAST.items():
        if getattr(plan, name) != least:
            yield _smaller_cast(plan, **{name: least})
    for messages in (1, 2, 3, plan.messages // 2, plan.messages - 1):
        if 0 < messages < plan.messages:
            yield replace(plan, messages=messages)
    yield from _with_fewer_faults(plan)
    for place, blow in enumerate(plan.blows):
        if blow.at > 1.0:
            earlier = replace(blow, at=round(blow.at / 2, 2))
            yield replace(plan, blows=(*plan.blows[:place], earlier, *plan.blows[place + 1 :]))


def _with_fewer_faults(plan: Plan) -> Iterator[Plan]:
    for name in ("odds", "seat_odds", "habits"):
        group = getattr(plan, name)
        for each in fields(group):
            is_odds = isinstance(getattr(group, each.name), float) and not each.name.endswith("_s")
            if is_odds and getattr(group, each.name):
                yield replace(plan, **{name: replace(group, **{each.name: 0.0})})


def _leaps(plan: Plan) -> Iterator[Plan]:
    """Yield plans with one of each actor and next to no messages, under several dice."""
    for messages in (1, 2, 3, 6):
        small = _smaller_cast(plan, pushers=1, poppers=1, messages=messages)
        if messages < plan.messages:
            yield from (replace(small, seed=plan.seed + number * _OTHER) for number in range(_DICE))


def _smaller_cast(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with these changes, and without blows at actors that it has no more."""
    smaller = replace(plan, **changes)
    others = 1 + bool(smaller.cancels) + (smaller.movers if smaller.moves else 0)
    numbers = {
        "pusher": smaller.pushers,
        "popper": smaller.poppers,
        "operator": smaller.operators + others,
    }
    blows = tuple(blow for blow in plan.blows if blow.target < numbers.get(blow.role, blow.target + 1))
    return replace(smaller, blows=blows)


#: So many dice are thrown for a leap, and how their seeds lie apart.
_DICE = 40
_OTHER = 1_000_003

#: The simplest value of each part of a plan.
_LEAST: dict[str, Any] = {
    "pushers": 1,
    "poppers": 1,
    "purges": 0,
    "cancels_in_a_row": 1,
    "push_width": 1,
    "pop_width": 1,
    "max_attempts": 1_000_000,
    "flows": 0.0,
    "window_messages": 10_000,
    "consumers": 1,
    "reapers": 1,
    "readers": 0,
    "operators": 0,
    "movers": 1,
    "skews_ms": (0, 0, 0),
    "wall_offsets_s": (0.0,),
}
