"""How what a take takes is cut into rows, one or more for each client that waits.

Owns how much each of them asked for, and the cutting. Pure. What must not break: a row that a token names has
messages for one client alone, and no more numbers than a token names; the rows of one take never overlap.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cassq.limits import NO_LIMIT, TAKE_MESSAGES_MAX
from cassq.model.ids import new_token
from cassq.model.message import Batch
from cassq.model.take_plan import Plan, Taken
from cassq.model.transaction import RunChange


class Portions:
    """What those in line want, in their order; the takes of one round use it up."""

    def __init__(self) -> None:
        self._wanted: deque[int] = deque()
        self._left: deque[int] = deque()

    def begin(self, wanted: Iterable[int]) -> None:
        """Begin a round: the first in line wants so many messages, the next so many."""
        self._wanted = deque(wanted)

    @property
    def left(self) -> int:
        """How many messages are wanted yet."""
        return sum(self._wanted)

    def cut(self, plans: Iterable[Plan]) -> list[Plan]:
        """Return the plans with a run for each portion; what is to be buried stays as it is."""
        self._left = deque(self._wanted)
        return [cut for plan in plans for cut in ([plan] if plan.taken.run.is_burial else self._cut(plan))]

    def use(self) -> None:
        """Use up what was cut last: it was taken."""
        self._wanted = self._left

    def _cut(self, plan: Plan) -> list[Plan]:
        rows: list[_Row] = []
        first, room = plan.taken.run.first, 0
        for whole in plan.taken.parts:
            part: Batch | None = whole
            while part:
                if not room or part.first >= first + TAKE_MESSAGES_MAX:
                    first = rows[-1].last + 1 if rows else first
                    if part.first >= first + TAKE_MESSAGES_MAX:  # what has ended is nobody's row
                        rows.append(_Row(part.first - 1))
                        first = part.first
                    rows.append(_Row())
                    room = room or (self._left.popleft() if self._left else NO_LIMIT)
                last = min(part.last, part.first + room - 1, first + TAKE_MESSAGES_MAX - 1)
                taken = part if last == part.last else part.part(part.first, last)
                part = None if last == part.last else part.part(last + 1, part.last)
                rows[-1].add(taken)
                room -= taken.count
        if room and room < NO_LIMIT // 2:
            self._left.appendleft(room)  # of another pipe, or run
        if rows and plan.taken.run.last >= first + TAKE_MESSAGES_MAX:
            rows.append(_Row())  # likewise
        return [plan] if len(rows) < 2 else _split(plan, rows)


@dataclass(slots=True)
class _Row:
    """A row that a plan is cut into: its messages, and its last number."""

    last: int = 0
    parts: list[Batch] = field(default_factory=list)

    def add(self, part: Batch) -> None:
        self.parts.append(part)
        self.last = part.last


def _split(plan: Plan, rows: list[_Row]) -> list[Plan]:
    """Return a plan for each row; the first has the row's condition, the last the rest."""
    whole, firsts = plan.taken.run, plan.taken.batch_firsts
    plans: list[Plan] = []
    first = whole.first
    for place, row in enumerate(rows):
        is_first, is_last = not place, place == len(rows) - 1
        last = whole.last if is_last else row.last
        begin = max(0, bisect_right(firsts, first) - 1)
        run = replace(whole, first=first, last=last, read_from=firsts[begin])
        if not is_first:
            run = replace(run, lease_id=new_token(), rolled_back=0)
        change = replace(plan.changes[0], run=run) if is_first else RunChange(run, is_leased_now=True)
        own = tuple(each for each in firsts[begin:] if each <= last)
        plans.append(
            Plan(
                Taken(run, tuple(row.parts), own),
                (change, *(plan.changes[1:] if is_last else ())),
                plan.rest if is_last else None,
                plan.marks if is_first else (),
            )
        )
        first = last + 1
    return plans
