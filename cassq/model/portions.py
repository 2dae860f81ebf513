"""How what a take takes is cut into rows, one or more for each client that waits.

Owns how much each of them asked for, and the cutting. Pure. What must not break: a row that a token names has
messages for one client alone, and the rows of one take never overlap.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from cassq.limits import NO_LIMIT
from cassq.model.ids import new_token
from cassq.model.message import Batch
from cassq.model.take_plan import Plan, Taken
from cassq.model.transaction import RunChange


class Portions:
    """What those in line want, in their order; the takes of one round use it up."""

    def __init__(self) -> None:
        self._wanted: deque[int] = deque()

    def begin(self, wanted: Iterable[int]) -> None:
        """Begin a round: the first in line wants so many messages, the next so many."""
        self._wanted = deque(wanted)

    @property
    def left(self) -> int:
        """How many messages are wanted yet."""
        return sum(self._wanted)

    def cut(self, plans: Iterable[Plan]) -> list[Plan]:
        """Return the plans with a run for each portion; what is to be buried stays as it is."""
        return [cut for plan in plans for cut in ([plan] if plan.taken.run.is_burial else self._cut(plan))]

    def _cut(self, plan: Plan) -> list[Plan]:
        groups: list[list[Batch]] = []
        room = 0
        for whole in plan.taken.parts:
            part: Batch | None = whole
            while part:
                if not room:
                    room = self._wanted.popleft() if self._wanted else NO_LIMIT
                    groups.append([])
                taken = part if part.count <= room else part.part(part.first, part.first + room - 1)
                part = None if taken is part else part.part(taken.last + 1, part.last)
                groups[-1].append(taken)
                room -= taken.count
        if room and room < NO_LIMIT // 2:
            self._wanted.appendleft(room)  # of another pipe, or run
        return [plan] if len(groups) < 2 else _split(plan, groups)


def _split(plan: Plan, groups: list[list[Batch]]) -> list[Plan]:
    """Return a plan for each group of messages; the first has the row's condition, the last the rest."""
    whole, firsts = plan.taken.run, plan.taken.batch_firsts
    plans: list[Plan] = []
    first = whole.first
    for place, parts in enumerate(groups):
        is_first, is_last = not place, place == len(groups) - 1
        last = whole.last if is_last else parts[-1].last
        begin = max(0, bisect_right(firsts, first) - 1)
        run = replace(whole, first=first, last=last, read_from=firsts[begin])
        if not is_first:
            run = replace(run, lease_id=new_token(), rolled_back=0)
        change = replace(plan.changes[0], run=run) if is_first else RunChange(run, is_leased_now=True)
        own = tuple(each for each in firsts[begin:] if each <= last)
        plans.append(
            Plan(
                Taken(run, tuple(parts), own),
                (change, *(plan.changes[1:] if is_last else ())),
                plan.rest if is_last else None,
                plan.marks if is_first else (),
            )
        )
        first = last + 1
    return plans
