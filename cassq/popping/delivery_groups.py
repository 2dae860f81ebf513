"""Many messages in a consumer's hands, ended together.

Owns that each of them ends once, all or none are claimed for that, and that neighbours of one run are
written as one.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from cassq.errors import CassqError, ClosedError, UsageError
from cassq.model.ranges import Ranges
from cassq.pipes.held_run import HeldRun
from cassq.pipes.run_rows import Return
from cassq.popping.delivery import BatchSlice, Delivery
from cassq.popping.hand import Portion
from cassq.popping.observed_ends import give_back


def finish_all(deliveries: Sequence[Delivery], ending: str) -> None:
    """Claim deliveries for the one ending each of them gets; all or none.

    Raises:
        ClosedError: one of them has ended before, or is named twice.
    """
    for place, delivery in enumerate(deliveries):
        if delivery._ending:  # noqa: SLF001 - our own class, and a loop over thousands
            claimed = deliveries[:place]
            for each in claimed:
                each._ending = None  # noqa: SLF001
            delivery.check_unfinished()
            raise ClosedError(f"{delivery!r} is named twice: a delivery ends once; none of them was {ending}")
        delivery._ending = ending  # noqa: SLF001


def unended(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return those that have not ended."""
    return [each for each in deliveries if not each.has_ended]


def portions_of(deliveries: Iterable[Delivery]) -> list[Portion]:
    """Return deliveries as what is in hand."""
    return [(each._batch_slice, each.seq, each.seq) for each in deliveries]  # noqa: SLF001 - our own class


def return_all(deliveries: Sequence[Delivery], *, is_counted: bool, reason: str = "") -> None:
    """Roll back many, without a delay, or give them back: what follows each other goes back as one.

    Raises:
        ClosedError: one of them has ended before, or is named twice; nothing was written.
        AccessDeniedError: the role may not write; what it was refused can be ended later.
        CassqError: the first that a run met; the others were given back all the same.
    """
    finish_all(deliveries, "rolled back" if is_counted else "given back")
    failed: CassqError | None = None
    by_run: dict[HeldRun, list[Delivery]] = {}
    for each in deliveries:
        by_run.setdefault(each.run, []).append(each)
    for run, parts in group_by_run(deliveries).items():
        own = by_run[run]
        how = Return(is_counted=False)
        if is_counted:
            how = run.after_failure(own[0].seq, reason, timedelta(0))
        try:
            give_back(run, parts, how, [each.handout() for each in own] if how.is_last else ())
        except CassqError as error:
            failed = failed or error
            for each in own if isinstance(error, UsageError) else ():
                each.unfinish()
    if failed:
        raise failed


def group_by_run(deliveries: Iterable[Delivery]) -> dict[HeldRun, Ranges]:
    """Group messages by run; neighbours that follow each other cost next to nothing."""
    groups: dict[HeldRun, Ranges] = {}
    batch_slice: BatchSlice | None = None
    first = last = 0
    for delivery in deliveries:
        seq = delivery.seq
        if seq == last + 1 and delivery._batch_slice is batch_slice:  # noqa: SLF001 - our own class, a loop over thousands
            last = seq
            continue
        if batch_slice is not None:
            groups.setdefault(batch_slice.run, Ranges()).add(first, last)
        batch_slice = delivery._batch_slice  # noqa: SLF001
        first = last = seq
    if batch_slice is not None:
        groups.setdefault(batch_slice.run, Ranges()).add(first, last)
    return groups
