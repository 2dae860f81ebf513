"""The contract for rows that are changed one by one, each by compare-and-set: schedules and slots.

The rules of `cassq.storage.port` hold here too.
"""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from cassq.model.recurrence import ScheduleRecord


class ScheduleStorage(Protocol):
    """Schedules, each changed by compare-and-set, by the incarnation of their queue: no later one has it."""

    def read_schedules(self, incarnation: UUID, name: str | None = None) -> Sequence[ScheduleRecord]:
        """Return one schedule of a queue (or nothing), or all of them ordered by name.

        Guarantees: every `change_schedule` that had returned True before the call is seen; for one name also
        every one that was applied.
        """
        ...

    def change_schedule(
        self, incarnation: UUID, name: str, seen: ScheduleRecord | None, wanted: ScheduleRecord | None
    ) -> bool:
        """Write `wanted` if the schedule still has `seen.op`, or none exists where `seen` is None.

        Args:
            wanted: None deletes it.

        Returns: whether it was applied.
        Guarantees: compare-and-set; exactly one of two racing calls with the same `seen` applies. Those of a
        queue whose schedules were deleted come back in no later one of its name.
        Idempotent: no. After a time-out (`OutcomeUnknownError`): read it; `wanted.op` tells whether it was
        applied so far; it may still be applied later, until another change on the op that was read was. Where
        `seen` is None: until a schedule of the name was there, also if it was deleted since.
        """
        ...

    def delete_schedules(self, incarnation: UUID) -> None:
        """Delete all schedules of a queue, for ever.

        Idempotent: yes. After a time-out: call it again.
        """
        ...


class SlotStorage(Protocol):
    """The rows of slots, an op each, by the incarnation of their queue: no later one has them."""

    def read_slot(self, incarnation: UUID, slot: int, *, is_settled: bool = True) -> UUID | None:
        """Return the op of a slot; None where nobody ever changed it.

        Args:
            is_settled: False costs less, and does not get into the way of those who change it.

        Guarantees: every `change_slot` that had returned True before the call is seen, and every op that a
        call returned before, or a later one; a settled read also sees every one that was applied.
        """
        ...

    def change_slot(self, incarnation: UUID, slot: int, seen: UUID | None, op: UUID) -> bool:
        """Write `op` if the slot still has the op that was seen, or none where `seen` is None.

        Args:
            slot: 0 to `SLOTS_MAX` - 1.
            op: a fresh one for each call.

        Returns: whether it was applied.
        Guarantees: compare-and-set; exactly one of two racing calls with the same `seen` applies. The slots
        of a queue that were deleted come back in no later one of its name.
        Idempotent: no. After a time-out (`OutcomeUnknownError`): a settled read tells whether it was applied
        so far; it may still be applied later, until another change on the op that was read was.
        """
        ...

    def delete_slots(self, incarnation: UUID) -> None:
        """Delete all slots of a queue, for ever.

        Idempotent: yes. After a time-out: call it again.
        """
        ...
